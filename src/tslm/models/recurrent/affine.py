"""A recurrence that is affine in the state, over a whole window: one autograd function, as in ``scan``."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from tslm.models.recurrent.kernel import active
from tslm.models.recurrent.products import Product, in_bfloat16, outer_sum


def affine_scan(
    hold_TBR: Float[Tensor, "T B R"],
    mix_TBR: Float[Tensor, "T B R"],
    add_TBR: Float[Tensor, "T B R"],
    state_BR: Float[Tensor, "B R"],
    W_RR: Float[Tensor, "R R"],
    *,
    keep_TBR: Float[Tensor, "T B R"] | None = None,
) -> tuple[Float[Tensor, "T B R"], Float[Tensor, "B R"]]:
    """h_t = hold ⊙ h_{t−1} + add + mix ⊙ W(keep ⊙ h_{t−1}), for a window of word factors.

    Args:
        hold_TBR: what each unit keeps of itself.
        mix_TBR: what it takes of the product with W.
        add_TBR: what the word adds.
        state_BR: h₀, carried from the window before.
        W_RR: the hidden-to-hidden matrix.
        keep_TBR: what W sees of the state; all of it where it is left out.

    Returns:
        The states h₁…h_T, and h_T once more, to be carried on.
    """
    result: Any = _AffineScan.apply(hold_TBR, mix_TBR, add_TBR, state_BR, W_RR, keep_TBR)
    return result


class _AffineScan(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hold_TBR: Tensor,
        mix_TBR: Tensor,
        add_TBR: Tensor,
        state_BR: Tensor,
        W_RR: Tensor,
        keep_TBR: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        T = hold_TBR.shape[0]
        ctx.low, kernel = in_bfloat16(W_RR), active()
        hold_TBR, mix_TBR, add_TBR = hold_TBR.contiguous(), mix_TBR.contiguous(), add_TBR.contiguous()
        weight_RR, keep_TBR = W_RR.contiguous(), None if keep_TBR is None else keep_TBR.contiguous()
        given = (hold_TBR, mix_TBR, add_TBR, weight_RR, keep_TBR)
        if kernel is not None and not kernel.takes(*given, state_BR):
            kernel = None
        states_TBR = hold_TBR.new_empty(T + 1, *state_BR.shape)
        states_TBR[0] = state_BR
        mixed_TBR = torch.empty_like(hold_TBR)
        seen_TBR = None if keep_TBR is None else torch.empty_like(hold_TBR)
        arrays = (states_TBR, seen_TBR, mixed_TBR)
        if kernel is not None:
            kernel.run("affine_forward", hold_TBR.shape, *given, *arrays)
        else:
            _go_forward(*given, *arrays, low=ctx.low)
        ctx.save_for_backward(hold_TBR, mix_TBR, weight_RR, keep_TBR, states_TBR, seen_TBR, mixed_TBR)
        ctx.kernel = kernel
        return states_TBR[1:], states_TBR[T].clone()

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        outer_TBR, last_BR = gradients
        hold_TBR, mix_TBR, W_RR, keep_TBR, states_TBR, seen_TBR, mixed_TBR = ctx.saved_tensors
        T, _, R = hold_TBR.shape
        inner_TBR = torch.empty_like(states_TBR)  # of every state, the one before the window first
        torch.add(outer_TBR[-1], last_BR, out=inner_TBR[T])
        product_TBR = torch.empty_like(mixed_TBR)  # of the product with W
        hold_gradient_TBR, mix_gradient_TBR = torch.empty_like(mixed_TBR), torch.empty_like(mixed_TBR)
        keep_gradient_TBR = None if keep_TBR is None else torch.empty_like(mixed_TBR)
        given = (hold_TBR, mix_TBR, W_RR, keep_TBR, states_TBR, mixed_TBR)
        arrays = (inner_TBR, product_TBR, hold_gradient_TBR, mix_gradient_TBR, keep_gradient_TBR)
        if ctx.kernel is not None:
            ctx.kernel.run("affine_backward", hold_TBR.shape, *given, outer_TBR.contiguous(), *arrays)
        else:
            _go_backward(*given, outer_TBR, *arrays, low=ctx.low)
        # The weight's gradient is one product after the loop, not T small ones.
        seen_NR = (states_TBR[:-1] if seen_TBR is None else seen_TBR).reshape(-1, R)
        W_gradient_RR = outer_sum(product_TBR.view(-1, R), seen_NR, low=ctx.low)
        return (
            hold_gradient_TBR,
            mix_gradient_TBR,
            inner_TBR[1:],
            inner_TBR[0],
            W_gradient_RR,
            keep_gradient_TBR,
        )


def _go_forward(
    hold_TBR: Tensor,
    mix_TBR: Tensor,
    add_TBR: Tensor,
    W_RR: Tensor,
    keep_TBR: Tensor | None,
    states_TBR: Tensor,
    seen_TBR: Tensor | None,
    mixed_TBR: Tensor,
    *,
    low: bool,
) -> None:
    """Fill in the states after the first, what W sees of them, and its products."""
    W = Product(W_RR.t(), hold_TBR.shape[1], low=low)
    # Unbound once: indexing a tensor costs more than a small operation on it.
    hold, mix, add = hold_TBR.unbind(), mix_TBR.unbind(), add_TBR.unbind()
    states, mixed = states_TBR.unbind(), mixed_TBR.unbind()
    seen = states if seen_TBR is None else seen_TBR.unbind()
    keep = None if keep_TBR is None else keep_TBR.unbind()
    for t in range(len(hold)):
        if keep is not None:
            torch.mul(keep[t], states[t], out=seen[t])
        W.put(seen[t], mixed[t])
        torch.addcmul(add[t], mix[t], mixed[t], out=states[t + 1])
        states[t + 1].addcmul_(hold[t], states[t])


def _go_backward(
    hold_TBR: Tensor,
    mix_TBR: Tensor,
    W_RR: Tensor,
    keep_TBR: Tensor | None,
    states_TBR: Tensor,
    mixed_TBR: Tensor,
    outer_TBR: Tensor,
    inner_TBR: Tensor,
    product_TBR: Tensor,
    hold_gradient_TBR: Tensor,
    mix_gradient_TBR: Tensor,
    keep_gradient_TBR: Tensor | None,
    *,
    low: bool,
) -> None:
    """Fill in all gradients but that of the last state, which is there."""
    outer, inner, product = outer_TBR.unbind(), inner_TBR.unbind(), product_TBR.unbind()
    hold, mix = hold_TBR.unbind(), mix_TBR.unbind()
    keep = () if keep_TBR is None else keep_TBR.unbind()
    back = () if keep_gradient_TBR is None else keep_gradient_TBR.unbind()
    nothing_BR = torch.zeros_like(inner[0])
    W = Product(W_RR, len(nothing_BR), low=low)
    for t in range(len(hold) - 1, -1, -1):
        torch.mul(mix[t], inner[t + 1], out=product[t])
        torch.addcmul(outer[t - 1] if t else nothing_BR, hold[t], inner[t + 1], out=inner[t])
        if back:
            W.put(product[t], back[t])
            inner[t].addcmul_(keep[t], back[t])
        else:
            W.add(product[t], inner[t])
    own_TBR, before_TBR = inner_TBR[1:], states_TBR[:-1]
    torch.mul(own_TBR, before_TBR, out=hold_gradient_TBR)
    torch.mul(own_TBR, mixed_TBR, out=mix_gradient_TBR)
    if keep_gradient_TBR is not None:
        keep_gradient_TBR.mul_(before_TBR)
