from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tslm.errors import NumberError
from tslm.training.gate import GateTrainer, gate_loss, learn_gate, nats_of


def make_words(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Words for which the sign of the first of two numbers says which of two models is right."""
    random = np.random.default_rng(seed)
    known = random.normal(size=(count, 2)) * (3.0, 1.0) + (1.0, 0.0)
    right = known[:, 0] > 1
    log = np.log(np.where(np.stack([right, ~right], 1), 0.5, 0.05))
    return known, log


def test_value_and_gradient_of_the_loss_are_those_of_the_equation() -> None:
    random = np.random.default_rng(1)
    log_BK = np.log(random.uniform(0.01, 1, (6, 3)))
    logits_BK = torch.tensor(random.normal(size=(6, 3)), requires_grad=True)
    loss = gate_loss(logits_BK, torch.from_numpy(log_BK))
    loss.backward()
    expected, gradient = 0.0, np.zeros((6, 3))
    for row, (logits, log) in enumerate(zip(logits_BK.detach().numpy(), log_BK, strict=True)):
        weights = [math.exp(logit) / sum(map(math.exp, logits)) for logit in logits]
        mixed = sum(weight * math.exp(value) for weight, value in zip(weights, log, strict=True))
        expected -= math.log(mixed) / 6
        for k, (weight, value) in enumerate(zip(weights, log, strict=True)):
            # d(−ln p)/d(logit k) = λ_k − (share of part k in the mixed probability)
            gradient[row, k] = (weight - weight * math.exp(value) / mixed) / 6
    assert loss.item() == pytest.approx(expected)
    np.testing.assert_allclose(logits_BK.grad, gradient, atol=1e-12)


def test_it_begins_with_the_fixed_weights_and_learns_whom_to_trust() -> None:
    known, log = make_words(4000)
    weights = np.array([0.3, 0.7])
    begun = GateTrainer(known, log, weights, hidden=4).gate()
    np.testing.assert_allclose(np.exp(begun(known)), np.broadcast_to(weights, log.shape), atol=1e-6)
    gate, halves = learn_gate(known, log, weights, hidden=8)
    other, its_log = make_words(1000, seed=9)
    best = math.log(2)
    assert halves == pytest.approx(math.exp(nats_of(gate, other, its_log) / 1000), rel=0.03)
    assert best < nats_of(gate, other, its_log) / 1000 < best + 0.15
    fixed = -np.log(np.exp(its_log) @ [0.5, 0.5]).mean()
    assert nats_of(gate, other, its_log) / 1000 < fixed - 0.3


def test_noise_leaves_the_weights_fixed_and_the_same_seed_gives_the_same_gate() -> None:
    random = np.random.default_rng(3)
    known, log = random.normal(size=(300, 40)), np.log(random.uniform(0.1, 1, (300, 2)))
    gate, halves = learn_gate(known, log, np.array([0.5, 0.5]), hidden=8)
    even = math.exp(-np.log(np.exp(log) @ [0.5, 0.5]).mean())
    assert halves <= even * (1 + 1e-9)
    again, _ = learn_gate(known, log, np.array([0.5, 0.5]), hidden=8)
    np.testing.assert_array_equal(gate(known), again(known))


def test_what_never_changes_says_nothing_and_an_impossible_word_is_refused() -> None:
    known, log = make_words(200)
    gate, _ = learn_gate(np.concatenate([known, np.ones((200, 1))], 1), log, np.array([0.5, 0.5]), hidden=4)
    assert np.isfinite(gate(np.array([[0.0, 0.0, 1.0]]))).all()
    log[3] = -np.inf
    with pytest.raises(NumberError, match="impossible"):
        learn_gate(known, log, np.array([0.5, 0.5]), hidden=4)
