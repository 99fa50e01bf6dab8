"""Eq. 19 over a whole window: a loop with nothing in it but the recurrence, and a backward pass to match.

Autograd over a Python loop forms the gradient of W as T small products and keeps a graph node per operation. Here the
forward pass keeps its states, and the backward pass forms each weight gradient as one large product after the loop.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from tslm.models.recurrent.kernel import active


class _MultiplicativeScan(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, factors_TBR: Tensor, transfer_BR: Tensor, W_RR: Tensor, b_R: Tensor, normalise: bool
    ) -> tuple[Tensor, Tensor]:
        T, B, _ = factors_TBR.shape
        given = (factors_TBR, W_RR, b_R)
        kernel = active()
        if kernel is not None and kernel.takes(*given, transfer_BR):
            given = (factors_TBR.contiguous(), W_RR.contiguous(), b_R.contiguous())
        else:
            kernel = None
        states_TBR = torch.empty_like(given[0])
        transfers_TBR = factors_TBR.new_empty(T + 1, *transfer_BR.shape)
        transfers_TBR[0] = transfer_BR
        scales_TB1 = factors_TBR.new_empty(T, B, 1) if normalise else None
        arrays = (states_TBR, transfers_TBR, scales_TB1)
        if kernel is not None:
            kernel.run("forward", factors_TBR.shape, *given, *arrays)
        else:
            _go_forward(*given, *arrays)
        ctx.save_for_backward(given[0], states_TBR, transfers_TBR, given[1])
        ctx.scales_TB1, ctx.kernel = scales_TB1, kernel
        return states_TBR, transfers_TBR[T]

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        states_gradient_TBR, last_transfer_gradient_BR = gradients
        factors_TBR, states_TBR, transfers_TBR, W_RR = ctx.saved_tensors
        factors_gradient_TBR = torch.empty_like(states_TBR)
        transfers_gradient_TBR = torch.empty_like(transfers_TBR)
        transfers_gradient_TBR[-1] = last_transfer_gradient_BR
        given = (factors_TBR, W_RR, states_TBR, transfers_TBR, ctx.scales_TB1)
        if ctx.kernel is not None:
            outer_TBR = states_gradient_TBR.contiguous()
            ctx.kernel.run(
                "backward",
                factors_TBR.shape,
                *given,
                outer_TBR,
                factors_gradient_TBR,
                transfers_gradient_TBR,
            )
        else:
            _go_backward(*given, states_gradient_TBR, factors_gradient_TBR, transfers_gradient_TBR)
        R = W_RR.shape[0]
        following = transfers_gradient_TBR[1:].reshape(-1, R)
        W_gradient_RR = following.t() @ states_TBR.reshape(-1, R)
        return factors_gradient_TBR, transfers_gradient_TBR[0], W_gradient_RR, following.sum(0), None


def _go_forward(
    factors_TBR: Tensor,
    W_RR: Tensor,
    b_R: Tensor,
    states_TBR: Tensor,
    transfers_TBR: Tensor,
    scales_TB1: Tensor | None,
) -> None:
    """Fill in the states, the transfers after the first, and the scales."""
    # Copied once for a window of products: they run half as fast again as on a transposed view.
    W_transposed = W_RR.t().contiguous()
    # Unbound once: indexing a tensor costs more than a small operation on it.
    factors, states, transfers = factors_TBR.unbind(), states_TBR.unbind(), transfers_TBR.unbind()
    scales_B = scales_TB1.squeeze(-1).unbind() if scales_TB1 is not None else ()
    scales_B1 = scales_TB1.unbind() if scales_TB1 is not None else ()
    # Tensors, not numbers: these are converted anew by every operation.
    one_1, share_1 = factors_TBR.new_ones(1), factors_TBR.new_full((1,), 1 / factors_TBR.shape[-1])
    for t, state in enumerate(states):
        torch.mul(transfers[t], factors[t], out=state)
        if scales_B:
            torch.linalg.vecdot(state, state, out=scales_B[t])
            torch.addcmul(one_1, scales_B[t], share_1, out=scales_B[t]).rsqrt_()
            state.mul_(scales_B1[t])
        torch.addmm(b_R, state, W_transposed, out=transfers[t + 1])


def _go_backward(
    factors_TBR: Tensor,
    W_RR: Tensor,
    states_TBR: Tensor,
    transfers_TBR: Tensor,
    scales_TB1: Tensor | None,
    states_gradient_TBR: Tensor,
    factors_gradient_TBR: Tensor,
    transfers_gradient_TBR: Tensor,
) -> None:
    """Fill in the gradients of the factors and of the transfers before the last."""
    outer, factors, states = states_gradient_TBR.unbind(), factors_TBR.unbind(), states_TBR.unbind()
    raws, inner = factors_gradient_TBR.unbind(), transfers_gradient_TBR.unbind()
    scales = scales_TB1.unbind() if scales_TB1 is not None else None
    along_B = factors_TBR.new_empty(factors_TBR.shape[1])
    along_B1, share = along_B.unsqueeze(-1), 1 / factors_TBR.shape[-1]
    for t in range(len(raws) - 1, -1, -1):
        # The gradient of transfer ⊙ factor, before the state is rescaled.
        raw = raws[t]
        torch.addmm(outer[t], inner[t + 1], W_RR, out=raw)
        if scales is not None:
            torch.linalg.vecdot(raw, states[t], out=along_B)
            raw.addcmul_(states[t], along_B1, value=-share).mul_(scales[t])
        torch.mul(raw, factors[t], out=inner[t])
    # It becomes the gradient of the factors only here, after its last use.
    factors_gradient_TBR.mul_(transfers_TBR[:-1])


def multiplicative_scan(
    factors_TBR: Float[Tensor, "T B R"],
    transfer_BR: Float[Tensor, "B R"],
    W_RR: Float[Tensor, "R R"],
    b_R: Float[Tensor, " R"],
    *,
    normalise: bool = False,
) -> tuple[Float[Tensor, "T B R"], Float[Tensor, "B R"]]:
    """Eq. 19. h_t = g_t ⊙ f_t and g_{t+1} = W h_t + b, for a window of word factors f.

    What is carried is g, not h: the paper's start W h₀ = **1** is then simply g₁ = **1**, and W need not be invertible.

    Args:
        factors_TBR: the words' factors f_t = U α_t (or a function of them), time first.
        transfer_BR: g₁, carried from the window before; all ones at the beginning of a text.
        W_RR: the hidden-to-hidden matrix.
        b_R: the bias; zeros for the pure recurrence.
        normalise: rescale each state to h / sqrt(1 + mean h²).

    Returns:
        The states h₁…h_T and the transfer g_{T+1}.
    """
    result: Any = _MultiplicativeScan.apply(factors_TBR, transfer_BR, W_RR, b_R, normalise)
    return result
