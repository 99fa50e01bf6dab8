"""The forward recursion with blocks that are made from vectors, word by word, and never leave the cache before use.

The block between the clusters of two neighbouring words is S = softmax(A Bᵀ + bias), A the vectors of the states that
are left and B those of the states that are reached. With counts beside the hidden states (:mod:`.joined`), a state z
leaves the choice of the next word to them with probability λ_z, and goes on as if it had chosen that word itself:

    p(w, z' | z) = [(1 − λ_z) o_z + λ_z p(w) / q_z] S_zz' e_z',    q = S e,

where o is the probability of the word's cluster, e that of the word from each of its states, and p(w) what the counts
say. The sum over z' is (1 − λ_z) o_z q_z + λ_z p(w): a mixture of two probabilities, whatever the state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tslm.models.probabilistic.forward import TINY


class Vectors(NamedTuple):
    """What blocks are made of."""

    leave_CkM: Float[Tensor, "C k M"]
    reach_CkM: Float[Tensor, "C k M"]
    bias_Ck: Float[Tensor, "C k"]


def read_products(
    before_Bk: Float[Tensor, "B k"],
    vectors: Vectors,
    clusters_UB: Int[Tensor, "U B"],
    onward_TBk: Float[Tensor, "T B k"],
    emission_TBk: Float[Tensor, "T B k"],
    gate_TBk: Float[Tensor, "T B k"] | None = None,
    counted_TB: Float[Tensor, "T B"] | None = None,
) -> tuple[Float[Tensor, "T B"], Float[Tensor, "T B k"]]:
    """Return p(word | all before it) of each word, and what is believed of the hidden state behind it.

    Args:
        before_Bk: what is believed before the first word; sums to one.
        vectors: of the states.
        clusters_UB: of the word before the first one and of each word; U = T + 1.
        onward_TBk: o, the probability of the word's cluster after each state of the word before.
        emission_TBk: e, the probability of the word from each of its states.
        gate_TBk: λ of each state of the word before; None where there are no counts.
        counted_TB: p of each word by the counts.
    """
    return _Products.apply(  # pyright: ignore[reportReturnType]
        before_Bk, *vectors, clusters_UB, onward_TBk, emission_TBk, gate_TBk, counted_TB
    )


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        before_Bk: Tensor,
        leave_CkM: Tensor,
        reach_CkM: Tensor,
        bias_Ck: Tensor,
        clusters_UB: Tensor,
        onward_TBk: Tensor,
        emission_TBk: Tensor,
        gate_TBk: Tensor | None,
        counted_TB: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        T, B, k = emission_TBk.shape
        blocks_TBkk = emission_TBk.new_empty(T, B, k, k)
        moved_TBk, belief_TBk = torch.empty_like(emission_TBk), torch.empty_like(emission_TBk)
        scale_TB = emission_TBk.new_empty(T, B)
        own_TBk = torch.empty_like(emission_TBk) if gate_TBk is not None else None
        belief_Bk = before_Bk
        for t in range(T):
            before_B, after_B = clusters_UB[t], clusters_UB[t + 1]
            reach_BMk = reach_CkM.index_select(0, after_B).transpose(1, 2)
            bias_B1k = bias_Ck.index_select(0, after_B).unsqueeze(1)
            logits_Bkk = torch.baddbmm(bias_B1k, leave_CkM.index_select(0, before_B), reach_BMk)
            S_Bkk = torch.softmax(logits_Bkk, -1, out=blocks_TBkk[t])
            if gate_TBk is None or counted_TB is None or own_TBk is None:
                chosen_Bk = onward_TBk[t]
            else:
                own_TBk[t] = (S_Bkk * emission_TBk[t].unsqueeze(1)).sum(2) + TINY
                chosen_Bk = torch.lerp(onward_TBk[t], counted_TB[t].unsqueeze(1) / own_TBk[t], gate_TBk[t])
            moved_TBk[t] = torch.bmm((chosen_Bk * belief_Bk).unsqueeze(1), S_Bkk).squeeze(1)
            torch.mul(moved_TBk[t], emission_TBk[t], out=belief_TBk[t])
            scale_TB[t] = belief_TBk[t].sum(1) + TINY
            belief_Bk = belief_TBk[t].div_(scale_TB[t].unsqueeze(1))
        ctx.save_for_backward(
            before_Bk, leave_CkM, reach_CkM, bias_Ck, clusters_UB, onward_TBk, emission_TBk, gate_TBk, counted_TB,
            blocks_TBkk, moved_TBk, belief_TBk, scale_TB, own_TBk,
        )  # fmt: skip
        return scale_TB, belief_TBk

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (
            before_Bk, leave_CkM, reach_CkM, bias_Ck, clusters_UB, onward_TBk, emission_TBk, gate_TBk, counted_TB,
            blocks_TBkk, moved_TBk, belief_TBk, scale_TB, own_TBk,
        ) = ctx.saved_tensors  # fmt: skip
        scale_gradient_TB, belief_gradient_TBk = gradients
        leave_gradient_CkM, reach_gradient_CkM = torch.zeros_like(leave_CkM), torch.zeros_like(reach_CkM)
        bias_gradient_Ck = torch.zeros_like(bias_Ck)
        onward_gradient_TBk, emission_gradient_TBk = torch.empty_like(moved_TBk), torch.empty_like(moved_TBk)
        gate_gradient_TBk = torch.empty_like(moved_TBk)
        onward_Bk = torch.zeros_like(before_Bk)
        for t in range(len(emission_TBk) - 1, -1, -1):
            # belief = joint / scale, scale = Σ joint, joint = moved ⊙ emission, moved = Sᵀ left.
            S_Bkk, emission_Bk = blocks_TBkk[t], emission_TBk[t]
            earlier_Bk = belief_TBk[t - 1] if t else before_Bk
            wanted_Bk = belief_gradient_TBk[t] + onward_Bk
            shared_B = scale_gradient_TB[t] - torch.linalg.vecdot(wanted_Bk, belief_TBk[t]) / scale_TB[t]
            joint_Bk = torch.addcdiv(shared_B.unsqueeze(1), wanted_Bk, scale_TB[t].unsqueeze(1))
            aim_Bk = joint_Bk * emission_Bk
            pull_Bkk = S_Bkk * aim_Bk.unsqueeze(1)
            left_gradient_Bk = pull_Bkk.sum(2)
            torch.mul(joint_Bk, moved_TBk[t], out=emission_gradient_TBk[t])
            if gate_TBk is None:
                chosen_Bk = onward_TBk[t]
                torch.mul(left_gradient_Bk, earlier_Bk, out=onward_gradient_TBk[t])
                left_Bk = chosen_Bk * earlier_Bk
                # The gradient of a softmax: each row of S times what its entries gain beyond the row's mean.
                pull_Bkk.addcmul_(S_Bkk, left_gradient_Bk.unsqueeze(2), value=-1).mul_(left_Bk.unsqueeze(2))
            else:
                own_Bk, gate_Bk = own_TBk[t], gate_TBk[t]
                counted_Bk = counted_TB[t].unsqueeze(1) / own_Bk
                chosen_Bk = torch.lerp(onward_TBk[t], counted_Bk, gate_Bk)
                left_Bk = chosen_Bk * earlier_Bk
                chosen_gradient_Bk = left_gradient_Bk * earlier_Bk
                torch.mul(chosen_gradient_Bk, 1 - gate_Bk, out=onward_gradient_TBk[t])
                torch.mul(chosen_gradient_Bk, counted_Bk - onward_TBk[t], out=gate_gradient_TBk[t])
                own_gradient_Bk = -chosen_gradient_Bk * gate_Bk * counted_Bk / own_Bk
                emission_gradient_TBk[t] += torch.bmm(own_gradient_Bk.unsqueeze(1), S_Bkk).squeeze(1)
                mean_Bk = left_gradient_Bk * left_Bk + own_gradient_Bk * own_Bk
                gains_Bkk = torch.baddbmm(
                    -mean_Bk.unsqueeze(2),
                    torch.stack([left_Bk, own_gradient_Bk], 2),
                    torch.stack([aim_Bk, emission_Bk], 1),
                )
                torch.mul(S_Bkk, gains_Bkk, out=pull_Bkk)
            before_B, after_B = clusters_UB[t], clusters_UB[t + 1]
            leave_BkM, reach_BkM = leave_CkM.index_select(0, before_B), reach_CkM.index_select(0, after_B)
            leave_gradient_CkM.index_add_(0, before_B, torch.bmm(pull_Bkk, reach_BkM))
            reach_gradient_CkM.index_add_(0, after_B, torch.bmm(pull_Bkk.transpose(1, 2), leave_BkM))
            bias_gradient_Ck.index_add_(0, after_B, pull_Bkk.sum(1))
            onward_Bk = left_gradient_Bk * chosen_Bk
        return (
            onward_Bk, leave_gradient_CkM, reach_gradient_CkM, bias_gradient_Ck, None, onward_gradient_TBk,
            emission_gradient_TBk, gate_gradient_TBk if gate_TBk is not None else None, None,
        )  # fmt: skip
