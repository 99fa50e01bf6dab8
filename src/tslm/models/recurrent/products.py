"""Matrix products of a recurrence, in the precision that training asks for: single, or bfloat16 under autocast.

In bfloat16 the numbers that are multiplied have 8 significant bits; they are summed in single precision, and all that
lies between two products stays in single precision. Processors with instructions for it are about twice as fast.

In single precision, PyTorch multiplies by MKL, which leaves AVX-512 unused on processors that are not Intel's. oneDNN,
which PyTorch brings too, does not, and is twice as fast there: :func:`multiply` takes it where that is so.
"""

from __future__ import annotations

import platform
import time
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

FEWEST_ROWS = 32
"""For fewer, calling oneDNN costs more than it saves."""


def linear(
    x_NM: Float[Tensor, "*N M"], W_RM: Float[Tensor, "R M"], b_R: Float[Tensor, " R"] | None = None
) -> Float[Tensor, "*N R"]:
    """Return W x + b, in the precision of x whatever it was multiplied in."""
    if by_onednn(x_NM):
        return _Linear.apply(x_NM, W_RM, b_R)  # pyright: ignore[reportReturnType]
    return F.linear(x_NM, W_RM, b_R).to(x_NM.dtype)


def multiply(
    x_NM: Float[Tensor, "*N M"],
    W_RM: Float[Tensor, "R M"],
    b_R: Float[Tensor, " R"] | None = None,
    *,
    memory_NR: Float[Tensor, "N R"] | None = None,
) -> Float[Tensor, "*N R"]:
    """Return W x + b, by what multiplies faster; no gradient flows back.

    Args:
        x_NM: a row for each product.
        W_RM: the matrix.
        b_R: what is added to each row.
        memory_NR: where the result may be written: fresh memory costs time. oneDNN takes fresh memory all the same.
    """
    if by_onednn(x_NM):
        return torch.ops.mkldnn._linear_pointwise(x_NM, W_RM, b_R, "none", [], "")
    if memory_NR is None:
        return F.linear(x_NM, W_RM, b_R)
    if b_R is None:
        return torch.mm(x_NM, W_RM.t(), out=memory_NR)
    return torch.addmm(b_R, x_NM, W_RM.t(), out=memory_NR)


def by_onednn(x_NM: Float[Tensor, "*N M"]) -> bool:
    """Return whether rows are multiplied by oneDNN."""
    return (
        x_NM.dtype == torch.float32
        and x_NM.device.type == "cpu"
        and x_NM.numel() >= FEWEST_ROWS * x_NM.shape[-1]
        and has_slow_mkl()
        and not in_bfloat16(x_NM)
    )


@cache
def has_slow_mkl() -> bool:
    """Return whether PyTorch's products in single precision leave AVX-512 unused, and oneDNN's can be called."""
    return (
        torch.backends.mkl.is_available()
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and "AuthenticAMD" in _read_processor()
    )


def _read_processor() -> str:
    """Return what the system says of the processor."""
    described = Path("/proc/cpuinfo")
    return described.read_text(encoding="utf-8") if described.exists() else platform.processor()


class _Linear(torch.autograd.Function):
    """W x + b and its gradients, by :func:`multiply`."""

    @staticmethod
    def forward(ctx: Any, x_NM: Tensor, W_RM: Tensor, b_R: Tensor | None) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x_NM, W_RM)
        return multiply(x_NM, W_RM, b_R)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient_NR: Tensor
    ) -> tuple[Tensor | None, ...]:
        x_NM, W_RM = ctx.saved_tensors
        wants_x, wants_W, wants_b = ctx.needs_input_grad
        rows_NR = gradient_NR.flatten(0, -2)
        return (
            multiply(gradient_NR, W_RM.t()) if wants_x else None,
            multiply(rows_NR.t(), x_NM.flatten(0, -2).t()) if wants_W else None,
            rows_NR.sum(0) if wants_b else None,
        )


def in_bfloat16(like: Tensor) -> bool:
    """Return whether products are asked for in bfloat16 where a tensor is."""
    device = like.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def single_precision(like: Tensor) -> AbstractContextManager[object]:
    """Return a context in which products are not lowered: PyTorch's own recurrent kernels take one precision only."""
    return torch.autocast(like.device.type, enabled=False) if in_bfloat16(like) else nullcontext()


@cache
def bfloat16_speed() -> float:
    """Return how fast this processor multiplies in bfloat16, in multiples of single precision: measured, in some ms."""
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    for dtype in best:
        left_NR, right_RR = torch.ones(256, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
        for _ in range(6):
            start = time.perf_counter()
            torch.mm(left_NR, right_RR)
            best[dtype] = min(best[dtype], time.perf_counter() - start)
    return best[torch.float32] / best[torch.bfloat16]


class Product:
    """Products of many small matrices x_BR, one after the other, with one and the same matrix.

    Args:
        matrix_RS: the matrix; copied once, since products with a transposed view run at two thirds of the speed.
        rows: B.
        low: whether to multiply in bfloat16.
    """

    def __init__(self, matrix_RS: Float[Tensor, "R S"], rows: int, *, low: bool) -> None:
        R, S = matrix_RS.shape
        self.low = low
        self.matrix_RS = matrix_RS.to(torch.bfloat16 if low else matrix_RS.dtype).contiguous()
        self.given_BR = self.matrix_RS.new_empty(rows, R) if low else None
        self.made_BS = self.matrix_RS.new_empty(rows, S) if low else None

    def put(self, x_BR: Float[Tensor, "B R"], out_BS: Float[Tensor, "B S"]) -> None:
        """Set ``out_BS`` to the product."""
        if self.given_BR is None or self.made_BS is None:
            torch.mm(x_BR, self.matrix_RS, out=out_BS)
        else:
            out_BS.copy_(torch.mm(self.given_BR.copy_(x_BR), self.matrix_RS, out=self.made_BS))

    def add(self, x_BR: Float[Tensor, "B R"], out_BS: Float[Tensor, "B S"]) -> None:
        """Add the product to ``out_BS``."""
        if self.given_BR is None or self.made_BS is None:
            out_BS.addmm_(x_BR, self.matrix_RS)
        else:
            out_BS.add_(torch.mm(self.given_BR.copy_(x_BR), self.matrix_RS, out=self.made_BS))


def outer_sum(
    left_NR: Float[Tensor, "N R"], right_NS: Float[Tensor, "N S"], *, low: bool
) -> Float[Tensor, "R S"]:
    """Return Σ_n left_n ⊗ right_n: the gradient of a weight, as one product."""
    if not low:
        return multiply(left_NR.t(), right_NS.t())
    return (left_NR.bfloat16().t() @ right_NS.bfloat16()).to(left_NR.dtype)
