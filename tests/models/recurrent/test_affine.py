"""The fast scan against the recurrence written out step by step, values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tslm.models.recurrent.affine import affine_scan


def scan_slowly(hold, mix, add, state, W, keep=None) -> tuple[Tensor, Tensor]:
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


def scan_fast(hold, mix, add, state, W, keep=None) -> tuple[Tensor, Tensor]:
    return affine_scan(hold, mix, add, state, W, keep_TBR=keep)


def draw(T: int, B: int, R: int, dtype: torch.dtype, *, split: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(T * 100 + R)
    shapes = [*3 * [(T, B, R)], (B, R), (R, R), *([(T, B, R)] if split else [])]
    drawn = [torch.rand(shape, generator=generator, dtype=dtype) for shape in shapes]
    drawn[0] = 0.9 * drawn[0]
    drawn[4] = (drawn[4] - 0.5) / R**0.5
    return [tensor.requires_grad_() for tensor in drawn]


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("T", [1, 2, 63])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize(("B", "R"), [(3, 5), (7, 37)])
def test_values_and_gradients_equal_autograds(T, B, R, split, dtype, tolerance, road) -> None:
    arguments = draw(T, B, R, dtype, split=split)
    weights = [torch.randn(T, B, R, dtype=dtype), torch.randn(B, R, dtype=dtype)]
    results = []
    for scan in (scan_slowly, scan_fast):
        states_TBR, last_BR = scan(*arguments)
        loss = (states_TBR * weights[0]).sum() + (last_BR * weights[1]).sum()
        results.append([states_TBR, last_BR, *torch.autograd.grad(loss, arguments)])
    for slow, fast in zip(*results, strict=True):
        scale = max(1.0, float(slow.detach().abs().max()))
        torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance * scale * 10)


@pytest.mark.parametrize("split", [False, True])
def test_gradcheck(split, road) -> None:
    assert torch.autograd.gradcheck(scan_fast, draw(4, 2, 3, torch.float64, split=split))


def test_a_window_read_in_two_pieces_is_the_whole(road) -> None:
    torch.manual_seed(0)
    hold, mix, add = (torch.rand(7, 2, 4) for _ in range(3))
    W, state = torch.randn(4, 4) * 0.3, torch.randn(2, 4)
    whole, last = affine_scan(hold, mix, add, state, W)
    first, carried = affine_scan(hold[:3], mix[:3], add[:3], state, W)
    second, end = affine_scan(hold[3:], mix[3:], add[3:], carried, W)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(end, last)


@pytest.mark.parametrize("split", [False, True])
def test_strided_tensors_are_taken(split, road) -> None:
    arguments = [tensor.detach() for tensor in draw(5, 4, 40, torch.float64, split=split)]
    # As ``chunk`` and ``t`` give them.
    strided = [
        torch.stack([tensor, tensor], -1)[..., 0].requires_grad_()
        if tensor.dim() == 3
        else tensor.t().contiguous().t()
        for tensor in arguments
    ]
    given = [tensor.clone().requires_grad_() if tensor.dim() == 3 else tensor for tensor in arguments]
    states, expected = scan_fast(*strided)[0], scan_slowly(*given)[0]
    torch.testing.assert_close(states, expected)
    # The gradient of a sum is one number, expanded.
    for ours, theirs in zip(
        torch.autograd.grad(states.sum(), [tensor for tensor in strided if tensor.dim() == 3]),
        torch.autograd.grad(expected.sum(), [tensor for tensor in given if tensor.dim() == 3]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_the_results_do_not_depend_on_the_number_of_threads(road) -> None:
    arguments = draw(6, 13, 50, torch.float32, split=True)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(scan_fast(*arguments)[0])
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        torch.testing.assert_close(results[0], result)
        assert road == "loop" or torch.equal(results[0], result)
