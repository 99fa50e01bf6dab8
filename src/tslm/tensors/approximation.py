"""A tensor in a compact form, with the error that was made and the bound that was promised."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from tslm.errors import NumberError, ShapeError
from tslm.tensors.algebra import check_finite, read_entries, show, show_shape

BLOCK_ENTRIES = 2**23
"""Entries of the blocks in which errors are measured, so that no second full tensor is needed."""


@runtime_checkable
class TensorForm(Protocol):
    """A compact form of a tensor."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the full tensor."""
        ...

    @property
    def parameter_count(self) -> int:
        """Numbers stored."""
        ...

    def to_tensor(self, first: slice = ...) -> Shaped[Tensor, "..."]:
        """Return the full tensor, or only the part with the first mode in ``first``."""
        ...


FormT = TypeVar("FormT", bound=TensorForm)


@dataclass(frozen=True)
class Approximation(Generic[FormT]):
    """A form with what is known of its distance to the tensor it stands for (Frobenius norm throughout)."""

    form: FormT
    error: float
    """The true distance ‖T − T̂‖, measured entry by entry."""
    bound: float | None
    """A proven upper limit of the error, known without T̂; None for forms found by descent, which have none."""
    norm: float
    """‖T‖."""

    @property
    def relative_error(self) -> float:
        """‖T − T̂‖ / ‖T‖, or the error itself for T = 0."""
        return self.error / self.norm if self.norm else self.error

    @property
    def parameter_count(self) -> int:
        """Numbers stored by the form."""
        return self.form.parameter_count

    def to_tensor(self) -> Shaped[Tensor, "..."]:
        """Return T̂."""
        return self.form.to_tensor()


def reconstruct(approximation: Approximation[FormT] | TensorForm) -> Shaped[Tensor, "..."]:
    """Eq. 16. Return the full tensor of a decomposition: the inverse of ``decompose``."""
    return approximation.to_tensor()


def measure_error(tensor: Shaped[Tensor, "..."], form: TensorForm) -> float:
    """Return ‖T − T̂‖, block by block over the first mode.

    Raises:
        ShapeError: the shapes differ.
    """
    if tuple(tensor.shape) != form.shape:
        raise ShapeError(f"the tensor is {show(tensor)}, its form stands for {show_shape(form.shape)}")
    rows = max(1, BLOCK_ENTRIES // max(1, math.prod(form.shape[1:])))
    blocks = [slice(start, start + rows) for start in range(0, form.shape[0], rows)]
    return math.hypot(*[measure_norm(tensor[block] - form.to_tensor(block)) for block in blocks])


def measure_norm(tensor: Shaped[Tensor, "..."]) -> float:
    """Return ‖T‖, summed in float64 block by block; entries of 1e±200, whose squares are no numbers, do no harm."""
    norms: list[float] = []
    for block in tensor.reshape(-1).split(BLOCK_ENTRIES):
        top = largest_entry(block) or 1.0
        norms.append(top * float((widen(block) / top).abs().square().sum().sqrt()))
    return math.hypot(*norms)


def largest_entry(tensor: Shaped[Tensor, "..."]) -> float:
    """Return the largest absolute value, up to √2 of it for complex entries, without a copy."""
    if tensor.numel() == 0:
        return 0.0
    low, high = torch.aminmax(torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor)
    return max(abs(float(low)), abs(float(high)))


def widen(tensor: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Return a tensor in double precision, real or complex as it is."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def prepare_tensor(tensor: Shaped[Tensor | np.ndarray, "..."]) -> tuple[Shaped[Tensor, "..."], float]:
    """Return a tensor fit for decomposition and the power of two it was divided by.

    Whole numbers become float64, short floats float32. The divisor is 1 unless squares of the entries would leave
    the range of numbers.

    Raises:
        ShapeError: it has no mode or a mode of size 0, or its entries are no numbers.
        NumberError: an entry is NaN or infinite, or the norm is beyond the range of its dtype.
    """
    tensor = read_entries(tensor, "the tensor to decompose").detach()
    if tensor.ndim == 0 or tensor.numel() == 0:
        raise ShapeError(
            f"cannot decompose a tensor {show(tensor)}; expected at least one mode, each of size ≥ 1"
        )
    check_finite(tensor, "the tensor to decompose")
    if tensor.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        short = torch.complex64 if tensor.is_complex() else torch.float32
        tensor = tensor.to(
            torch.float64 if not tensor.is_floating_point() and not tensor.is_complex() else short
        )
    top, numbers = largest_entry(tensor), torch.finfo(tensor.dtype)
    if top == 0 or 1e8 * math.sqrt(numbers.tiny) < top < 1e-8 * math.sqrt(numbers.max):
        return tensor, 1.0
    scale = 2.0 ** (math.frexp(top)[1] - 1)
    tensor = (widen(tensor) / scale).to(tensor.dtype)
    norm = measure_norm(tensor)
    if norm > numbers.max / scale:
        raise NumberError(
            f"the tensor {show(tensor)} has entries up to {top:.3g}: its norm is beyond {tensor.dtype}; "
            f"divide it by {scale:.3g} and multiply the result"
        )
    return tensor, scale


def check_rank(rank: int | None, tolerance: float | None, maximum: int, shape: tuple[int, ...]) -> None:
    """Refuse a rank below 1 or above what the shape can use, a bad tolerance, or both given.

    Raises:
        NumberError: as said, with the rank that was given and the maximum.
    """
    if rank is not None and tolerance is not None:
        raise NumberError(f"both rank {rank} and tolerance {tolerance} were given; give one of them")
    if rank is not None and not 1 <= rank <= maximum:
        raise NumberError(
            f"rank {rank} for a tensor {show_shape(shape)}; expected 1 to {maximum}, where it is exact"
        )
    if tolerance is not None and not 0 <= tolerance < 1:
        raise NumberError(f"tolerance {tolerance}; expected a relative error from 0 up to, not including, 1")


def round_off(tensor: Shaped[Tensor, "..."], norm: float) -> float:
    """Return what rounding alone may add to an error, as every bound must allow for it."""
    longest = max(tensor.shape)
    return torch.finfo(tensor.dtype).eps * norm * 8 * tensor.ndim * math.sqrt(longest)
