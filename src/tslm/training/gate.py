"""The gate of a mixture, learnt from what its parts know before each word and how likely each found the word."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from tslm.errors import NumberError
from tslm.evaluation.perplexity import perplexity
from tslm.models.gate import Gate

RATE = 0.002
BATCH = 256
EPOCHS = 60
"""The most; small texts need many."""
PATIENCE = 3
"""How many epochs without a gain end the search for the best."""


class GateTrainer:
    """A gate in training, from the one weight per part that suits the text best.

    Args:
        known_NF: what the gate sees before each word.
        log_NK: ln p of the word under each part.
        weights: the fixed weights to begin with.
        hidden: the units of the gate.
        seed: decides the first weights and the order of the words.
    """

    def __init__(
        self,
        known_NF: NDArray[np.float64],
        log_NK: NDArray[np.float64],
        weights: NDArray[np.float64],
        *,
        hidden: int,
        seed: int = 1,
    ) -> None:
        self._random = torch.Generator().manual_seed(seed)
        F, K = known_NF.shape[1], log_NK.shape[1]
        self._mean_F = known_NF.mean(0)
        # What never changes says nothing, and is left as it is.
        spread_F = known_NF.std(0)
        self._spread_F = np.where(spread_F > 1e-6, spread_F, 1.0)
        self._known_NF = torch.from_numpy((known_NF - self._mean_F) / self._spread_F).float()
        self._log_NK = relative(log_NK)
        self.inner, self.outer = nn.Linear(F, hidden), nn.Linear(hidden, K)
        with torch.no_grad():
            self.inner.weight.copy_(torch.randn(hidden, F, generator=self._random) / F**0.5)
            self.inner.bias.zero_()
            self.outer.weight.zero_()
            # A part of no weight at all could never gain any.
            self.outer.bias.copy_(torch.from_numpy(np.log(np.maximum(weights, 1e-4))))
        parameters = [*self.inner.parameters(), *self.outer.parameters()]
        self._optimiser = torch.optim.Adam(parameters, lr=RATE)

    def epoch(self) -> None:
        """Learn from every word once."""
        order_N = torch.randperm(len(self._known_NF), generator=self._random)
        for batch in order_N.split(BATCH):
            hidden_BH = torch.tanh(self.inner(self._known_NF[batch]))
            loss = gate_loss(self.outer(hidden_BH), self._log_NK[batch])
            self._optimiser.zero_grad()
            loss.backward()
            self._optimiser.step()

    def gate(self) -> Gate:
        """Return the gate as it is now."""

        def array(tensor: Tensor) -> NDArray[np.float64]:
            return tensor.detach().double().numpy()

        return Gate(
            mean_F=self._mean_F,
            spread_F=self._spread_F,
            inner_HF=array(self.inner.weight),
            inner_bias_H=array(self.inner.bias),
            outer_KH=array(self.outer.weight),
            outer_bias_K=array(self.outer.bias),
        )


def gate_loss(logits_BK: Float[Tensor, "B K"], log_BK: Float[Tensor, "B K"]) -> Float[Tensor, ""]:
    """Return the mean of −ln Σ_k softmax(logits)_k p_k."""
    return -torch.logsumexp(logits_BK.log_softmax(1) + log_BK, 1).mean()


def relative(log_NK: NDArray[np.float64]) -> Tensor:
    """Return ln p of the parts relative to the likeliest, which changes no gradient and loses no digits."""
    best_N1 = log_NK.max(1, keepdims=True)
    if not bool(np.isfinite(best_N1).all()):
        raise NumberError("every model finds some word of the text impossible; add a smoothed model")
    return torch.from_numpy(log_NK - best_N1).float()


def learn_gate(
    known_NF: NDArray[np.float64],
    log_NK: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    hidden: int,
    seed: int = 1,
) -> tuple[Gate, float]:
    """Learn a gate from a text; how long, its two halves say of each other.

    A gate is learnt from each half and measured on the other after every epoch. The number of epochs that is best for
    both together (it may be none: then the weights stay fixed) is how long the gate learns from the whole.

    Args:
        known_NF: what the gate sees before each word.
        log_NK: ln p of the word under each part.
        weights: the fixed weights to begin with.
        hidden: the units of the gate.
        seed: decides the first weights and the order of the words.

    Returns:
        The gate, and the perplexity of both halves, each under the gate of the other.
    """
    count = len(known_NF)
    halves = [slice(0, count // 2), slice(count // 2, count)]
    trainers = [
        GateTrainer(known_NF[half], log_NK[half], weights, hidden=hidden, seed=seed) for half in halves
    ]

    def measure() -> float:
        return sum(
            nats_of(trainer.gate(), known_NF[other], log_NK[other])
            for trainer, other in zip(trainers, reversed(halves), strict=True)
        )

    found, epochs = measure(), 0
    for epoch in range(1, EPOCHS + 1):
        for trainer in trainers:
            trainer.epoch()
        nats = measure()
        if nats < found:
            found, epochs = nats, epoch
        elif epoch - epochs >= PATIENCE:
            break
    whole = GateTrainer(known_NF, log_NK, weights, hidden=hidden, seed=seed)
    for _ in range(epochs):
        whole.epoch()
    return whole.gate(), perplexity(found, count)


def nats_of(gate: Gate, known_NF: NDArray[np.float64], log_NK: NDArray[np.float64]) -> float:
    """Return −ln p of a text whose parts' probabilities are known."""
    mixed_NK = gate(known_NF) + log_NK
    best_N = mixed_NK.max(1)
    return -float((np.log(np.exp(mixed_NK - best_N[:, None]).sum(1)) + best_N).sum())
