from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tslm.models.probabilistic.forward import Features, read_window


def plain(before_Bk, leave_TBk, blocks, emission_TBk):
    """The recursion as it is written, one sequence and one word at a time."""
    scales, beliefs = [], []
    belief_Bk = before_Bk
    for t in range(len(leave_TBk)):
        rows = []
        for b in range(len(before_Bk)):
            if isinstance(blocks, Features):
                block = torch.einsum("zf,fy->zy", *blocks)
            else:
                block = blocks if blocks.ndim == 2 else blocks[t, b]
            rows.append(emission_TBk[t, b] * (block.t() @ (leave_TBk[t, b] * belief_Bk[b])))
        joint_Bk = torch.stack(rows)
        scales.append(joint_Bk.sum(1))
        belief_Bk = joint_Bk / joint_Bk.sum(1, keepdim=True)
        beliefs.append(belief_Bk)
    return torch.stack(scales), torch.stack(beliefs)


@pytest.mark.parametrize("T", [1, 2, 63])
@pytest.mark.parametrize("kind", ["own", "shared", "features"])
def test_values_and_gradients_are_those_of_the_plain_recursion(kind: str, T: int) -> None:
    torch.manual_seed(0)
    B, k, features = 3, 4, 2
    shapes = {"own": [(T, B, k, k)], "shared": [(k, k)], "features": [(k, features), (features, k)]}[kind]
    given = [torch.randn(shape) for shape in [(B, k), (T, B, k), (T, B, k), *shapes]]
    given = [values.double().requires_grad_() for values in given]
    before, leave, emission, *blocks = (F.softmax(values, -1) for values in given)
    made = before, leave, Features(*blocks) if kind == "features" else blocks[0], emission
    weight_TB, weight_TBk = torch.rand(T, B).double(), torch.rand(T, B, k).double()
    results = []
    for recursion in (read_window, plain):
        scale_TB, belief_TBk = recursion(*made)
        loss = (scale_TB.log() * weight_TB).sum() + (belief_TBk.square() * weight_TBk).sum()
        results.append([scale_TB, belief_TBk, *torch.autograd.grad(loss, given, retain_graph=True)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)
