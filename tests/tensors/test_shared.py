"""One W and one U for all levels."""

from __future__ import annotations

import pytest
import torch

from tslm.errors import NumberError, ShapeError
from tslm.tensors import SharedDecomposition, decompose, fit_shared, share


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("size", "order"), [(3, 1), (4, 2), (3, 3), (2, 5)])
def test_every_tensor_has_a_shared_form_of_the_summed_rank(size: int, order: int) -> None:
    tensor = draw(order, *[size] * order)
    levels = decompose(tensor).form
    form = share(levels)
    assert len(form.U) == sum(levels.ranks)
    torch.testing.assert_close(form.to_tensor(), tensor, rtol=1e-11, atol=1e-11)


def test_a_tensor_that_is_shared_is_fitted_to_nothing() -> None:
    made = SharedDecomposition(draw(0, 2), draw(1, 2, 2), draw(2, 2, 3), 3)
    fit = fit_shared(made.to_tensor(), rank=2, steps=150, restarts=3)
    assert fit.relative_error < 1e-6
    assert fit.bound is None
    assert fit.parameter_count == 2 + 4 + 6


def test_a_tensor_that_is_not_leaves_a_residual_that_shrinks_with_rank() -> None:
    tensor = draw(3, 3, 3, 3)
    errors = [fit_shared(tensor, rank=rank, steps=60, restarts=2).relative_error for rank in (1, 2, 3)]
    assert 1 > errors[0] > errors[1] > errors[2] > 0.01  # 3² + 3·4 = 21 numbers cannot meet 27 entries
    assert errors[1] == fit_shared(tensor, rank=2, steps=60, restarts=2).relative_error


def test_unrolled_is_the_same_tensor() -> None:
    made = SharedDecomposition(draw(0, 2), draw(1, 2, 2), draw(2, 2, 3), 4)
    torch.testing.assert_close(made.unroll().to_tensor(), made.to_tensor())
    assert made.shape == (3, 3, 3, 3)


def test_bad_input() -> None:
    with pytest.raises(ShapeError, match=r"modes of one size; the tensor is \(2×3\)"):
        fit_shared(torch.ones(2, 3), rank=1)
    with pytest.raises(ShapeError, match=r"modes of one size; the tensor is \(2×3\)"):
        share(decompose(torch.ones(2, 3)).form)
    with pytest.raises(NumberError, match="rank 0"):
        fit_shared(torch.ones(2, 2), rank=0)
    with pytest.raises(ShapeError, match=r"W must be \(2×2\), not \(3×3\)"):
        SharedDecomposition(torch.ones(2), torch.ones(3, 3), torch.ones(2, 4), 3)
    with pytest.raises(ShapeError, match="order 0"):
        SharedDecomposition(torch.ones(2), torch.ones(2, 2), torch.ones(2, 4), 0)
