"""The fast recurrence against Eq. 19 written as a loop, values and gradients."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import Tensor

from tslm.errors import TslmError
from tslm.models.recurrent import kernel
from tslm.models.recurrent.scan import multiplicative_scan


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
@pytest.mark.parametrize(("B", "R"), [(3, 8), (29, 37)])
def test_values_and_gradients_equal_autograds(T, B, R, normalise, dtype, tolerance, road) -> None:
    arguments = draw(T, B, R, dtype)
    weights = [torch.randn(T, B, R, dtype=dtype), torch.randn(B, R, dtype=dtype)]
    results = []
    for scan in (scan_slowly, lambda *a: multiplicative_scan(*a[:4], normalise=a[4])):
        states_TBR, last_BR = scan(*arguments, normalise)
        loss = (states_TBR * weights[0]).sum() + (last_BR * weights[1]).sum()
        results.append([states_TBR, last_BR, *torch.autograd.grad(loss, arguments)])
    for slow, fast in zip(*results, strict=True):
        scale = max(1.0, float(slow.detach().abs().max()))
        torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance * scale * 10)


@pytest.mark.parametrize("normalise", [False, True])
def test_gradcheck(normalise, road) -> None:
    arguments = draw(4, 2, 3, torch.float64)
    assert torch.autograd.gradcheck(lambda *a: multiplicative_scan(*a, normalise=normalise), arguments)


def test_windows_join_without_a_seam(road) -> None:
    factors_TBR, transfer_BR, W_RR, b_R = draw(12, 2, 5, torch.float64)
    whole_TBR, end_BR = multiplicative_scan(factors_TBR, transfer_BR, W_RR, b_R)
    first_TBR, middle_BR = multiplicative_scan(factors_TBR[:7], transfer_BR, W_RR, b_R)
    second_TBR, last_BR = multiplicative_scan(factors_TBR[7:], middle_BR, W_RR, b_R)
    torch.testing.assert_close(torch.cat([first_TBR, second_TBR]), whole_TBR)
    torch.testing.assert_close(last_BR, end_BR)


def test_strided_tensors_are_taken(road) -> None:
    factors_TBR, transfer_BR, W_RR, b_R = (tensor.detach() for tensor in draw(5, 4, 40, torch.float64))
    expected = scan_slowly(factors_TBR, transfer_BR, W_RR, b_R, False)
    strided_TBR = factors_TBR.transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    states_TBR, last_BR = multiplicative_scan(strided_TBR, transfer_BR, W_RR.t().contiguous().t(), b_R)
    torch.testing.assert_close((states_TBR, last_BR), expected)
    # The gradient of a sum is one number, expanded.
    states_TBR.sum().backward()
    assert strided_TBR.grad is not None
    torch.testing.assert_close(strided_TBR.grad, _gradient_of_sum(factors_TBR, transfer_BR, W_RR, b_R))


def _gradient_of_sum(factors_TBR, transfer_BR, W_RR, b_R) -> Tensor:
    wanted_TBR = factors_TBR.clone().requires_grad_()
    return torch.autograd.grad(scan_slowly(wanted_TBR, transfer_BR, W_RR, b_R, False)[0].sum(), wanted_TBR)[0]


def test_the_kernel_leaves_other_precisions_to_the_loop() -> None:
    single, double, half = (torch.ones(2, dtype=d) for d in (torch.float32, torch.float64, torch.bfloat16))
    assert kernel.Kernel.takes(single, single)
    assert kernel.Kernel.takes(double, double)
    assert not kernel.Kernel.takes(half, half)
    assert not kernel.Kernel.takes(single, double)
    assert not kernel.Kernel.takes(single.to("meta"))


def test_the_kernels_results_do_not_depend_on_the_number_of_threads(road) -> None:
    arguments = draw(6, 13, 50, torch.float32)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(multiplicative_scan(*arguments, normalise=True)[0])
    finally:
        torch.set_num_threads(before)
    if road == "kernel":
        assert torch.equal(results[0], results[1])
        assert torch.equal(results[0], results[2])
    torch.testing.assert_close(results[0], results[1])


def test_nothing_is_compiled_unasked(monkeypatch) -> None:
    monkeypatch.delenv(kernel.KERNEL_VARIABLE, raising=False)
    monkeypatch.setattr(kernel, "_chosen", False)
    monkeypatch.setattr(kernel, "_compile", lambda: pytest.fail("compiled"))
    assert kernel.active() is None


def test_a_missing_or_failing_compiler_is_one_clear_error(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(kernel, "_chosen", False)
    monkeypatch.setenv(kernel.KERNEL_VARIABLE, "1")
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(TslmError, match="no-such-compiler is not installed; install g"):
        kernel.active()
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(TslmError, match=r"cannot compile .* unset TSLM_KERNEL"):
        kernel.active()
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_damaged_kernel_in_the_cache_is_compiled_again(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(kernel, "_chosen", False)
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "env g++")  # more than a name
    library = kernel._compile()
    library.write_bytes(b"no library")
    kernel.accelerate()
    assert kernel.active() is not None
