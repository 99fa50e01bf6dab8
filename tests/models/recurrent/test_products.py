"""Products in bfloat16, and by oneDNN, are those of single precision but for rounding, values and gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from tslm.corpus.vocabulary import EOS, Vocabulary
from tslm.models.recurrent import products
from tslm.models.recurrent.affine import affine_scan
from tslm.models.recurrent.cells import CELLS
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.heads import HEADS
from tslm.models.recurrent.heads.base import score_targets
from tslm.models.recurrent.model import RecurrentModel
from tslm.models.recurrent.products import bfloat16_speed
from tslm.training.config import ObjectiveConfig
from tslm.training.objective import Objective

BITS = 2**-8
"""The rounding of a number of bfloat16."""


def lowered():
    return torch.autocast("cpu", torch.bfloat16)


def distance(ours, theirs) -> float:
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("split", [False, True])
def test_the_affine_scan(split) -> None:
    torch.manual_seed(0)
    T, B, R = 20, 4, 64
    hold, mix, add, keep = (torch.rand(T, B, R, requires_grad=True) for _ in range(4))
    state = torch.randn(B, R, requires_grad=True)
    W = (torch.randn(R, R) * 0.5 / R**0.5).requires_grad_()
    given = [hold, mix, add, state, W, *([keep] if split else [])]

    def run():
        states, _ = affine_scan(0.9 * hold, 0.3 * mix, add, state, W, keep_TBR=keep if split else None)
        return states, torch.autograd.grad(states.pow(2).sum(), given)

    exact, exact_gradients = run()
    with lowered():
        states, gradients = run()
    assert states.dtype == torch.float32
    assert 0 < distance(states.detach(), exact.detach()) < BITS
    for ours, theirs in zip(gradients, exact_gradients, strict=True):
        assert distance(ours, theirs) < 2 * BITS


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("head", HEADS)
def test_a_step_of_every_cell_and_head(cell, head) -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary((*(f"w{n}" for n in range(99)), EOS))
    config = RecurrentConfig(
        cell=CELLS[cell](), head=HEADS[head](), rank=32, embedding=48, output_gate="linear", layers=1
    )
    model = RecurrentModel(config, vocabulary)
    tokens_TB = torch.randint(100, (13, 5))
    parameters = list(model.parameters())

    def run():
        objective = Objective(ObjectiveConfig(), 100, torch.Generator().manual_seed(0))
        window = model.read_window(tokens_TB[:-1], tokens_TB[1:], model.begin(5), objective.loss)
        return window.nats, torch.autograd.grad(window.nats, parameters, allow_unused=True)

    exact, exact_gradients = run()
    with lowered():
        nats, gradients = run()
    assert 0 < abs(float((nats - exact).detach())) < BITS * float(exact.detach())
    for ours, theirs in zip(gradients, exact_gradients, strict=True):
        if theirs is not None:
            assert ours is not None
            assert ours.dtype == torch.float32
            assert float((ours - theirs).norm()) < 4 * BITS * float(theirs.norm()) + 1e-6


@pytest.mark.parametrize("config", [ObjectiveConfig(), ObjectiveConfig(frequent=50, sampled=60, power=0.5)])
@pytest.mark.parametrize("experts", [1, 3])
def test_the_objective(config, experts) -> None:
    torch.manual_seed(0)
    latents_NKM = torch.randn(600, experts, 32, requires_grad=True)
    prior_NK = torch.randn(600, experts).log_softmax(-1).requires_grad_()
    weight_VM = (torch.randn(200, 32) * 0.3).requires_grad_()
    bias_V, targets_N = torch.randn(200, requires_grad=True), torch.randint(200, (600,))
    given = [latents_NKM, prior_NK, weight_VM, bias_V]

    def run():
        objective = Objective(config, 200, torch.Generator().manual_seed(0))
        loss = objective.loss(latents_NKM, prior_NK, weight_VM, bias_V, targets_N)
        return loss, torch.autograd.grad(loss, given)

    exact, exact_gradients = run()
    with lowered():
        loss, gradients = run()
    assert 0 < abs(float((loss - exact).detach())) < 1e-3
    for ours, theirs in zip(gradients, exact_gradients, strict=True):
        assert distance(ours, theirs) < 2 * BITS


@pytest.fixture
def switch(monkeypatch):
    """Return a function that sets whether oneDNN multiplies, whatever the processor."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        pytest.skip("this PyTorch has no oneDNN")
    return lambda on: monkeypatch.setattr(products, "has_slow_mkl", lambda: on)


@pytest.mark.parametrize("shape", [(40, 24), (5, 8, 24), (2, 24), (0, 24)])
@pytest.mark.parametrize("bias", [True, False])
def test_onednn_multiplies_as_pytorch_does(shape, bias, switch) -> None:
    torch.manual_seed(0)
    x, b = torch.randn(shape, requires_grad=True), torch.randn(16, requires_grad=True) if bias else None
    # A transposed view, as the gradients of a product take them.
    W = torch.randn(24, 16).t().requires_grad_()
    given = [x, W, *([b] if bias else [])]
    expected = F.linear(x, W, b)
    towards = torch.randn_like(expected)
    expected_gradients = torch.autograd.grad(expected, given, towards)
    switch(True)
    assert products.by_onednn(x) == (x.numel() >= 32 * 24)
    found = products.linear(x, W, b)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(torch.autograd.grad(found, given, towards), expected_gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("config", [ObjectiveConfig(), ObjectiveConfig(frequent=20, sampled=30, power=0.5)])
@pytest.mark.parametrize("experts", [1, 3])
def test_a_loss_and_its_scores_by_onednn(config, experts, switch) -> None:
    torch.manual_seed(0)
    N, M, V = 300, 32, 100
    latents = torch.randn(N, experts, M, requires_grad=True)
    prior = torch.randn(N, experts).log_softmax(-1).requires_grad_()
    weight, bias = torch.randn(V, M, requires_grad=True), torch.randn(V, requires_grad=True)
    targets = torch.randint(V, (N,))

    def run(on):
        switch(on)
        objective = Objective(config, V, torch.Generator().manual_seed(1))
        loss = objective.loss(latents, prior, weight, bias, targets)
        gradients = torch.autograd.grad(loss, [latents, prior, weight, bias])
        with torch.no_grad():
            scores = score_targets(latents, prior, weight, bias, targets)
        return loss, scores, *(part.to_dense() for part in gradients)

    for ours, theirs in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_what_is_known_of_the_processor_decides(monkeypatch) -> None:
    for vendor, expected in (("AuthenticAMD", None), ("GenuineIntel", False)):
        products.has_slow_mkl.cache_clear()
        monkeypatch.setattr(products, "_read_processor", lambda vendor=vendor: f"vendor_id : {vendor}")
        usable = torch.backends.mkl.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"
        assert products.has_slow_mkl() == (usable if expected is None else expected)
    products.has_slow_mkl.cache_clear()


def test_the_speed_of_bfloat16_is_that_of_its_products() -> None:
    flags = Path("/proc/cpuinfo")
    if not flags.exists():
        pytest.skip("no flags of a processor to read here")
    named = set(flags.read_text().split())
    speed = bfloat16_speed()
    # What another process does at the time may spoil a measurement, but not by this much.
    assert 0.01 < speed < 20
    if "avx512f" in named and not named & {"avx512_bf16", "amx_bf16"}:
        assert speed < 1
