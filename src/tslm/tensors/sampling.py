"""Exact samples from a tensor train, word by word, in two readings of its entries.

    >>> from tslm.tensors import draw_train, norm
    >>> train = draw_train((2, 3, 2), 2, seed=3)
    >>> drawn = sample_born(train, 1000, seed=0)  # p ∝ |T[d₁…dₙ]|², the Born rule of quantum mechanics
    >>> drawn.indices.shape
    torch.Size([1000, 3])
    >>> torch.allclose(drawn.log_probabilities.exp(), train.evaluate(drawn.indices).abs()**2 / norm(train)**2)
    True
    >>> positive = TensorTrain(tuple(core.abs() for core in train.cores))
    >>> sample_entries(positive, 5, seed=0).indices.shape  # p ∝ T[d₁…dₙ], the paper's Eq. 11
    torch.Size([5, 3])

Each index is drawn from its exact conditional distribution given those before it: no Markov chain, no rejection.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tslm.errors import NumberError
from tslm.tensors.canonical import canonicalise
from tslm.tensors.train import TensorTrain


@dataclass(frozen=True)
class Samples:
    """Indices drawn, and what each was worth."""

    indices: Int[Tensor, "B N"]
    log_probabilities: Float[Tensor, " B"]
    """ln of the exact probability of each sample."""


def sample_born(train: TensorTrain, count: int, *, seed: int = 0) -> Samples:
    """Draw indices with probability |T[d₁…dₙ]|² / ‖T‖².

    In right canonical form all that stands behind a mode is orthonormal, so the weight of a beginning is the
    squared length of its row vector.

    Raises:
        NumberError: the train is zero.
    """
    cores = canonicalise(train, 0, unit=True).cores
    return _draw(train, cores, [None] * len(cores), count, seed)


def sample_entries(train: TensorTrain, count: int, *, seed: int = 0) -> Samples:
    """Draw indices with probability T[d₁…dₙ] / ΣT, for a train whose entries are not negative.

    Raises:
        NumberError: a beginning has a negative weight, so the entries are no probabilities; or their sum is 0.
    """
    if train.dtype.is_complex:
        raise NumberError("a complex train has no entries to take for probabilities; use sample_born")
    rest = torch.ones(1, dtype=train.dtype, device=train.cores[0].device)
    behind: list[Tensor | None] = [rest]
    for core in reversed(train.cores[1:]):
        rest = core.sum(1).to(rest) @ rest
        # Only ratios count, and the sums of a long train leave the range of numbers.
        rest = rest / rest.abs().max().clamp(min=torch.finfo(train.dtype).tiny)
        behind.append(rest)
    return _draw(train, train.cores, behind[::-1], count, seed)


@torch.no_grad()
def _draw(
    train: TensorTrain, cores: tuple[Tensor, ...], behind: list[Tensor | None], count: int, seed: int
) -> Samples:
    """Draw index after index; ``behind`` sums up the modes to come, None where squares do."""
    device = cores[0].device
    numbers = torch.Generator("cpu").manual_seed(seed)
    rows = torch.ones(count, 1, dtype=train.dtype, device=device)
    indices: list[Tensor] = []
    logs = torch.zeros(count, dtype=torch.float64, device=device)
    for core, rest in zip(cores, behind, strict=True):
        grown = torch.einsum("ba,amc->bmc", rows, core.to(train.dtype))
        weights = (grown.abs().square().sum(2) if rest is None else grown @ rest).double()
        total, least = weights.sum(1), weights.amin(1)
        if bool((least < -1e-9 * weights.abs().amax(1)).any()):
            raise NumberError(f"a weight of {float(least.min()):.3g}: negative entries are no probabilities")
        if bool((total <= 0).any()):
            raise NumberError("all weights are 0: there is nothing to draw")
        shares = weights.clamp(min=0) / total[:, None]
        drawn = torch.multinomial(shares.cpu(), 1, generator=numbers)[:, 0].to(device)
        logs += shares.gather(1, drawn[:, None])[:, 0].log()
        indices.append(drawn)
        rows = grown[torch.arange(count, device=device), drawn]
        rows = rows / rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(train.dtype).tiny)
    return Samples(torch.stack(indices, 1), logs)
