"""The fast recurrence against Eq. 19 written as a loop, values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tslm.models.recurrence import multiplicative_scan


def scan_slowly(factors_TBR, transfer_BR, W_RR, b_R, normalise) -> tuple[Tensor, Tensor]:
    states = []
    for factor_BR in factors_TBR:
        state_BR = transfer_BR * factor_BR
        if normalise:
            state_BR = state_BR / torch.sqrt(1 + (state_BR**2).mean(-1, keepdim=True))
        states.append(state_BR)
        transfer_BR = state_BR @ W_RR.T + b_R
    return torch.stack(states), transfer_BR


def draw(T: int, B: int, R: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(T * 100 + R)
    shapes = [(T, B, R), (B, R), (R, R), (R,)]
    drawn = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    drawn[0] = drawn[0].tanh()
    drawn[2] = drawn[2] / (2 * R**0.5)
    return [tensor.requires_grad_() for tensor in drawn]


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("T", [1, 2, 63])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_values_and_gradients_equal_autograds(T, normalise, dtype, tolerance) -> None:
    arguments = draw(T, 3, 8, dtype)
    weights = [torch.randn(T, 3, 8, dtype=dtype), torch.randn(3, 8, dtype=dtype)]
    results = []
    for scan in (scan_slowly, lambda *a: multiplicative_scan(*a[:4], normalise=a[4])):
        states_TBR, last_BR = scan(*arguments, normalise)
        loss = (states_TBR * weights[0]).sum() + (last_BR * weights[1]).sum()
        results.append([states_TBR, last_BR, *torch.autograd.grad(loss, arguments)])
    for slow, fast in zip(*results, strict=True):
        scale = max(1.0, float(slow.detach().abs().max()))
        torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance * scale * 10)


@pytest.mark.parametrize("normalise", [False, True])
def test_gradcheck(normalise) -> None:
    arguments = draw(4, 2, 3, torch.float64)
    assert torch.autograd.gradcheck(lambda *a: multiplicative_scan(*a, normalise=normalise), arguments)


def test_windows_join_without_a_seam() -> None:
    factors_TBR, transfer_BR, W_RR, b_R = draw(12, 2, 5, torch.float64)
    whole_TBR, end_BR = multiplicative_scan(factors_TBR, transfer_BR, W_RR, b_R)
    first_TBR, middle_BR = multiplicative_scan(factors_TBR[:7], transfer_BR, W_RR, b_R)
    second_TBR, last_BR = multiplicative_scan(factors_TBR[7:], middle_BR, W_RR, b_R)
    torch.testing.assert_close(torch.cat([first_TBR, second_TBR]), whole_TBR)
    torch.testing.assert_close(last_BR, end_BR)
