"""The forward recursion of a window, and its gradient, which is the backward recursion.

A word brings the block S of transitions from the k states of the word before it to its own k states, the factors r of
the states that are left, and the emission probabilities e of the word itself:

    h_t = (Sᵀ (r ⊙ h_{t−1})) ⊙ e,    divided by its sum, which is p(w_t | w_1 … w_{t−1}).

So no product of probabilities is ever formed, and nothing underflows however long the text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

TINY = 1e-30
"""Added to each sum, so that a word that no state can emit gives a large loss and not a division by zero."""


def read_window(
    before_Bk: Float[Tensor, "B k"],
    leave_TBk: Float[Tensor, "T B k"],
    blocks: Float[Tensor, "T B k k"] | Float[Tensor, "k k"],
    emission_TBk: Float[Tensor, "T B k"],
) -> tuple[Float[Tensor, "T B"], Float[Tensor, "T B k"]]:
    """Return p(word | all before it) of each word, and what is believed of the hidden state behind it.

    Args:
        before_Bk: what is believed before the first word; sums to one.
        leave_TBk: r: the probability of the word's cluster after each state of the word before.
        blocks: S: from (rows) the states of the word before to (columns) those of the word; one for each word, or one
            that all words share.
        emission_TBk: e: the probability of the word from each of its states.
    """
    return _Forward.apply(before_Bk, leave_TBk, blocks, emission_TBk)  # pyright: ignore[reportReturnType]


def follow_text(
    before_Bk: Float[np.ndarray, "B k"],
    leave_TBk: Float[np.ndarray, "T B k"],
    blocks: Float[np.ndarray, "T B k k"] | Float[np.ndarray, "k k"],
    emission_TBk: Float[np.ndarray, "T B k"],
) -> tuple[Float[np.ndarray, "T B"], Float[np.ndarray, "B k"]]:
    """Return p of each word, and the last belief: the same recursion without gradients.

    NumPy takes a fifth of PyTorch's time over a single text, where each operation is a small one.
    """
    belief_B1k = before_Bk[:, None]
    scale_TB = np.empty(leave_TBk.shape[:2], leave_TBk.dtype)
    for t, (leave_Bk, emission_Bk) in enumerate(zip(leave_TBk, emission_TBk, strict=True)):
        block = blocks if blocks.ndim == 2 else blocks[t]
        joint_B1k = np.matmul(belief_B1k * leave_Bk[:, None], block)
        joint_B1k *= emission_Bk[:, None]
        scale_B1 = joint_B1k.sum(2)
        scale_B1 += TINY
        scale_TB[t] = scale_B1[:, 0]
        belief_B1k = joint_B1k / scale_B1[:, :, None]
    return scale_TB, belief_B1k[:, 0]


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, before_Bk: Tensor, leave_TBk: Tensor, blocks: Tensor, emission_TBk: Tensor
    ) -> tuple[Tensor, Tensor]:
        moved_TBk, belief_TBk = torch.empty_like(emission_TBk), torch.empty_like(emission_TBk)
        scale_TB = emission_TBk.new_empty(emission_TBk.shape[:2])
        belief_Bk = before_Bk
        for t in range(len(emission_TBk)):
            moved_TBk[t] = _move(leave_TBk[t] * belief_Bk, _at(blocks, t))
            torch.mul(moved_TBk[t], emission_TBk[t], out=belief_TBk[t])
            scale_TB[t] = belief_TBk[t].sum(1) + TINY
            belief_Bk = belief_TBk[t].div_(scale_TB[t].unsqueeze(1))
        ctx.save_for_backward(before_Bk, leave_TBk, blocks, emission_TBk, moved_TBk, belief_TBk, scale_TB)
        return scale_TB, belief_TBk

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        before_Bk, leave_TBk, blocks, emission_TBk, moved_TBk, belief_TBk, scale_TB = ctx.saved_tensors
        scale_gradient_TB, belief_gradient_TBk = gradients
        joint_gradient_TBk = torch.empty_like(belief_TBk)
        moved_gradient_TBk = torch.empty_like(belief_TBk)
        left_gradient_TBk = torch.empty_like(belief_TBk)
        onward_Bk = torch.zeros_like(before_Bk)
        for t in range(len(emission_TBk) - 1, -1, -1):
            # belief = joint / scale, scale = Σ joint, joint = moved ⊙ emission, moved = Sᵀ (leave ⊙ earlier belief).
            wanted_Bk = belief_gradient_TBk[t] + onward_Bk
            shared_B = scale_gradient_TB[t] - torch.linalg.vecdot(wanted_Bk, belief_TBk[t]) / scale_TB[t]
            torch.div(wanted_Bk, scale_TB[t].unsqueeze(1), out=joint_gradient_TBk[t])
            joint_gradient_TBk[t] += shared_B.unsqueeze(1)
            torch.mul(joint_gradient_TBk[t], emission_TBk[t], out=moved_gradient_TBk[t])
            left_gradient_TBk[t] = _move(moved_gradient_TBk[t], _at(blocks, t).transpose(-1, -2))
            onward_Bk = left_gradient_TBk[t] * leave_TBk[t]
        earlier_TBk = torch.cat([before_Bk.unsqueeze(0), belief_TBk[:-1]])
        left_TBk = leave_TBk * earlier_TBk
        if blocks.ndim == 2:
            blocks_gradient = left_TBk.flatten(0, 1).t() @ moved_gradient_TBk.flatten(0, 1)
        else:
            blocks_gradient = left_TBk.unsqueeze(3) * moved_gradient_TBk.unsqueeze(2)
        return (
            onward_Bk,
            left_gradient_TBk.mul_(earlier_TBk),
            blocks_gradient,
            joint_gradient_TBk.mul_(moved_TBk),
        )


def _at(blocks: Tensor, t: int) -> Tensor:
    return blocks if blocks.ndim == 2 else blocks[t]


def _move(rows_Bk: Tensor, block: Tensor) -> Tensor:
    """Return each row times its block."""
    return rows_Bk @ block if block.ndim == 2 else torch.bmm(rows_Bk.unsqueeze(1), block).squeeze(1)
