"""Decompositions of what is not a plain real tensor: complex, NumPy, of 1e±200, on another device than the default."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tslm.errors import NumberError, ShapeError
from tslm.tensors import decompose, decompose_train, fit_shared, share
from tslm.tensors.approximation import measure_norm

METHODS: dict[str, Callable[..., Any]] = {"train": decompose_train, "recursive": decompose}


def draw(seed: int, *shape: int, dtype: torch.dtype = torch.complex128) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """Make new tensors on a device without entries: whatever does not follow its input then fails."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(5,), (4, 6), (3, 4, 5), (3, 2, 4, 3), (2, 3, 3, 2, 2)])
def test_complex_tensors_are_exact_without_a_limit(
    method: Callable[..., Any], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    tensor = draw(len(shape), *shape, dtype=dtype)
    exact = method(tensor)
    assert exact.to_tensor().dtype == dtype
    assert exact.relative_error <= 1e4 * torch.finfo(dtype).eps
    assert exact.error <= exact.bound
    assert exact.norm == pytest.approx(float(tensor.norm()), rel=1e-5)
    torch.testing.assert_close(exact.form.to_network().contract(), tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("seed", range(8))
def test_complex_errors_are_true_and_bounded(method: Callable[..., Any], seed: int) -> None:
    tensor = draw(seed, 3, 4, 3, 2)
    for rank in (1, 2, 4):
        cut = method(tensor, rank=rank)
        assert max(cut.form.ranks) <= rank
        assert cut.error == pytest.approx(float((tensor - cut.to_tensor()).norm()), rel=1e-9)
        assert cut.error <= cut.bound
        assert cut.relative_error < 1
    assert method(tensor, tolerance=0.3).relative_error <= 0.3


def test_a_complex_recursion_is_found_at_its_own_rank() -> None:
    made = share(decompose(draw(0, 3, 3, 3)).form)
    torch.testing.assert_close(made.to_tensor(), draw(0, 3, 3, 3), rtol=1e-9, atol=1e-9)
    W, U, weights = draw(1, 3, 3), draw(2, 3, 4), draw(3, 3)
    tensor = torch.einsum("i,ia,ij,jb,jk,kc->cba", weights, U, W, U, W, U)
    found = decompose(tensor)
    assert found.form.ranks == (3, 3, 3)
    assert found.relative_error < 1e-10
    matrix = draw(4, 5, 9)
    singular = torch.linalg.svdvals(matrix)
    torch.testing.assert_close(decompose(matrix, rank=3).form.weights.real, singular[:3])


def test_a_complex_shared_form_is_fitted() -> None:
    W, U, weights = draw(1, 2, 2), draw(2, 2, 3), draw(3, 2)
    tensor = torch.einsum("i,ia,ij,jb->ba", weights, U, W, U)
    assert fit_shared(tensor, rank=2, steps=150).relative_error < 1e-5


@pytest.mark.parametrize("method", [*METHODS.values(), lambda tensor: fit_shared(tensor, rank=2, steps=20)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("power", [-300, -200, 200, 300])
def test_entries_of_any_size(method: Callable[..., Any], dtype: torch.dtype, power: int) -> None:
    """Squares of such entries are no numbers: norms were 0, and singular values failed inside torch."""
    tensor = draw(5, 3, 3, 3, dtype=dtype)
    plain, scaled = method(tensor), method(tensor * 10.0**power)
    assert scaled.relative_error == pytest.approx(plain.relative_error, abs=1e-9)
    assert scaled.norm == pytest.approx(plain.norm * 10.0**power)
    assert scaled.error == pytest.approx(plain.error * 10.0**power, abs=1e-12 * plain.norm * 10.0**power)
    torch.testing.assert_close(scaled.to_tensor() / 10.0**power, plain.to_tensor(), rtol=1e-7, atol=1e-7)
    assert measure_norm(torch.full((100,), 10.0**power, dtype=dtype)) == pytest.approx(10.0 ** (power + 1))


def test_a_norm_beyond_all_numbers_is_refused() -> None:
    for dtype in (torch.float32, torch.float64):
        top = torch.finfo(dtype).max / 2
        with pytest.raises(NumberError, match="its norm is beyond"):
            decompose_train(torch.full((10, 10), top, dtype=dtype))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_numpy_arrays_and_truth_values(method: Callable[..., Any]) -> None:
    array = np.random.default_rng(0).standard_normal((3, 4, 5))
    np.testing.assert_allclose(method(array).to_tensor().numpy(), array, atol=1e-9)
    truth = array > 0
    np.testing.assert_allclose(method(truth).to_tensor().numpy(), truth, atol=1e-9)
    assert fit_shared(array[:, :3, :3], rank=1, steps=5).relative_error < 1
    with pytest.raises(ShapeError, match="array of <U1"):
        method(np.array(["a"]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.usefixtures("elsewhere")
def test_results_stay_on_the_device_of_the_tensor(dtype: torch.dtype) -> None:
    tensor = torch.randn(3, 3, 3, dtype=dtype, device="cpu", generator=torch.Generator("cpu").manual_seed(0))
    for found in (
        decompose_train(tensor, rank=2),
        decompose(tensor, rank=2),
        decompose(tensor),
        fit_shared(tensor, rank=2, steps=5),
    ):
        assert found.to_tensor().device.type == "cpu"
        assert math.isfinite(found.error)
    assert share(decompose(tensor).form).to_tensor().device.type == "cpu"
