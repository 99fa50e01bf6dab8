"""Matrix products of a recurrence, in the precision that training asks for: single, or bfloat16 under autocast.

In bfloat16 the numbers that are multiplied have 8 significant bits; they are summed in single precision, and all that
lies between two products stays in single precision. Processors with instructions for it are about twice as fast.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


def linear(
    x_NM: Float[Tensor, "*N M"], W_RM: Float[Tensor, "R M"], b_R: Float[Tensor, " R"] | None = None
) -> Float[Tensor, "*N R"]:
    """Return W x + b, in the precision of x whatever it was multiplied in."""
    return F.linear(x_NM, W_RM, b_R).to(x_NM.dtype)


def in_bfloat16(like: Tensor) -> bool:
    """Return whether products are asked for in bfloat16 where a tensor is."""
    device = like.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def single_precision(like: Tensor) -> AbstractContextManager[object]:
    """Return a context in which products are not lowered: PyTorch's own recurrent kernels take one precision only."""
    return torch.autocast(like.device.type, enabled=False) if in_bfloat16(like) else nullcontext()


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
        return left_NR.t() @ right_NS
    return (left_NR.bfloat16().t() @ right_NS.bfloat16()).to(left_NR.dtype)
