"""The fast scan against the recurrence written out step by step, values and gradients."""

from __future__ import annotations

import pytest
import torch

from tslm.models.recurrent.affine import affine_scan


def scan_slowly(hold, mix, add, state, W, keep=None):
    states = []
    for t in range(len(hold)):
        seen = state if keep is None else keep[t] * state
        rows = [
            hold[t, b] * state[b] + add[t, b] + mix[t, b] * torch.stack([(row * seen[b]).sum() for row in W])
            for b in range(len(state))
        ]
        state = torch.stack(rows)
        states.append(state)
    return torch.stack(states), state


@pytest.mark.parametrize("T", [1, 2, 63])
@pytest.mark.parametrize("split", [False, True])
def test_values_and_gradients_equal_autograds(T, split) -> None:
    torch.manual_seed(T)
    B, R = 3, 5
    factors = [torch.rand(T, B, R, dtype=torch.float64, requires_grad=True) for _ in range(4)]
    hold, mix, add, keep = factors
    state = torch.randn(B, R, dtype=torch.float64, requires_grad=True)
    W = (torch.randn(R, R, dtype=torch.float64) * 0.3).requires_grad_()
    given = [hold, mix, add, state, W, *([keep] if split else [])]
    fast = affine_scan(hold, mix, add, state, W, keep_TBR=keep if split else None)
    slow = scan_slowly(hold, mix, add, state, W, keep if split else None)
    weights = [torch.randn_like(part) for part in fast]
    for ours, theirs in zip(fast, slow, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    gradients = [
        torch.autograd.grad(
            sum((part * weight).sum() for part, weight in zip(parts, weights, strict=True)), given
        )
        for parts in (fast, slow)
    ]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def test_a_window_read_in_two_pieces_is_the_whole() -> None:
    torch.manual_seed(0)
    hold, mix, add = (torch.rand(7, 2, 4) for _ in range(3))
    W, state = torch.randn(4, 4) * 0.3, torch.randn(2, 4)
    whole, last = affine_scan(hold, mix, add, state, W)
    first, carried = affine_scan(hold[:3], mix[:3], add[:3], state, W)
    second, end = affine_scan(hold[3:], mix[3:], add[3:], carried, W)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(end, last)
