"""Tensors as the paper's Preliminaries define them: ⊗, ⟨·,·⟩, rank one, δ, contraction, matricisation.

All functions take torch tensors of any numeric dtype and are differentiable; ``read_entries`` makes tensors of NumPy
arrays. Products are bilinear: nothing is conjugated. Where ``batch`` is given, that many leading modes are shared by
all arguments and kept; they count neither as modes nor in mode numbers, so mode 0 is the first mode after them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from tslm.errors import NumberError, ShapeError, SizeLimitError


def tensor_product(*tensors: Shaped[Tensor, "..."], batch: int = 0) -> Shaped[Tensor, "..."]:
    """Return A ⊗ B ⊗ …, whose entries are all products of entries and whose order is the sum of orders.

    Example:
        >>> tensor_product(torch.ones(2, 3), torch.ones(4)).shape
        torch.Size([2, 3, 4])

    Raises:
        ShapeError: no tensor was given, or the ``batch`` leading modes differ.
    """
    if not tensors:
        raise ShapeError("the tensor product of nothing was asked for; give at least one tensor")
    shared = _check_batch(batch, *tensors)
    product = tensors[0]
    for factor in tensors[1:]:
        left, right = product.shape[batch:], factor.shape[batch:]
        product = product.reshape([*product.shape, *[1] * len(right)]) * factor.reshape(
            [*shared, *[1] * len(left), *right]
        )
    return product


def rank_one(vectors: Sequence[Shaped[Tensor, "..."]], *, batch: int = 0) -> Shaped[Tensor, "..."]:
    """Eqs. 1, 2. Return α₁ ⊗ α₂ ⊗ … ⊗ αₙ, the rank-one tensor with entries α₁[d₁]·α₂[d₂]⋯αₙ[dₙ].

    Raises:
        ShapeError: an argument is not a vector (after its ``batch`` leading modes).
    """
    for position, vector in enumerate(vectors):
        if vector.ndim != batch + 1:
            raise ShapeError(
                f"factor {position} of a rank-one tensor has shape {show(vector)}; expected a vector"
                + (f" after {batch} batch modes" if batch else "")
            )
    return tensor_product(*vectors, batch=batch)


def delta(
    order: int, size: int, *, dtype: torch.dtype | None = None, device: torch.device | None = None
) -> Shaped[Tensor, "..."]:
    """Eq. 3. Return the δ-tensor: ones on the super-diagonal, zeros elsewhere.

    Contracting it with vectors multiplies them element by element, which is what makes the recursion of Eq. 19.

    Raises:
        ShapeError: ``order`` or ``size`` is below 1.
    """
    if order < 1 or size < 1:
        raise ShapeError(
            f"a δ-tensor of order {order} and size {size} was asked for; both must be at least 1"
        )
    ones = torch.zeros(size**order, dtype=dtype, device=device)
    # Entry (d, …, d) stands at d·(1 + size + size² + …) in the flat tensor.
    ones[:: sum(size**power for power in range(order))] = 1
    return ones.reshape([size] * order)


def inner_product(
    left: Shaped[Tensor, "..."], right: Shaped[Tensor, "..."], *, batch: int = 0
) -> Shaped[Tensor, "..."]:
    """Return ⟨A, B⟩, the sum of the products of all entries (Figure 1 d).

    Raises:
        ShapeError: the shapes differ.
    """
    if left.shape != right.shape:
        raise ShapeError(f"⟨A, B⟩ needs equal shapes: A is {show(left)}, B is {show(right)}")
    shared = _check_batch(batch, left, right)
    return (left.reshape(*shared, 1, -1) @ right.reshape(*shared, -1, 1)).reshape(shared)


def contract_mode(
    tensor: Shaped[Tensor, "..."], matrix: Shaped[Tensor, "..."], mode: int, *, batch: int = 0
) -> Shaped[Tensor, "..."]:
    """Return the mode product: mode ``mode`` of the tensor is contracted with the last mode of the matrix.

    A matrix (P × m) puts a mode of size P in the place of the mode of size m; a vector (m) removes the mode.

    Example:
        >>> contract_mode(torch.ones(2, 3, 4), torch.ones(5, 3), 1).shape
        torch.Size([2, 5, 4])

    Raises:
        ShapeError: the mode does not exist or the sizes differ.
    """
    _check_batch(batch, tensor, matrix)
    place = _check_mode(mode, tensor.ndim - batch, "the tensor", tensor) + batch
    if matrix.ndim - batch not in (1, 2):
        raise ShapeError(f"mode product with shape {show(matrix)}; expected a vector or a matrix")
    if matrix.shape[-1] != tensor.shape[place]:
        raise ShapeError(
            f"mode {mode} of the tensor {show(tensor)} has size {tensor.shape[place]}, but the last mode of "
            f"{show(matrix)} has size {matrix.shape[-1]}"
        )
    if matrix.ndim - batch == 1:
        return contract(tensor, matrix, [(mode, 0)], batch=batch)
    return contract(tensor, matrix, [(mode, 1)], batch=batch).movedim(-1, place)


def contract(
    left: Shaped[Tensor, "..."],
    right: Shaped[Tensor, "..."],
    pairs: Sequence[tuple[int, int]],
    *,
    batch: int = 0,
) -> Shaped[Tensor, "..."]:
    """Return A and B contracted over pairs of modes; the open modes of A come first, then those of B.

    No pairs give the tensor product, all pairs of equal tensors the inner product.

    Raises:
        ShapeError: a mode does not exist, is named twice, or the two sizes of a pair differ.
    """
    shared = _check_batch(batch, left, right)
    left_modes = [_check_mode(mode, left.ndim - batch, "A", left) for mode, _ in pairs]
    right_modes = [_check_mode(mode, right.ndim - batch, "B", right) for _, mode in pairs]
    for name, modes, tensor in (("A", left_modes, left), ("B", right_modes, right)):
        if len(set(modes)) < len(modes):
            raise ShapeError(f"a mode of {name} {show(tensor)} is contracted twice in pairs {list(pairs)}")
    for i, j in zip(left_modes, right_modes, strict=True):
        if left.shape[batch + i] != right.shape[batch + j]:
            raise ShapeError(
                f"mode {i} of A {show(left)} has size {left.shape[batch + i]}, "
                f"but mode {j} of B {show(right)} has size {right.shape[batch + j]}"
            )
    left_open = [mode for mode in range(left.ndim - batch) if mode not in left_modes]
    right_open = [mode for mode in range(right.ndim - batch) if mode not in right_modes]
    left_sizes = [left.shape[batch + mode] for mode in left_open]
    right_sizes = [right.shape[batch + mode] for mode in right_open]
    kept = list(range(batch))
    summed = math.prod(left.shape[batch + mode] for mode in left_modes)
    left_matrix = left.permute(kept + [batch + mode for mode in left_open + left_modes])
    right_matrix = right.permute(kept + [batch + mode for mode in right_modes + right_open])
    product = left_matrix.reshape(*shared, math.prod(left_sizes), summed) @ right_matrix.reshape(
        *shared, summed, math.prod(right_sizes)
    )
    return product.reshape([*shared, *left_sizes, *right_sizes])


def matricise(
    tensor: Shaped[Tensor, "..."], rows: int | Sequence[int], *, batch: int = 0
) -> Shaped[Tensor, "..."]:
    """Return the tensor as a matrix: the modes in ``rows`` number its rows, all others its columns, in order.

    Raises:
        ShapeError: a mode does not exist or is named twice.
    """
    row_modes, column_modes = _split_modes(rows, tensor.ndim - batch, tensor)
    shared = _check_batch(batch, tensor)
    order = list(range(batch)) + [batch + mode for mode in row_modes + column_modes]
    count = math.prod(tensor.shape[batch + mode] for mode in row_modes)
    columns = math.prod(tensor.shape[batch + mode] for mode in column_modes)
    return tensor.permute(order).reshape(*shared, count, columns)


def tensorise(
    matrix: Shaped[Tensor, "..."], rows: int | Sequence[int], shape: Sequence[int], *, batch: int = 0
) -> Shaped[Tensor, "..."]:
    """Undo ``matricise``: return the tensor of the given shape (without batch modes) from its matrix.

    Raises:
        ShapeError: the matrix does not hold as many rows and columns as the shape asks for.
    """
    shared = _check_batch(batch, matrix)
    row_modes, column_modes = _split_modes(rows, len(shape), matrix)
    modes = row_modes + column_modes
    expected = (math.prod(shape[m] for m in row_modes), math.prod(shape[m] for m in column_modes))
    if tuple(matrix.shape[batch:]) != expected:
        raise ShapeError(
            f"a matrix {show(matrix)} cannot become a tensor {show_shape(shape)} with rows {row_modes}; "
            f"expected a matrix {show_shape(expected)}"
        )
    grouped = matrix.reshape([*shared, *[shape[mode] for mode in modes]])
    back = [batch + modes.index(mode) for mode in range(len(shape))]
    return grouped.permute([*range(batch), *back])


def read_entries(entries: Any, what: str) -> Shaped[Tensor, "..."]:
    """Return a tensor from a tensor or a NumPy array; truth values become whole numbers, so that sums count them.

    Example:
        >>> read_entries(np.array([True, False]), "a vector")
        tensor([1, 0])

    Raises:
        ShapeError: it is neither, or an array of something other than numbers.
    """
    if isinstance(entries, np.ndarray | np.generic):
        kind = entries.dtype
        if kind.kind not in "biufc":
            raise ShapeError(f"{what} is an array of {kind}; expected numbers")
        # Torch takes neither foreign byte orders nor negative strides, nor wider floats than its own.
        wide = (
            {"f": np.float64, "c": np.complex128}.get(kind.kind)
            if kind.itemsize > 16 or kind == np.longdouble
            else None
        )
        entries = torch.as_tensor(np.array(entries, dtype=wide or kind.newbyteorder("="), order="C"))
    if not isinstance(entries, Tensor):
        raise ShapeError(f"{what} is a {type(entries).__name__}; expected a torch tensor or a NumPy array")
    return entries.to(torch.int64) if entries.dtype == torch.bool else entries


def check_size(shape: Sequence[int], dtype: torch.dtype, limit: int, what: str, instead: str) -> None:
    """Refuse to build a tensor of more than ``limit`` bytes, naming the memory it would take.

    Raises:
        SizeLimitError: it is larger; the message ends with what to do ``instead``.
    """
    needed = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
    if needed > limit:
        raise SizeLimitError(
            f"{what} of shape {show_shape(shape)} would take {show_bytes(needed)}, "
            f"above the limit of {show_bytes(limit)}; {instead}"
        )


def check_finite(tensor: Shaped[Tensor, "..."], what: str) -> None:
    """Refuse NaN and infinite entries, naming the first.

    Raises:
        NumberError: there is one.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
        return
    # The sum is finite whenever all entries are, save for overflow, and costs no array of booleans.
    if bool(torch.isfinite(tensor.detach().sum())) or bool(torch.isfinite(tensor.detach()).all()):
        return
    first = (~torch.isfinite(tensor.detach())).nonzero()[0].tolist()
    value = tensor.detach()[tuple(first)].item()
    raise NumberError(
        f"{what} has a non-finite entry: {value} at {tuple(first)} of {show(tensor)}; expected numbers"
    )


