"""Products in bfloat16 are those of single precision but for rounding, values and gradients."""

from __future__ import annotations

import pytest
import torch

from tslm.corpus.vocabulary import EOS, Vocabulary
from tslm.models.recurrent.affine import affine_scan
from tslm.models.recurrent.cells import CELLS
from tslm.models.recurrent.heads import HEADS
from tslm.models.recurrent.model import RecurrentConfig, RecurrentModel
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
