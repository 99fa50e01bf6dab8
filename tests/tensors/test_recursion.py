"""The recursion against the explicit tensor, exact arithmetic and long sequences."""

from __future__ import annotations

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tslm.errors import ShapeError, SizeLimitError
from tslm.tensors import explicit_tensor, lift_biases, recurse, recurse_scaled, recursive_logits
from tslm.tensors.recursion import explicit_logits, predict_next


def draw(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def expand_by_loops(W: np.ndarray, U: np.ndarray, V: np.ndarray, order: int) -> np.ndarray:
    """Eqs. 16, 18 word for word."""
    levels = [np.array(1.0)] * len(W)
    for _ in range(order - 2):
        levels = [
            sum(W[j, i] * np.multiply.outer(levels[i], U[i]) for i in range(len(W))) for j in range(len(W))
        ]
    outputs = [
        sum(V[k, i] * np.multiply.outer(levels[i], U[i]) for i in range(len(W))) for k in range(len(V))
    ]
    return np.stack(outputs, -1)


@pytest.mark.parametrize(("rank", "size", "words"), [*itertools.product((1, 2, 3), (1, 2, 4), (1, 2, 3, 4))])
def test_recursion_equals_the_explicit_tensor_in_values_and_gradients(
    rank: int, size: int, words: int
) -> None:
    W, U, V, alphas = draw(rank + 10 * size, (rank, rank), (rank, size), (3, rank), (words, size))
    tensor = explicit_tensor(W, U, V, words + 1)
    np.testing.assert_allclose(
        tensor.numpy(), expand_by_loops(*(m.numpy() for m in (W, U, V)), words + 1), rtol=1e-12
    )
    parameters = [m.requires_grad_() for m in (W, U, V, alphas)]
    explicit = explicit_logits(explicit_tensor(W, U, V, words + 1), alphas)
    recursive = recursive_logits(W, U, V, alphas)[-1]
    torch.testing.assert_close(recursive, explicit, rtol=1e-11, atol=1e-11)
    weights = torch.arange(1.0, 4.0, dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad(explicit @ weights, parameters, allow_unused=True),
        torch.autograd.grad(recursive @ weights, parameters, allow_unused=True),
        strict=True,
    ):
        zero = torch.zeros((), dtype=torch.float64)
        torch.testing.assert_close(
            one if one is not None else zero, other if other is not None else zero, rtol=1e-10, atol=1e-10
        )


def test_all_words_at_once_and_in_batches() -> None:
    W, U, V, alphas = draw(5, (3, 3), (3, 4), (5, 3), (2, 6, 4))
    logits = recursive_logits(W, U, V, alphas)
    for b, t in itertools.product(range(2), range(1, 5)):
        expected = explicit_logits(explicit_tensor(W, U, V, t + 1), alphas[b, :t])
        torch.testing.assert_close(logits[b, t - 1], expected, rtol=1e-11, atol=1e-11)
    probabilities = predict_next(W, U, V, alphas)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 6, dtype=torch.float64))


def test_a_singular_matrix_is_no_obstacle() -> None:
    U, V, alphas = draw(6, (3, 4), (5, 3), (3, 4))
    W = torch.ones(3, 3, dtype=torch.float64)
    expected = explicit_logits(explicit_tensor(W, U, V, 4), alphas)
    torch.testing.assert_close(recursive_logits(W, U, V, alphas)[-1], expected)


def test_exact_rational_arithmetic() -> None:
    numbers = np.random.default_rng(0)
    W, U, alphas = (numbers.integers(-3, 4, shape) for shape in [(3, 3), (3, 2), (12, 2)])
    gate = [Fraction(1)] * 3
    for alpha in alphas:
        state = [
            g * sum(Fraction(int(u)) * int(a) for u, a in zip(row, alpha, strict=True))
            for g, row in zip(gate, U, strict=True)
        ]
        gate = [sum(Fraction(int(w)) * s for w, s in zip(row, state, strict=True)) for row in W]
    found = recurse(*(torch.from_numpy(array).double() for array in (W, U, alphas)))[-1]
    assert [Fraction(value) for value in found.tolist()] == state  # integers below 2⁵³: not a bit may differ


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_scaled_against_sixty_digits(scale: float) -> None:
    W, U, alphas = draw(7, (4, 4), (4, 3), (400, 3))
    states, logs = recurse_scaled(W * scale, U, alphas)
    with mpmath.workdps(60):
        exact_W, exact_U = mpmath.matrix((W * scale).tolist()), mpmath.matrix(U.tolist())
        gate = mpmath.matrix([1] * 4)
        for t, alpha in enumerate(alphas.tolist()):
            factor = exact_U * mpmath.matrix(alpha)
            state = mpmath.matrix([g * f for g, f in zip(gate, factor, strict=True)])
            largest = max(abs(value) for value in state)
            if t in (0, 1, 50, 399):
                assert float(mpmath.log(largest)) == pytest.approx(float(logs[t]), abs=1e-9)
                assert [float(value / largest) for value in state] == pytest.approx(
                    states[t].tolist(), abs=1e-10
                )
            gate = exact_W * state


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_ten_thousand_words_neither_overflow_nor_underflow(scale: float) -> None:
    W, U, alphas = draw(8, (6, 6), (6, 4), (10_000, 4))
    plain = recurse(W * scale, U, alphas)
    assert not torch.isfinite(plain).all() or bool((plain[-1] == 0).all())
    states, logs = recurse_scaled(W * scale, U, alphas)
    assert torch.isfinite(states).all()
    assert torch.isfinite(logs).all()
    torch.testing.assert_close(states.abs().amax(-1), torch.ones(10_000, dtype=torch.float64))
    one_states, one_logs = recurse_scaled(W, U, alphas)
    torch.testing.assert_close(states, one_states, rtol=1e-8, atol=1e-8)  # a scaled W only shifts the scale
    shift = torch.arange(10_000, dtype=torch.float64) * np.log(scale)
    torch.testing.assert_close(logs, one_logs + shift, rtol=1e-9, atol=1e-6)


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 8))
def test_scaled_equals_plain_with_gradients(seed: int, words: int) -> None:
    W, U, alphas = (m.requires_grad_() for m in draw(seed, (3, 3), (3, 2), (2, words, 2)))
    plain = recurse(W, U, alphas)
    states, logs = recurse_scaled(W, U, alphas)
    scaled = states * logs.exp()[..., None]
    torch.testing.assert_close(scaled, plain, rtol=1e-9, atol=1e-12)
    for one, other in zip(
        torch.autograd.grad(plain.sum(), (W, U, alphas), allow_unused=True),
        torch.autograd.grad(scaled.sum(), (W, U, alphas), allow_unused=True),
        strict=True,
    ):
        assert (one is None) == (words == 1 and other is None) or one is not None
        if one is not None and other is not None:
            torch.testing.assert_close(other, one, rtol=1e-7, atol=1e-8)


