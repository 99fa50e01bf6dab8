"""Tensor trains: exact, bounded, and against TensorLy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tslm.errors import NumberError, ShapeError
from tslm.tensors import TensorTrain, decompose_train
from tslm.tensors.train import maximum_train_rank

shapes = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)


def draw(seed: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@settings(max_examples=30)
@given(shapes, st.integers(0, 2**31), st.sampled_from([torch.float32, torch.float64]))
def test_exact_without_a_limit(shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> None:
    tensor = draw(seed, shape, dtype)
    train = decompose_train(tensor)
    assert train.relative_error <= 50 * torch.finfo(dtype).eps
    assert train.error <= train.bound
    assert max((1, *train.form.ranks)) <= maximum_train_rank(shape)
    torch.testing.assert_close(train.form.to_network().contract(), train.to_tensor(), rtol=1e-4, atol=1e-4)


@settings(max_examples=30)
@given(shapes, st.integers(0, 2**31), st.data())
def test_error_never_above_its_bound_and_equal_to_the_discarded_part(
    shape: tuple[int, ...], seed: int, data: st.DataObject
) -> None:
    tensor = draw(seed, shape)
    train = decompose_train(tensor, rank=data.draw(st.integers(1, maximum_train_rank(shape))))
    assert train.error <= train.bound
    assert train.bound <= train.error + 1e-11 * train.norm  # the bound is an equality but for rounding
    assert train.error == pytest.approx(float((tensor - train.to_tensor()).norm()), abs=1e-12)


@settings(max_examples=30)
@given(shapes, st.integers(0, 2**31), st.floats(0, 0.9))
def test_tolerance_is_kept(shape: tuple[int, ...], seed: int, tolerance: float) -> None:
    train = decompose_train(draw(seed, shape), tolerance=tolerance)
    assert train.relative_error <= tolerance + 1e-13


def test_matrix_case_is_the_best_of_its_rank() -> None:
    matrix = draw(0, (7, 60))
    singular = torch.linalg.svdvals(matrix)
    for rank in range(1, 8):
        best = float(singular[rank:].norm())
        assert decompose_train(matrix, rank=rank).error == pytest.approx(best, abs=1e-12)


def test_small_singular_values_are_found_in_wide_matrices() -> None:
    rows = torch.linalg.qr(draw(1, (6, 6)))[0]
    columns = torch.linalg.qr(draw(2, (30_000, 6)))[0]
    scale = torch.tensor([1.0, 1e-3, 1e-6, 1e-9, 1e-11, 1e-13], dtype=torch.float64)
    train = decompose_train((rows * scale) @ columns.T, tolerance=5e-12)
    assert train.form.ranks == (5,)
    assert train.relative_error == pytest.approx(1e-13, rel=0.05)


def test_against_tensorly() -> None:
    tensorly = pytest.importorskip("tensorly")
    from tensorly.decomposition import tensor_train

    tensor = draw(3, (4, 5, 6, 3))
    ours = decompose_train(tensor, rank=[2, 4, 3])
    theirs = tensor_train(tensor.numpy(), [1, 2, 4, 3, 1])
    assert [tuple(core.shape) for core in ours.form.cores] == [tuple(core.shape) for core in theirs.factors]
    their_error = float(np.linalg.norm(tensorly.tt_to_tensor(theirs) - tensor.numpy()))
    assert ours.error <= 1.05 * their_error  # the order of the cuts differs, so the results differ a little
    cores = [core.numpy() for core in ours.form.cores]
    np.testing.assert_allclose(tensorly.tt_to_tensor(cores), ours.to_tensor().numpy(), rtol=1e-10, atol=1e-12)


def test_entries_without_the_tensor() -> None:
    train = decompose_train(draw(4, (3, 4, 5)), rank=3).form
    indices = torch.tensor([[0, 0, 0], [2, 3, 4], [1, 2, 0]])
    torch.testing.assert_close(train.evaluate(indices), train.to_tensor()[tuple(indices.T)])


def test_special_tensors() -> None:
    zero = decompose_train(torch.zeros(3, 4, 5))
    assert zero.error == 0
    assert zero.form.ranks == (1, 1)
    counts = decompose_train(torch.arange(24).reshape(2, 3, 4))
    assert counts.to_tensor().dtype == torch.float64
    assert counts.form.ranks == (2, 2)
    assert decompose_train(torch.ones(4, 4).half()).to_tensor().dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rank": 0}, ["rank 0", "(3×4×5)", "1 to 5"]),
        ({"rank": 6}, ["rank 6", "1 to 5"]),
        ({"rank": 2, "tolerance": 0.1}, ["rank 2", "tolerance 0.1"]),
        ({"tolerance": 1.0}, ["tolerance 1.0"]),
        ({"tolerance": -0.1}, ["tolerance -0.1"]),
        ({"rank": [4, 5]}, ["rank 4", "1 to 3"]),
    ],
)
def test_numbers_out_of_range(arguments: dict[str, float], words: list[str]) -> None:
    with pytest.raises(NumberError) as caught:
        decompose_train(torch.ones(3, 4, 5), **arguments)
    for word in words:
        assert word in str(caught.value)


def test_bad_tensors_and_trains() -> None:
    with pytest.raises(NumberError, match=r"inf at \(0, 1\)"):
        decompose_train(torch.tensor([[1.0, torch.inf]]))
    with pytest.raises(ShapeError, match="scalar"):
        decompose_train(torch.tensor(1.0))
    with pytest.raises(ShapeError, match=r"\(2×0\)"):
        decompose_train(torch.ones(2, 0))
    with pytest.raises(ShapeError, match="2 ranks"):
        decompose_train(torch.ones(2, 2), rank=[1, 1])
    with pytest.raises(ShapeError, match=r"core 1 is \(2×3×1\), but the bond before it has size 4"):
        TensorTrain((torch.ones(1, 3, 4), torch.ones(2, 3, 1)))
    with pytest.raises(ShapeError, match="three modes"):
        TensorTrain((torch.ones(3, 4),))
    with pytest.raises(ShapeError, match="last bond"):
        TensorTrain((torch.ones(1, 3, 4),))
