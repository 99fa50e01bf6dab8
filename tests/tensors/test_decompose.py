"""The recursive decomposition of Eq. 16: exact at full rank, bounded below it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tslm.errors import NumberError, ShapeError
from tslm.tensors import RecursiveDecomposition, decompose, maximum_rank, reconstruct

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple)


def draw(seed: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def expand_by_loops(form: RecursiveDecomposition) -> np.ndarray:
    """Eq. 16 word for word: S as a list of tensors, one per term."""
    U = [factor.numpy() for factor in form.U]
    levels: list[np.ndarray] = [np.array(1.0)] * len(U[0])
    for factor, link in zip(U[:-1], form.W, strict=True):
        levels = [
            sum(link[j, i].item() * np.multiply.outer(levels[i], factor[i]) for i in range(len(factor)))
            for j in range(len(link))
        ]
    return sum(form.weights[i].item() * np.multiply.outer(levels[i], U[-1][i]) for i in range(len(U[-1])))


@settings(max_examples=30)
@given(shapes, st.integers(0, 2**31), st.sampled_from([torch.float32, torch.float64]))
def test_exact_at_full_rank(shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> None:
    tensor = draw(seed, shape, dtype)
    for exact in (decompose(tensor), decompose(tensor, rank=maximum_rank(shape))):
        assert exact.relative_error <= 1e4 * torch.finfo(dtype).eps
        assert exact.error <= exact.bound
        assert max(exact.form.ranks) <= maximum_rank(shape)
        for factor in exact.form.U:
            torch.testing.assert_close(factor.norm(dim=1), torch.ones(len(factor), dtype=dtype))


@settings(max_examples=30)
@given(shapes, st.integers(0, 2**31), st.data())
def test_error_never_above_its_bound(shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, maximum_rank(shape)))
    tensor = draw(seed, shape)
    cut = decompose(tensor, rank=rank)
    assert max(cut.form.ranks) <= rank
    assert cut.error <= cut.bound
    assert cut.error == pytest.approx(float((tensor - reconstruct(cut)).norm()), abs=1e-12)
    assert cut.relative_error <= 1 + 1e-9  # never worse than nothing at all


@settings(max_examples=30)
@given(shapes, st.integers(0, 2**31), st.floats(0, 0.9))
def test_tolerance_is_kept(shape: tuple[int, ...], seed: int, tolerance: float) -> None:
    cut = decompose(draw(seed, shape), tolerance=tolerance)
    assert cut.relative_error <= tolerance + 1e-12


@pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 4, 2), (2, 3, 2, 3)])
def test_the_form_is_the_papers(shape: tuple[int, ...]) -> None:
    found = decompose(draw(0, shape)).form
    np.testing.assert_allclose(found.to_tensor().numpy(), expand_by_loops(found), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.to_network().contract(), found.to_tensor(), rtol=1e-10, atol=1e-12)
    assert found.shape == shape


def test_order_two_is_the_singular_value_decomposition() -> None:
    matrix = draw(1, (6, 9))
    singular = torch.linalg.svdvals(matrix)
    for rank in range(1, 7):
        cut = decompose(matrix, rank=rank)
        torch.testing.assert_close(cut.form.weights, singular[:rank])
        assert cut.error == pytest.approx(float(singular[rank:].norm()), abs=1e-12)


@pytest.mark.parametrize(("order", "rank", "size"), [(3, 3, 4), (4, 4, 6), (6, 2, 3), (5, 5, 5)])
def test_a_tensor_made_by_the_recursion_is_found_at_its_own_rank(order: int, rank: int, size: int) -> None:
    W, U, weights = draw(7, (rank, rank)), draw(8, (rank, size)), draw(9, (rank,))
    made = RecursiveDecomposition(weights, (W,) * (order - 1), (U,) * order)
    found = decompose(made.to_tensor())
    assert found.form.ranks == (rank,) * order
    assert found.relative_error < 1e-10


def test_against_tensorly_a_cp_tensor_is_a_diagonal_recursion() -> None:
    tensorly = pytest.importorskip("tensorly")
    factors = [draw(seed, (size, 3)) for seed, size in enumerate((4, 5, 6))]
    weights = draw(11, (3,))
    cp = tensorly.cp_to_tensor((weights.numpy(), [factor.numpy() for factor in factors]))
    eye = torch.eye(3, dtype=torch.float64)
    ours = RecursiveDecomposition(weights, (eye, eye), tuple(factor.T for factor in factors))
    np.testing.assert_allclose(ours.to_tensor().numpy(), cp, rtol=1e-12)
    assert decompose(torch.from_numpy(cp)).form.ranks == (3, 3, 3)


def test_lower_rank_means_more_error_and_fewer_parameters() -> None:
    tensor = draw(12, (5, 5, 5))
    cuts = [decompose(tensor, rank=rank) for rank in (1, 2, 4, 8, 16, 25)]
    for small, large in itertools.pairwise(cuts):
        assert large.error < small.error
        assert large.parameter_count > small.parameter_count
    only = cuts[0].form
    assert only.parameter_count == 1 + 2 * 1 + 3 * 5  # λ, two W, three U: not the paper's m·r alone


def test_parts_along_the_first_mode() -> None:
    found = decompose(draw(13, (6, 3, 4)), rank=4).form
    torch.testing.assert_close(found.to_tensor(slice(2, 5)), found.to_tensor()[2:5])


@pytest.mark.parametrize("rank", [0, -1, 10])
def test_rank_out_of_range(rank: int) -> None:
    with pytest.raises(NumberError, match=rf"rank {rank} for a tensor \(3×3×3\); expected 1 to 9"):
        decompose(torch.ones(3, 3, 3), rank=rank)


def test_bad_input() -> None:
    with pytest.raises(NumberError, match="both rank 1 and tolerance"):
        decompose(torch.ones(3, 3), rank=1, tolerance=0.1)
    with pytest.raises(NumberError, match=r"nan at \(0, 1\)"):
        decompose(torch.tensor([[1.0, torch.nan]]))
    ones = torch.ones
    with pytest.raises(ShapeError, match=r"W at level 1 is \(2×2\).*must be \(3×2\)"):
        RecursiveDecomposition(ones(3), (ones(2, 2),), (ones(2, 4), ones(3, 4)))
    with pytest.raises(ShapeError, match=r"λ is \(2\), but the last U is \(3×4\)"):
        RecursiveDecomposition(ones(2), (), (ones(3, 4),))
    with pytest.raises(ShapeError, match="matrices"):
        RecursiveDecomposition(ones(2), (ones(2, 2),), (ones(2, 4),))


def test_zero_is_decomposed() -> None:
    assert decompose(torch.zeros(3, 4, 5)).error == 0