def test_a_state_of_zeros_stays_zero() -> None:
    W, U = draw(9, (2, 2), (2, 2))
    states, logs = recurse_scaled(W, U, torch.zeros(3, 2, dtype=torch.float64))
    assert bool((states == 0).all())
    assert bool((logs == -torch.inf).all())


@pytest.mark.parametrize("initial", [False, True])
def test_biases_are_one_more_coordinate(initial: bool) -> None:
    W, U, V, b, c, d, h, alphas = draw(10, (3, 3), (3, 4), (5, 3), (3,), (3,), (5,), (3,), (6, 4))
    pure = lift_biases(
        W, U, V, hidden_bias_R=b, input_bias_R=c, output_bias_V=d, initial_R=h if initial else None
    )
    assert (tuple(pure.W_RR.shape), tuple(pure.U_RM.shape)) == ((4, 4), (4, 5))
    state = h if initial else torch.zeros_like(h)
    logits = pure.logits(alphas)
    for t, alpha in enumerate(alphas):
        state = (W @ state + b) * (U @ alpha + c)
        torch.testing.assert_close(logits[t], V @ state + d, rtol=1e-10, atol=1e-10)
    tensor = explicit_tensor(pure.W_RR, pure.U_RM, pure.V_VR, 4, start_R=pure.start_R)
    torch.testing.assert_close(
        explicit_logits(tensor, pure.lift_words(alphas[:3])), logits[2], rtol=1e-10, atol=1e-10
    )


def test_without_biases_the_lift_changes_nothing() -> None:
    W, U, V, alphas = draw(11, (3, 3), (3, 4), (5, 3), (4, 4))
    pure = lift_biases(W, U, V, initial_R=torch.linalg.solve(W, torch.ones(3, dtype=torch.float64)))
    torch.testing.assert_close(pure.logits(alphas), recursive_logits(W, U, V, alphas), rtol=1e-9, atol=1e-9)


def test_the_explicit_tensor_has_a_limit_that_names_the_memory() -> None:
    W, U, V = draw(12, (2, 2), (2, 100), (5, 2))
    with pytest.raises(
        SizeLimitError, match=r"\(100×100×100×100×100×5\) would take 372.5 GiB.*recursive_logits"
    ):
        explicit_tensor(W, U, V, 6)


@pytest.fixture
def unchecked_types():
    """Reach our own checks: under pytest the shape types would speak first."""
    from jaxtyping import config

    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("unchecked_types")
def test_shapes_that_do_not_fit() -> None:
    W, U, V, alphas = draw(13, (3, 3), (3, 4), (5, 3), (2, 4))
    with pytest.raises(ShapeError, match=r"U is \(3×4\).*W must be \(3×3\), not \(2×2\)"):
        recurse(W[:2, :2], U, alphas)
    with pytest.raises(ShapeError, match=r"V must be \(vocabulary×3\), not \(5×2\)"):
        recursive_logits(W, U, V[:, :2], alphas)
    with pytest.raises(ShapeError, match=r"words must be .*×4\).*not \(2×3\)"):
        recurse_scaled(W, U, alphas[:, :3])
    with pytest.raises(ShapeError, match=r"start must be \(3\), not \(2\)"):
        explicit_tensor(W, U, V, 3, start_R=torch.ones(2, dtype=torch.float64))
    with pytest.raises(ShapeError, match="order 1"):
        explicit_tensor(W, U, V, 1)
    with pytest.raises(ShapeError, match=r"T is \(4×4×5\), but 1 words"):
        explicit_logits(explicit_tensor(W, U, V, 3), alphas[:1])
