from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tslm.models.probabilistic.products import Vectors, read_products


def plain(before_Bk, vectors, clusters_UB, onward_TBk, emission_TBk, gate_TBk=None, counted_TB=None):
    """p(w, z' | z) as it is written, one text, one word and one state at a time."""
    scales, beliefs = [], []
    belief_Bk = before_Bk
    for t in range(len(onward_TBk)):
        rows = []
        for b in range(len(before_Bk)):
            before, after = int(clusters_UB[t, b]), int(clusters_UB[t + 1, b])
            joint_k = torch.zeros_like(before_Bk[b])
            for z in range(len(joint_k)):
                logits_k = vectors.reach_CkM[after] @ vectors.leave_CkM[before, z] + vectors.bias_Ck[after]
                word_k = F.softmax(logits_k, 0) * emission_TBk[t, b]
                chosen = onward_TBk[t, b, z]
                if gate_TBk is not None:
                    gate = gate_TBk[t, b, z]
                    chosen = (1 - gate) * chosen + gate * counted_TB[t, b] / word_k.sum()
                joint_k = joint_k + belief_Bk[b, z] * chosen * word_k
            rows.append(joint_k)
        joint_Bk = torch.stack(rows)
        scales.append(joint_Bk.sum(1))
        belief_Bk = joint_Bk / joint_Bk.sum(1, keepdim=True)
        beliefs.append(belief_Bk)
    return torch.stack(scales), torch.stack(beliefs)


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("T", [1, 2, 7])
def test_values_and_gradients_are_those_of_the_plain_recursion(counts: bool, T: int) -> None:
    torch.manual_seed(0)
    B, C, k, M = 3, 4, 5, 6
    shapes = [(B, k), (C, k, M), (C, k, M), (C, k), (T, B, k), (T, B, k), (T, B, k)]
    given = [torch.randn(shape).double().requires_grad_() for shape in shapes]
    clusters_UB = torch.randint(C, (T + 1, B))
    before_Bk, leave, reach, bias, onward, emission, gate = given
    made = [
        F.softmax(before_Bk, 1),
        Vectors(leave, reach, bias),
        clusters_UB,
        onward.sigmoid(),
        emission.sigmoid(),
    ]
    if counts:
        made += [gate.sigmoid(), torch.rand(T, B).double()]
    else:
        given = given[:-1]
    weight_TB, weight_TBk = torch.rand(T, B).double(), torch.rand(T, B, k).double()
    results = []
    for recursion in (read_products, plain):
        scale_TB, belief_TBk = recursion(*made)
        loss = (scale_TB.log() * weight_TB).sum() + (belief_TBk.square() * weight_TBk).sum()
        results.append([scale_TB, belief_TBk, *torch.autograd.grad(loss, given, retain_graph=True)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)
