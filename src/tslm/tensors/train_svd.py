"""Tensors to tensor trains by successive singular value decompositions (TT-SVD).

The error is not only bounded but known: each step projects what is left onto the span of the kept singular
vectors, the parts cut off are orthogonal to one another, and so ‖T − T̂‖² is the sum of the squares of all
discarded singular values. Cutting each bond to its best rank separately could not do better than the largest of
those sums, hence T̂ is at most √(n−1) times as far from T as the best train of the same ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from tslm.errors import ShapeError
from tslm.tensors.approximation import (
    Approximation,
    check_rank,
    measure_error,
    measure_norm,
    prepare_tensor,
    round_off,
)
from tslm.tensors.train import TensorTrain, bond_limit, maximum_train_rank


def decompose_train(
    tensor: Shaped[Tensor | np.ndarray, "..."],
    *,
    rank: int | Sequence[int] | None = None,
    tolerance: float | None = None,
) -> Approximation[TensorTrain]:
    """Return the tensor train of a tensor (TT-SVD), from both ends towards the middle.

    Args:
        tensor: any tensor, real or complex, or a NumPy array.
        rank: the largest bond, or one size per bond.
        tolerance: the relative error allowed. With neither, the train is exact to rounding.

    Example:
        >>> train = decompose_train(torch.rand(8, 8, 8), tolerance=0.1)
        >>> train.error <= train.bound and train.relative_error <= 0.1
        True

    Raises:
        NumberError: a rank below 1 or above the maximum, a tolerance out of range, a NaN or infinite entry.
    """
    scaled, scale = prepare_tensor(tensor)
    train, discarded, norm = split_train(scaled, rank=rank, tolerance=tolerance)
    error, bound = measure_error(scaled, train), discarded + round_off(scaled, norm)
    if scale != 1:
        train = TensorTrain((train.cores[0] * scale, *train.cores[1:]))
    return Approximation(train, error * scale, bound * scale, norm * scale)


def split_train(
    tensor: Shaped[Tensor, "..."], *, rank: int | Sequence[int] | None, tolerance: float | None
) -> tuple[TensorTrain, float, float]:
    """Return the train, the root of the sum of squares of all discarded singular values, and ‖T‖."""
    shape = tuple(tensor.shape)
    limits = _check_bonds(rank, tolerance, shape)
    norm = measure_norm(tensor)
    budget = (tolerance or 0.0) * norm / math.sqrt(max(1, len(shape) - 1))
    left: list[Tensor] = []
    right: list[Tensor] = []
    middle, before, after, squares = tensor, 1, 1, 0.0
    first, last = 0, len(shape) - 1
    while first < last:
        rows, columns = before * shape[first], shape[last] * after
        if rows <= columns:
            matrix = middle.reshape(rows, -1)
            basis, lost = _find_basis(matrix, limits[first], budget)
            left.append(basis.reshape(before, shape[first], -1))
            middle, before, first = basis.mH @ matrix, basis.shape[1], first + 1
        else:
            matrix = middle.reshape(-1, columns)
            basis, lost = _find_basis(matrix.mT, limits[last - 1], budget)
            right.append(basis.mT.reshape(-1, shape[last], after))
            middle, after, last = matrix @ basis.conj(), basis.shape[1], last - 1
        squares += lost**2
    centre = middle.reshape(before, shape[first], after)
    return TensorTrain((*left, centre, *reversed(right))), math.sqrt(squares), norm


def _find_basis(
    matrix: Shaped[Tensor, "P Q"], limit: int | None, budget: float
) -> tuple[Shaped[Tensor, "P R"], float]:
    """Return the leading left singular vectors of a wide matrix and the norm of what they leave out."""
    rows, columns = matrix.shape
    small = matrix if columns < 2 * rows else _reduce_columns(matrix)
    vectors, singular, _ = torch.linalg.svd(small, full_matrices=False)
    squares = singular.double().square()
    tails = squares.flip(0).cumsum(0).flip(0).sqrt()  # tails[r] is the norm cut off when r values are kept
    noise = torch.finfo(matrix.dtype).eps * rows * float(singular[0])
    kept = max(1, int((singular.double() > noise).sum()))
    if budget > 0:
        kept = max(1, min(kept, int((tails > budget).sum())))
    if limit is not None:
        kept = min(kept, limit)
    lost = float(tails[kept]) if kept < len(tails) else 0.0
    return vectors[:, :kept].contiguous(), lost


def _reduce_columns(matrix: Shaped[Tensor, "P Q"]) -> Shaped[Tensor, "P P"]:
    """Return a square matrix L with the left singular vectors and values of a wide one: A = L·Q.

    The rows of Q are orthonormal and never formed; blocks of columns are folded in one after the other, so the
    memory beside the matrix itself stays small. Unlike the eigenvectors of A·Aᴴ this keeps small singular values exact.
    """
    rows, columns = matrix.shape
    width = max(4 * rows, 4096)
    triangle = matrix.new_zeros(0, rows)
    for start in range(0, columns, width):
        stacked = torch.cat([triangle, matrix[:, start : start + width].mH])
        triangle = torch.linalg.qr(stacked, mode="r")[1]
    return triangle.mH


def _check_bonds(
    rank: int | Sequence[int] | None, tolerance: float | None, shape: tuple[int, ...]
) -> list[int | None]:
    """Return the limit of each bond."""
    bonds = len(shape) - 1
    if rank is None or isinstance(rank, int):
        check_rank(rank, tolerance, maximum_train_rank(shape), shape)
        return [rank] * bonds
    if len(rank) != bonds:
        raise ShapeError(
            f"{len(rank)} ranks {list(rank)} for a tensor of order {len(shape)}; expected {bonds}, one per bond"
        )
    for position, size in enumerate(rank, 1):
        check_rank(size, tolerance, bond_limit(shape, position), shape)
    return list(rank)