def show(tensor: Shaped[Tensor, "..."]) -> str:
    """Return the shape of a tensor for messages: ``(2×3×4)``."""
    return show_shape(tensor.shape)


def show_shape(shape: Sequence[int]) -> str:
    """Return a shape for messages: ``(2×3×4)``; long ones are shortened in the middle."""
    sizes = [str(size) for size in shape]
    if len(sizes) > 8:
        sizes = [*sizes[:3], f"… {len(sizes)} modes …", *sizes[-3:]]
    return f"({'×'.join(sizes)})" if sizes else "(scalar)"


def show_bytes(count: int) -> str:
    """Return a number of bytes for messages: ``3.7 GiB``."""
    if count.bit_length() > 1000:
        return f"2^{count.bit_length() - 1} bytes"
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    if size >= 10_000:
        return f"{size:.1e} {unit}"
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def _check_batch(batch: int, *tensors: Tensor) -> torch.Size:
    """Return the shape of the shared batch modes."""
    first = tensors[0]
    for tensor in tensors:
        if tensor.ndim < batch or tensor.shape[:batch] != first.shape[:batch]:
            raise ShapeError(
                f"the first {batch} modes must be a shared batch: {show(first)} and {show(tensor)}"
            )
    return first.shape[:batch]


def _check_mode(mode: int, order: int, name: str, tensor: Tensor) -> int:
    """Return a mode number from 0 on, refusing one that does not exist."""
    if not -order <= mode < order:
        raise ShapeError(f"mode {mode} does not exist in {name} of order {order}, shape {show(tensor)}")
    return mode % order


def _split_modes(rows: int | Sequence[int], order: int, tensor: Tensor) -> tuple[list[int], list[int]]:
    """Return row modes and column modes."""
    asked = [rows] if isinstance(rows, int) else list(rows)
    row_modes = [_check_mode(mode, order, "the tensor", tensor) for mode in asked]
    if len(set(row_modes)) < len(row_modes):
        raise ShapeError(f"a mode is named twice in rows {asked} of a tensor {show(tensor)}")
    return row_modes, [mode for mode in range(order) if mode not in row_modes]
