from __future__ import annotations

import shutil

import pytest
import torch

from tslm.models.recurrent import kernel
from tslm.training.config import ObjectiveConfig
from tslm.training.objective import Objective


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("low", [False, True])
def test_both_softmaxes_agree(K, threads, low) -> None:
    torch.manual_seed(K)
    N, M, V = 50, 16, 301
    inputs = [torch.randn(shape, requires_grad=True) for shape in ((N, K, M), (N, K), (V, M), (V,))]
    latents_NKM, prior_NK, weight_VM, bias_V = inputs
    targets_N = torch.randint(V, (N,))
    before, threads_before, found = kernel.active(), torch.get_num_threads(), []
    torch.set_num_threads(threads)
    try:
        for compiled in (False, True):
            kernel.accelerate(compiled)
            objective = Objective(ObjectiveConfig(frequent=50, sampled=80), V, torch.Generator())
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                loss = objective.loss(latents_NKM, prior_NK.log_softmax(-1), weight_VM, bias_V, targets_N)
            gradients = [gradient.to_dense() for gradient in torch.autograd.grad(loss, inputs)]
            found.append([loss.detach(), objective.scores_N, *gradients])
    finally:
        torch.set_num_threads(threads_before)
        kernel.accelerate(before is not None)
    for plain, compiled in zip(*found, strict=True):
        # In bfloat16 a probability that lies between two numbers may be rounded to either.
        torch.testing.assert_close(compiled, plain, rtol=2e-3 if low else 2e-5, atol=2e-4 if low else 1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_targets_logit_is_exact_in_bfloat16_too(compiled) -> None:
    if compiled and shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    # One candidate beside the target, so far below it that only the target's own logit and bias count.
    latents_11M = torch.full((1, 1, 64), 0.1 + 1e-4)
    weight_VM = torch.stack([torch.full((64,), 0.3), torch.full((64,), -30.0)])
    before = kernel.active()
    kernel.accelerate(compiled)
    try:
        objective = Objective(ObjectiveConfig(), 2, torch.Generator())
        with torch.autocast("cpu", torch.bfloat16):
            objective.loss(latents_11M, None, weight_VM, torch.tensor([0.0, 190.0]), torch.tensor([0]))
    finally:
        kernel.accelerate(before is not None)
    # ln p = −ln(1 + e^d), d the other logit, in bfloat16, minus the target's.
    other = float((latents_11M[0, 0].bfloat16() @ weight_VM[1].bfloat16()).float()) + 190.0
    own = float(latents_11M[0, 0].double() @ weight_VM[0].double())
    expected = -torch.tensor(other - own).double().exp().log1p()
    assert objective.scores_N is not None
    assert float(objective.scores_N[0]) == pytest.approx(float(expected), abs=1e-4)
