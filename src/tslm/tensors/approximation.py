"""A tensor in a compact form, with the error that was made and the bound that was promised."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Shaped
from torch import Tensor

from tslm.errors import NumberError, ShapeError
from tslm.tensors.algebra import check_finite, show, show_shape

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
    squares = 0.0
    for start in range(0, form.shape[0], rows):
        block = slice(start, start + rows)
        squares += float((tensor[block] - form.to_tensor(block)).double().square().sum())
    return math.sqrt(squares)


def measure_norm(tensor: Shaped[Tensor, "..."]) -> float:
    """Return ‖T‖, summed in float64 block by block."""
    flat = tensor.reshape(-1)
    blocks = flat.split(BLOCK_ENTRIES)
    return math.sqrt(sum(float(block.double().square().sum()) for block in blocks))


def prepare_tensor(tensor: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Return a tensor fit for decomposition: real, finite, float32 or float64; counts become float64.

    Raises:
        ShapeError: it has no mode, a mode of size 0, or complex entries.
        NumberError: an entry is NaN or infinite.
    """
    if tensor.ndim == 0 or tensor.numel() == 0:
        raise ShapeError(
            f"cannot decompose a tensor {show(tensor)}; expected at least one mode, each of size ≥ 1"
        )
    if tensor.is_complex():
        raise ShapeError(
            f"cannot decompose a complex tensor {show(tensor)}; give its real and imaginary parts apart"
        )
    check_finite(tensor, "the tensor to decompose")
    tensor = tensor.detach()
    if tensor.dtype in (torch.float32, torch.float64):
        return tensor
    return tensor.to(torch.float32 if tensor.is_floating_point() else torch.float64)


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
