"""Arithmetic, canonical forms, rounding, Schmidt values and samples of trains: against the full tensor and quimb."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tslm.errors import NumberError, ShapeError
from tslm.interop.quimb import train_to_quimb
from tslm.tensors import (
    TensorTrain,
    canonicalise,
    cut_entropies,
    decompose_train,
    draw_train,
    inner,
    join,
    log_norm,
    norm,
    round_train,
    sample_born,
    sample_entries,
    schmidt_values,
)
from tslm.tensors.canonical import entropy, is_canonical, left_canonical, right_canonical

SHAPES = [(4,), (3, 5), (2, 3, 4), (3, 1, 4, 2), (2, 2, 2, 2, 2, 2)]
DTYPES = [torch.float64, torch.complex128]
both = pytest.mark.parametrize("dtype", DTYPES, ids=["real", "complex"])
every = pytest.mark.parametrize("shape", SHAPES, ids=str)
close = {"rtol": 1e-10, "atol": 1e-10}


def pair(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[TensorTrain, TensorTrain]:
    return draw_train(shape, 3, seed=1, dtype=dtype), draw_train(shape, 4, seed=2, dtype=dtype)


@both
@every
def test_arithmetic_is_that_of_the_tensors(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    a, b = pair(shape, dtype)
    A, B = a.to_tensor(), b.to_tensor()
    torch.testing.assert_close((a + b).to_tensor(), A + B, **close)
    torch.testing.assert_close((a - b).to_tensor(), A - B, **close)
    torch.testing.assert_close((a * b).to_tensor(), A * B, **close)
    torch.testing.assert_close((2.5 * a).to_tensor(), 2.5 * A, **close)
    torch.testing.assert_close((-a).to_tensor(), -A, **close)
    torch.testing.assert_close(a.conj().to_tensor(), A.conj(), **close)
    torch.testing.assert_close(inner(a, b), (A.conj() * B).sum(), **close)
    torch.testing.assert_close(a @ b, (A.conj() * B).sum(), **close)
    assert norm(a) == pytest.approx(float(A.norm()), rel=1e-12)
    torch.testing.assert_close(join(a, b).to_tensor(), torch.tensordot(A, B, dims=0), **close)


def test_gradients_flow_through_arithmetic() -> None:
    a, b = pair((2, 3, 2), torch.float64)
    leaves = [core.requires_grad_() for core in a.cores]
    ours = torch.autograd.grad(inner(a * b + a, b), leaves)
    A, B = a.to_tensor(), b.to_tensor()
    plain = torch.autograd.grad(((A * B + A) * B).sum(), leaves)
    torch.testing.assert_close(ours, plain)


def test_mixed_dtypes() -> None:
    a, b = draw_train((2, 3, 2), 2), draw_train((2, 3, 2), 2, dtype=torch.complex128)
    assert (a + b).dtype == torch.complex128
    torch.testing.assert_close(inner(a, b), (a.to_tensor() * b.to_tensor()).sum())
    assert a.to(torch.float32).dtype == torch.float32


@both
@every
def test_canonical_forms(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    train = draw_train(shape, 5, dtype=dtype)
    train = train + train  # bonds larger than they can need
    for centre in range(len(shape)):
        form = canonicalise(train, centre)
        assert is_canonical(form, centre, tolerance=1e-12)
        torch.testing.assert_close(form.to_tensor(), train.to_tensor(), **close)
        assert float(form.cores[centre].norm()) == pytest.approx(norm(train), rel=1e-12)
        assert all(rank <= limit for rank, limit in zip(form.ranks, train.ranks, strict=True))
    assert is_canonical(left_canonical(train), len(shape) - 1)
    assert is_canonical(right_canonical(train), 0)
    with pytest.raises(ShapeError, match=rf"no core {len(shape)}; expected 0 to"):
        canonicalise(train, len(shape))


@both
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4), (2, 3, 2, 3), (2, 2, 2, 2, 2, 2)], ids=str)
def test_rounding_is_as_good_as_decomposing_the_tensor(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    train = draw_train(shape, 8, dtype=dtype)
    for rank in (1, 2, 3):
        cut = round_train(train, rank=rank)
        true = float((cut.to_tensor() - train.to_tensor()).norm())
        assert max(cut.form.ranks) <= rank
        assert cut.error == pytest.approx(true, rel=1e-8)
        assert true <= cut.bound <= true + 1e-10 * cut.norm  # the bound is an equality but for rounding
        direct = decompose_train(train.to_tensor(), rank=rank)
        assert cut.error <= 1.3 * direct.error + 1e-12  # another order of the cuts
    for tolerance in (0.0, 0.05, 0.4):
        cut = round_train(train, tolerance=tolerance)
        assert cut.relative_error <= tolerance + 1e-12
    assert round_train(train + 2 * train - train).form.ranks == round_train(train).form.ranks


def test_rounding_a_long_sum() -> None:
    parts = [draw_train((3,) * 30, 2, seed=seed) for seed in range(4)]
    total = parts[0] + parts[1] + parts[2] + parts[3]
    assert max(round_train(total).form.ranks) == 8
    cut = round_train(total, tolerance=0.3)
    assert cut.relative_error <= 0.3
    assert cut.norm == pytest.approx(norm(total))


@both
def test_schmidt_values_are_those_of_the_matrices(dtype: torch.dtype) -> None:
    train = draw_train((2, 3, 2, 4), 5, dtype=dtype)
    tensor = train.to_tensor()
    for cut, values in enumerate(schmidt_values(train), 1):
        matrix = tensor.reshape(math.prod(train.shape[:cut]), -1)
        expected = torch.linalg.svdvals(matrix)
        torch.testing.assert_close(values, expected[: len(values)], **close)
        assert float(expected[len(values) :].norm()) < 1e-10
        shares = expected.square() / expected.square().sum()
        assert cut_entropies(train)[cut - 1] == pytest.approx(
            float(-torch.special.xlogy(shares, shares).sum()), abs=1e-10
        )


@both
@pytest.mark.parametrize("shape", [(2, 3, 2, 4), (2,) * 8], ids=str)
def test_equal_to_quimbs(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    pytest.importorskip("quimb")
    a, b = draw_train(shape, 4, seed=5, dtype=dtype), draw_train(shape, 3, seed=6, dtype=dtype)
    ours, theirs = a + b, train_to_quimb(a).add_MPS(train_to_quimb(b))
    np.testing.assert_allclose(theirs.to_dense().reshape(shape), ours.to_tensor(), atol=1e-10)
    assert norm(ours) == pytest.approx(float(theirs.norm()), rel=1e-10)
    overlap = complex(train_to_quimb(a).H @ train_to_quimb(b))
    assert abs(complex(inner(a, b)) - overlap) < 1e-10 * abs(overlap)
    unit = a * (1 / norm(a))
    state = train_to_quimb(unit)
    for cut in range(1, len(shape)):
        squares = np.sort(np.asarray(state.schmidt_values(cut)))[::-1]
        found = schmidt_values(unit)[cut - 1].square().numpy()
        np.testing.assert_allclose(squares[: len(found)], found, atol=1e-10)
        assert cut_entropies(unit, base=2)[cut - 1] == pytest.approx(float(state.entropy(cut)), abs=1e-10)
    for rank in (1, 2, 3):
        squeezed = train_to_quimb(ours)
        squeezed.compress(form="left", max_bond=rank, cutoff=0.0)
        mine = round_train(ours, rank=rank).to_tensor().numpy()
        np.testing.assert_allclose(squeezed.to_dense().reshape(shape), mine, atol=1e-10)


@both
def test_canonical_forms_equal_quimbs(dtype: torch.dtype) -> None:
    pytest.importorskip("quimb")
    train = draw_train((2, 3, 2, 3), 4, dtype=dtype)
    for centre in range(4):
        theirs = train_to_quimb(train)
        theirs.canonicalize_(centre)
        ours = canonicalise(train, centre).cores[centre]
        other = theirs[centre]
        # The bases of the bonds are free; what they are not is free of: the singular values of the centre.
        left = torch.linalg.svdvals(ours.reshape(ours.shape[0] * ours.shape[1], -1))
        right = [
            ind for ind in other.inds if ind not in theirs[max(centre - 1, 0)].inds and ind != f"k{centre}"
        ]
        matrix = other.to_dense([ind for ind in other.inds if ind not in right], right) if right else None
        if matrix is not None and centre:
            np.testing.assert_allclose(np.linalg.svd(matrix)[1], left, atol=1e-10)
        assert float(ours.norm()) == pytest.approx(float(other.norm()), rel=1e-10)


@both
def test_born_samples_have_their_exact_probability(dtype: torch.dtype) -> None:
    train = draw_train((2, 3, 2), 3, dtype=dtype)
    drawn = sample_born(train, 40_000, seed=1)
    exact = train.to_tensor().abs().square() / norm(train) ** 2
    torch.testing.assert_close(
        drawn.log_probabilities.exp(), exact[tuple(drawn.indices.T)], rtol=1e-9, atol=1e-12
    )
    counts = torch.zeros(2, 3, 2, dtype=torch.float64)
    counts.index_put_(tuple(drawn.indices.T), torch.ones(40_000, dtype=torch.float64), accumulate=True)
    chi_square = float(((counts - 40_000 * exact) ** 2 / (40_000 * exact)).sum())
    assert chi_square < 35  # 11 degrees of freedom: one in ten thousand lies above 37
    assert torch.equal(drawn.indices[:50], sample_born(train, 40_000, seed=1).indices[:50])


def test_samples_of_entries() -> None:
    train = TensorTrain(tuple(core.abs() for core in draw_train((2, 3, 2), 3).cores))
    drawn = sample_entries(train, 40_000, seed=2)
    exact = train.to_tensor() / train.to_tensor().sum()
    torch.testing.assert_close(
        drawn.log_probabilities.exp(), exact[tuple(drawn.indices.T)], rtol=1e-9, atol=0
    )
    counts = torch.zeros(2, 3, 2, dtype=torch.float64)
    counts.index_put_(tuple(drawn.indices.T), torch.ones(40_000, dtype=torch.float64), accumulate=True)
    assert float(((counts - 40_000 * exact) ** 2 / (40_000 * exact)).sum()) < 35
    with pytest.raises(NumberError, match="negative entries"):
        sample_entries(draw_train((3, 3), 2), 10)
    with pytest.raises(NumberError, match="complex"):
        sample_entries(draw_train((3, 3), 2, dtype=torch.complex128), 10)
    with pytest.raises(NumberError, match="nothing to draw"):
        sample_born(0 * draw_train((3, 3), 2), 10)


def test_long_trains_stay_within_the_range_of_numbers() -> None:
    train = join(*[draw_train((3, 3), 2, seed=seed) * 1e-30 for seed in range(60)])
    assert log_norm(train) < -4000
    assert norm(train) == 0
    assert cut_entropies(train)[1] == pytest.approx(0, abs=1e-12)
    assert cut_entropies(train)[0] > 0.01
    assert bool(torch.isfinite(sample_born(train, 5).log_probabilities).all())
    assert log_norm(0 * draw_train((3, 3), 2)) == -math.inf


def test_what_is_refused() -> None:
    a = draw_train((2, 3), 2)
    for action in (lambda: a + draw_train((3, 2), 2), lambda: inner(a, draw_train((2,), 1))):
        with pytest.raises(ShapeError, match=r"\(2×3\)"):
            action()
    for options, words in (
        ({"rank": 0}, "rank 0"),
        ({"tolerance": 1.0}, "tolerance 1.0"),
        ({"rank": 1, "tolerance": 0.1}, "both"),
    ):
        with pytest.raises(NumberError, match=words):
            round_train(a, **options)
    with pytest.raises(ShapeError, match="2 ranks"):
        round_train(a, rank=[1, 1])
    with pytest.raises(NumberError, match="no entropy"):
        entropy(torch.zeros(3))
    with pytest.raises(NumberError, match="no entropy"):
        entropy(torch.tensor([1.0, -0.5]))
