"""The gated cell against its formula, against the explicit tensor, and against its bound."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from tslm.models.recurrent.cells.gated import GatedCell, GatedConfig


def make(inputs=3, rank=4, **options) -> GatedCell:
    torch.manual_seed(0)
    cell = GatedConfig(**options).build(inputs, rank).double().eval()
    with torch.no_grad():  # away from the special starting point
        for parameter in cell.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    cell.settle()
    return cell


def step_slowly(cell: GatedCell, word, state):
    R = cell.rank
    a = torch.sigmoid(cell.U[:R] @ word + cell.c[:R])
    g = torch.tanh(cell.U[R : 2 * R] @ word + cell.c[R : 2 * R])
    s = torch.tanh(cell.U[2 * R :] @ word + cell.c[2 * R :])
    W = cell.recurrent_weight()
    if cell.split:
        b = (1 - a).sqrt()
        return a * state + b * (g + s * (W @ (b * state)))
    return a * state + (1 - a) * (g + s * (W @ state))


@pytest.mark.parametrize("split", [False, True])
def test_states_equal_the_formula(split) -> None:
    cell = make(split=split)
    words_TM = torch.randn(6, 3, dtype=torch.float64)
    states_TBR, (last_BR,) = cell(words_TM.unsqueeze(1), cell.start(1))
    state = torch.zeros(4, dtype=torch.float64)
    for t, word in enumerate(words_TM):
        state = step_slowly(cell, word, state)
        torch.testing.assert_close(states_TBR[t, 0], state, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(last_BR[0], state)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("words", [1, 2, 4])
def test_the_cell_is_a_contraction_of_the_explicit_tensor(split, words) -> None:
    """Eqs. 11, 18: T[d₁ … d_n, ·] over a basis of word vectors, contracted with the words' own vectors A.

    A word's vector is (a, b ⊙ g, the products (b ⊙ s)_i k_j, 1): the step is linear in it, so the tensor of a text
    is made by putting basis vectors in each place, and the inner product with the rank-one tensor A gives the state.
    """
    R = 2
    cell = make(rank=R, split=split)
    words_TM = torch.randn(words, 3, dtype=torch.float64)
    W = cell.recurrent_weight()

    def vector(word):
        hold, mix, add, *keep = cell.factors(word)
        gains = torch.outer(mix, keep[0] if keep else torch.ones(R, dtype=torch.float64))
        return torch.cat([hold, add, gains.flatten(), torch.ones(1, dtype=torch.float64)])

    size = 2 * R + R * R + 1

    def operator(place):
        """The matrix, over state and constant coordinate, of one basis vector of the word."""
        e = torch.zeros(size, dtype=torch.float64)
        e[place] = 1
        hold, add, gains, one = e[:R], e[R : 2 * R], e[2 * R : -1].view(R, R), e[-1:]
        top = torch.cat([torch.diag(hold) + gains * W, add[:, None]], 1)
        return torch.cat([top, torch.cat([torch.zeros(R, dtype=torch.float64), one])[None]])

    start = torch.cat([torch.zeros(R, dtype=torch.float64), torch.ones(1, dtype=torch.float64)])
    operators = torch.stack([operator(place) for place in range(size)])
    vectors = [vector(word) for word in words_TM]
    tensor = torch.zeros(*[size] * words, R, dtype=torch.float64)
    for places in itertools.product(range(size), repeat=words):
        state = start
        for place in places:
            state = operators[place] @ state
        tensor = tensor.index_put(tuple(map(torch.tensor, places)), state[:R])
    expected = tensor
    for own in vectors:
        expected = torch.einsum("d...,d->...", expected, own)
    states_TBR, _ = cell(words_TM.unsqueeze(1), cell.start(1))
    torch.testing.assert_close(states_TBR[-1, 0], expected, rtol=1e-11, atol=1e-11)
    for parameter in cell.parameters():
        if parameter is cell.W and words == 1:
            continue  # a single word has not met W
        ours, theirs = (
            torch.autograd.grad(y.sum(), parameter, retain_graph=True)[0]
            for y in (states_TBR[-1, 0], expected)
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@torch.no_grad()
@pytest.mark.parametrize("split", [False, True])
def test_operators_make_the_same_steps_and_their_mean_is_the_average_step(split) -> None:
    cell = make(split=split)
    words_NM = torch.randn(9, 3, dtype=torch.float64)
    A_NRR, c_NR, first_NR = cell.operators(words_NM)
    state_R = torch.randn(4, dtype=torch.float64)
    for n, word in enumerate(words_NM):
        torch.testing.assert_close(A_NRR[n] @ state_R + c_NR[n], step_slowly(cell, word, state_R))
        torch.testing.assert_close(first_NR[n], step_slowly(cell, word, torch.zeros_like(state_R)))
    expected_R = A_NRR.mean(0) @ state_R + c_NR.mean(0)
    torch.testing.assert_close(cell.average_step(state_R[None], words_NM)[0], expected_R)
    assert torch.equal(cell.neutral_step(state_R[None])[0], state_R)


@torch.no_grad()
def test_every_word_is_a_contraction_when_the_gate_is_split() -> None:
    """‖D(a) + D(b) D(s) W D(b)‖ ≤ 1 for any gates whatever, here also at their extremes, and W of norm 1."""
    torch.manual_seed(1)
    cell = make(rank=16, inputs=8, split=True)
    cell.W.copy_(torch.randn(16, 16, dtype=torch.float64) * 5)
    cell.settle()
    for scale in (0.1, 1.0, 10.0, 100.0):
        A_NRR, _, _ = cell.operators(torch.randn(200, 8, dtype=torch.float64) * scale)
        assert float(torch.linalg.matrix_norm(A_NRR, 2).max()) <= 1 + 1e-6
    states_TBR, _ = cell(torch.randn(2000, 1, 8, dtype=torch.float64) * 20, cell.start(1))
    lengths_T = torch.arange(1, 2001, dtype=torch.float64)
    assert (states_TBR[:, 0].norm(dim=-1) <= math.sqrt(16) * lengths_T).all()


@torch.no_grad()
def test_without_the_split_gates_that_alternate_can_make_a_state_grow() -> None:
    """Why the plain gate has no proof: a rotation by 45 degrees, each half of it held in turn."""
    cell = GatedConfig(split=False).build(2, 2).double()
    turn = math.cos(math.pi / 4)
    cell.W.copy_(
        torch.tensor([[turn, turn], [turn, turn]]) / torch.tensor([[turn, turn], [turn, turn]]).norm(2)
    )
    cell.c.zero_()
    cell.U.zero_()
    cell.U[:2] = torch.tensor([[50.0, -50.0], [-50.0, 50.0]])
    cell.U[4:] = torch.tensor([[50.0, 50.0], [50.0, 50.0]])
    cell.settle()
    A_NRR, _, _ = cell.operators(torch.eye(2, dtype=torch.float64))
    assert float(torch.linalg.matrix_norm(A_NRR, 2).max()) > 1.05


def test_units_start_with_memories_from_one_to_fifty_words() -> None:
    cell = GatedConfig().build(8, 12)
    held = torch.sigmoid(cell.c[:12].detach())
    assert held.min() == pytest.approx(math.exp(-1))
    assert held.max() == pytest.approx(math.exp(-1 / 50), rel=1e-5)
    assert float(torch.linalg.matrix_norm(cell.recurrent_weight().detach(), 2)) < 0.5


def test_the_limit_holds_the_norm_of_w() -> None:
    cell = GatedConfig(norm_limit=0.7).build(4, 32).requires_grad_(False)
    cell.W.copy_(torch.randn(32, 32))
    cell.settle()
    assert float(torch.linalg.matrix_norm(cell.recurrent_weight(), 2)) == pytest.approx(0.7, rel=1e-3)
    free = GatedConfig(norm_limit=0.0).build(4, 32).requires_grad_(False)
    assert free.recurrent_weight() is free.W
    assert "left_R" not in free.state_dict()


def test_without_split_no_word_makes_the_state_longer_than_by_the_root_of_two() -> None:
    cell = make(rank=6)
    largest = 0.0
    for scale in (1, 10, 100):  # up to gates that are fully open or shut
        A_NRR, _, _ = cell.operators(scale * torch.randn(500, 3, dtype=torch.float64))
        largest = max(largest, float(torch.linalg.matrix_norm(A_NRR.detach(), 2).max()))
    assert 1 < largest <= math.sqrt(2) + 1e-6, "the bound holds, and is no empty one"


def test_growth_is_the_spectral_radius_of_the_mean_kronecker_square() -> None:
    cell = make(rank=3)
    words_VM = torch.randn(5, 3, dtype=torch.float64)
    chance_V = torch.tensor([4.0, 1.0, 2.0, 2.0, 1.0])
    A_VRR = cell.operators(words_VM)[0].detach()
    mean = sum(p * torch.kron(A, A) for p, A in zip(chance_V.double() / 10, A_VRR, strict=True))
    expected = float(torch.linalg.eigvals(mean).abs().max())
    assert cell.growth(words_VM, chance_V) == pytest.approx(expected, rel=1e-9)
    assert make(split=True).growth(words_VM, chance_V) == 1.0


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("rank", [5, 37])
def test_the_factors_equal_their_formula(split, dtype, tolerance, rank, road) -> None:
    torch.manual_seed(rank)
    cell = GatedConfig(split=split).build(3, rank).to(dtype)
    # Far enough for gates that are shut and open.
    words = (20 * torch.randn(7, 2, 3, dtype=dtype)).requires_grad_()
    given = [words, cell.U, cell.c]
    hold, content, mix = (words @ cell.U.T + cell.c).split(rank, -1)
    free = 1 / (1 + hold.exp())
    free = free**0.5 if split else free
    expected = [1 / (1 + (-hold).exp()), free * mix.tanh(), free * content.tanh(), *([free] if split else [])]
    factors = cell.factors(words)
    weights = [torch.randn_like(part) for part in expected]
    gradients = [
        torch.autograd.grad(sum((p * w).sum() for p, w in zip(parts, weights, strict=True)), given)
        for parts in (factors, expected)
    ]
    for ours, theirs in zip([*factors, *gradients[0]], [*expected, *gradients[1]], strict=True):
        scale = max(1.0, float(theirs.detach().abs().max()))
        torch.testing.assert_close(ours, theirs, rtol=10 * tolerance, atol=10 * tolerance * scale)
