"""Every cell against its equation; the exact TSLM variants against the explicit tensor."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from tslm.models.recurrent.cells.additive import LstmConfig, RnnConfig
from tslm.models.recurrent.cells.integration import IntegrationConfig
from tslm.models.recurrent.cells.tslm import TslmCell, TslmConfig
from tslm.tensors.recursion import explicit_logits, explicit_tensor, lift_biases

VARIANTS = ["pure", "biased", "bounded", "normalised"]


def make(variant, inputs=3, rank=4, **options) -> TslmCell:
    torch.manual_seed(0)
    cell = TslmConfig(variant=variant, **options).build(inputs, rank).double().eval()
    with torch.no_grad():  # away from the special starting point
        for parameter in cell.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return cell


@pytest.mark.parametrize("variant", ["pure", "biased", "bounded"])
@pytest.mark.parametrize("words", [1, 2, 4])
def test_exact_variants_are_contractions_of_the_explicit_tensor(variant, words) -> None:
    cell = make(variant)
    V_VR = torch.randn(5, 4, dtype=torch.float64)
    alphas_TM = torch.randn(words, 3, dtype=torch.float64)
    states_TBR, _ = cell(alphas_TM.unsqueeze(1), cell.start(1))
    W_RR = cell.recurrent_weight()
    if variant == "bounded":
        # tanh acts on each word alone: the tensor's word vectors are the factors themselves, and U is the identity.
        alphas_TM, U_RM, c_R = (
            cell.factors(alphas_TM)[0],
            torch.eye(4, dtype=torch.float64),
            torch.zeros_like(cell.c),
        )
    else:
        U_RM, c_R = cell.U, cell.c
    lifted = replace(
        lift_biases(W_RR, U_RM, V_VR, hidden_bias_R=cell.b, input_bias_R=c_R),
        start_R=torch.ones(5, dtype=torch.float64),
    )
    tensor = explicit_tensor(lifted.W_RR, lifted.U_RM, lifted.V_VR, words + 1, start_R=lifted.start_R)
    expected_V = explicit_logits(tensor, lifted.lift_words(alphas_TM))
    actual_V = V_VR @ states_TBR[-1, 0]
    torch.testing.assert_close(actual_V, expected_V, rtol=1e-12, atol=1e-12)
    for parameter in cell.parameters():
        if words == 1 and parameter is not cell.U and parameter is not cell.c:
            continue  # a single word has met neither W nor b
        gradients = [
            torch.autograd.grad(y.sum(), parameter, retain_graph=True)[0] for y in (actual_V, expected_V)
        ]
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("variant", ["pure", "biased", "bounded"])
def test_exact_variants_are_linear_in_every_words_factor(variant) -> None:
    # With a bias, linear in the factor and its constant coordinate: weights that sum to one leave the latter at one.
    cell = make(variant)
    factors_TR = torch.randn(5, 4, dtype=torch.float64)

    def last_state(factors):
        return cell.scan((factors.unsqueeze(1),), cell.start(1), cell.recurrent_weight())[0][-1]

    for place in range(5):
        other_R = torch.randn(4, dtype=torch.float64)
        mixed, one, two = factors_TR.clone(), factors_TR.clone(), factors_TR.clone()
        mixed[place], two[place] = 3 * factors_TR[place] - 2 * other_R, other_R
        torch.testing.assert_close(last_state(mixed), 3 * last_state(one) - 2 * last_state(two))


@pytest.mark.parametrize("rank", [16, 256])
def test_bounded_weights_are_bounded_from_the_start(rank) -> None:
    torch.manual_seed(0)
    cell = TslmConfig(variant="bounded").build(8, rank).requires_grad_(False)
    assert float(torch.linalg.matrix_norm(cell.W, 2)) > 1
    assert float(torch.linalg.matrix_norm(cell.recurrent_weight(), 2)) == pytest.approx(0.98, rel=1e-3)


def test_measuring_a_cell_does_not_change_it() -> None:
    cell = TslmConfig(variant="bounded").build(8, 16).train()
    with torch.no_grad():
        cell.W.add_(torch.randn(16, 16))
    before_R = cell.left_R.clone()
    cell.recurrent_weight()
    assert torch.equal(cell.left_R, before_R)
    cell(torch.randn(2, 1, 8), cell.start(1))
    assert not torch.equal(cell.left_R, before_R)


def test_bounded_states_stay_within_their_bound() -> None:
    torch.manual_seed(0)
    cell = TslmConfig(variant="bounded", norm_limit=0.9).build(8, 16).requires_grad_(False)
    cell.W.copy_(torch.randn(16, 16) * 3)
    cell.settle()
    cell.eval()
    norm = float(torch.linalg.matrix_norm(cell.recurrent_weight(), 2))
    assert norm == pytest.approx(0.9, rel=1e-3)
    states_TBR, _ = cell(torch.randn(3000, 1, 8) * 10, cell.start(1))
    assert float(states_TBR[100:].norm(dim=-1).max()) <= float(cell.b.norm()) / (1 - norm) * 1.001


def test_normalised_states_never_exceed_the_root_of_the_rank() -> None:
    cell = make("normalised", rank=6)
    with torch.no_grad():
        cell.W.mul_(100)
    states_TBR, _ = cell(torch.randn(1000, 2, 3, dtype=torch.float64) * 100, cell.start(2))
    assert torch.isfinite(states_TBR).all()
    assert float(states_TBR.detach().norm(dim=-1).max()) <= 6**0.5


@pytest.mark.parametrize("variant", ["biased", "bounded", "normalised"])
def test_units_start_as_a_linear_memory(variant) -> None:
    torch.manual_seed(0)
    cell = TslmConfig(variant=variant, holding=0.5).build(8, 12)
    writing = slice(6, None)
    assert (cell.W[writing] == 0).all()
    assert (cell.b[writing] == 1).all()
    assert (cell.b[:6] == 0).all()
    decay = cell.W.detach()[:6, :6].diagonal()
    assert decay.min() == pytest.approx(0.5)
    assert decay.max() == pytest.approx(0.98)


@pytest.mark.parametrize(("own", "pytorchs", "gates"), [(RnnConfig, nn.RNN, 1), (LstmConfig, nn.LSTM, 4)])
def test_additive_cells_equal_pytorchs_modules(own, pytorchs, gates) -> None:
    torch.manual_seed(0)
    cell = own().build(3, 4).double()
    network = pytorchs(3, 4).double()
    with torch.no_grad():
        pairs = zip(network.parameters(), (cell.U, cell.W, cell.b_word, cell.b_state), strict=True)
        for theirs, ours in pairs:
            theirs.copy_(ours)
    inputs_TBM = torch.randn(7, 2, 3, dtype=torch.float64)
    expected_TBR, _ = network(inputs_TBM)
    first_TBR, state = cell(inputs_TBM[:4], cell.start(2))
    second_TBR, _ = cell(inputs_TBM[4:], state)
    torch.testing.assert_close(torch.cat([first_TBR, second_TBR]), expected_TBR)
    assert cell.recurrent_weight().shape == (gates * 4, 4)


def test_multiplicative_integration_equals_its_formula() -> None:
    torch.manual_seed(0)
    cell = IntegrationConfig().build(3, 4)
    with torch.no_grad():
        for vector in (cell.product, cell.state_gain, cell.word_gain, cell.bias):
            vector.normal_()
    inputs_TBM = torch.randn(5, 2, 3)
    states_TBR, last = cell(inputs_TBM, cell.start(2))
    state_BR = torch.zeros(2, 4)
    for t in range(5):
        memory, word = state_BR @ cell.W.T, inputs_TBM[t] @ cell.U.T
        state_BR = torch.tanh(
            cell.product * memory * word + cell.state_gain * memory + cell.word_gain * word + cell.bias
        )
        torch.testing.assert_close(states_TBR[t], state_BR)
    torch.testing.assert_close(last[0], state_BR)


@pytest.mark.parametrize(
    "make_cell",
    [
        lambda: TslmConfig(variant="biased", weight_drop=0.5).build(3, 4),
        lambda: RnnConfig(weight_drop=0.5).build(3, 4),
        lambda: LstmConfig(weight_drop=0.5).build(3, 4),
        lambda: IntegrationConfig(weight_drop=0.5).build(3, 4),
    ],
)
def test_weight_drop_acts_in_training_only(make_cell) -> None:
    torch.manual_seed(0)
    cell = make_cell()
    with torch.no_grad():
        cell.W.normal_()
    inputs_TBM = torch.randn(6, 1, 3)

    def last() -> torch.Tensor:
        return cell(inputs_TBM, cell.start(1))[0][-1]

    cell.eval()
    assert torch.equal(last(), last())
    cell.train()
    assert not torch.equal(last(), last())
