"""The forward recursion of a window, and its gradient, which is the backward recursion.

A word brings the block S of transitions from the k states of the word before it to its own k states, the factors r of
the states that are left, and the emission probabilities e of the word itself:

    h_t = (Sᵀ (r ⊙ h_{t−1})) ⊙ e,    divided by its sum, which is p(w_t | w_1 … w_{t−1}).

So no product of probabilities is ever formed, and nothing underflows however long the text.

A block that all words share may be a product of two: the next state is then chosen through one of F features, and a
word costs 2 k F instead of k².
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

TINY = 1e-30
"""Added to each sum, so that a word that no state can emit gives a large loss and not a division by zero."""


class Features(NamedTuple):
    """A block that all words share, as a product of two; each row of both sums to one."""

    leave_kF: Float[Tensor, "k F"]
    """p(feature | state)."""
    reach_Fk: Float[Tensor, "F k"]
    """p(next state | feature)."""


Blocks = Float[Tensor, "T B k k"] | Float[Tensor, "k k"] | Features
"""A block for each word, or one that all words share."""


def read_window(
    before_Bk: Float[Tensor, "B k"],
    leave_TBk: Float[Tensor, "T B k"],
    blocks: Blocks,
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
    factors = blocks if isinstance(blocks, Features) else (blocks, None)
    return _Forward.apply(before_Bk, leave_TBk, emission_TBk, *factors)  # pyright: ignore[reportReturnType]


def move(rows_Nk: Float[Tensor, "N k"], shared: Float[Tensor, "k k"] | Features) -> Float[Tensor, "N k"]:
    """Return rows times a block that all words share."""
    return rows_Nk @ shared.leave_kF @ shared.reach_Fk if isinstance(shared, Features) else rows_Nk @ shared


def follow_text(
    before_Bk: Float[np.ndarray, "B k"],
    leave_TBk: Float[np.ndarray, "T B k"],
    blocks: Blocks,
    emission_TBk: Float[np.ndarray, "T B k"],
) -> tuple[Float[np.ndarray, "T B"], Float[np.ndarray, "B k"]]:
    """Return p of each word, and the last belief: the same recursion without gradients.

    NumPy takes a fifth of PyTorch's time over a single text, where each operation is a small one.
    """
    belief_B1k = before_Bk[:, None]
    scale_TB = np.empty(leave_TBk.shape[:2], leave_TBk.dtype)
    factors = [block.numpy() for block in (blocks if isinstance(blocks, Features) else [blocks])]
    for t, (leave_Bk, emission_Bk) in enumerate(zip(leave_TBk, emission_TBk, strict=True)):
        joint_B1k = belief_B1k * leave_Bk[:, None]
        for block in factors:
            joint_B1k = np.matmul(joint_B1k, block if block.ndim == 2 else block[t])
        joint_B1k *= emission_Bk[:, None]
        scale_B1 = joint_B1k.sum(2)
        scale_B1 += TINY
        scale_TB[t] = scale_B1[:, 0]
        belief_B1k = joint_B1k / scale_B1[:, :, None]
    return scale_TB, belief_B1k[:, 0]


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        before_Bk: Tensor,
        leave_TBk: Tensor,
        emission_TBk: Tensor,
        blocks: Tensor,
        second_Fk: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        moved_TBk, belief_TBk = torch.empty_like(emission_TBk), torch.empty_like(emission_TBk)
        scale_TB = emission_TBk.new_empty(emission_TBk.shape[:2])
        belief_Bk = before_Bk
        for t in range(len(emission_TBk)):
            moved_Bk = _move(leave_TBk[t] * belief_Bk, _at(blocks, t))
            moved_TBk[t] = moved_Bk if second_Fk is None else moved_Bk @ second_Fk
            torch.mul(moved_TBk[t], emission_TBk[t], out=belief_TBk[t])
            scale_TB[t] = belief_TBk[t].sum(1) + TINY
            belief_Bk = belief_TBk[t].div_(scale_TB[t].unsqueeze(1))
        ctx.save_for_backward(
            before_Bk, leave_TBk, emission_TBk, blocks, second_Fk, moved_TBk, belief_TBk, scale_TB
        )
        return scale_TB, belief_TBk

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        before_Bk, leave_TBk, emission_TBk, blocks, second_Fk, moved_TBk, belief_TBk, scale_TB = (
            ctx.saved_tensors
        )
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
            aim = moved_gradient_TBk[t] if second_Fk is None else moved_gradient_TBk[t] @ second_Fk.t()
            left_gradient_TBk[t] = _move(aim, _at(blocks, t).transpose(-1, -2))
            onward_Bk = left_gradient_TBk[t] * leave_TBk[t]
        earlier_TBk = torch.cat([before_Bk.unsqueeze(0), belief_TBk[:-1]])
        left_TBk = leave_TBk * earlier_TBk
        second_gradient_Fk = None
        if blocks.ndim == 2:
            left_Nk, aim_N = left_TBk.flatten(0, 1), moved_gradient_TBk.flatten(0, 1)
            if second_Fk is not None:
                second_gradient_Fk = (left_Nk @ blocks).t() @ aim_N
                aim_N = aim_N @ second_Fk.t()
            blocks_gradient = left_Nk.t() @ aim_N
        else:
            blocks_gradient = left_TBk.unsqueeze(3) * moved_gradient_TBk.unsqueeze(2)
        return (
            onward_Bk,
            left_gradient_TBk.mul_(earlier_TBk),
            joint_gradient_TBk.mul_(moved_TBk),
            blocks_gradient,
            second_gradient_Fk,
        )


def _at(blocks: Tensor, t: int) -> Tensor:
    return blocks if blocks.ndim == 2 else blocks[t]


def _move(rows_Bk: Tensor, block: Tensor) -> Tensor:
    """Return each row times its block."""
    return rows_Bk @ block if block.ndim == 2 else torch.bmm(rows_Bk.unsqueeze(1), block).squeeze(1)
