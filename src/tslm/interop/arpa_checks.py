"""Whether the probabilities of an imported model sum to one after each history, as those of a language model must."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tslm.models.ngram.backoff import BackoffModel
from tslm.models.ngram.messages import Dense
from tslm.models.ngram.sweep import Sweep, SweptBlank
from tslm.models.ngram.trie import ROOT

TOLERANCE = 1e-3
"""How far a sum may be from one: files round their logarithms to five digits or more."""

SAMPLE = 500
"""Histories that are looked at, beside the empty one and the begin of a line."""

ENTRIES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Normalisation:
    """The sums of a model's probabilities."""

    histories: int
    """How many were looked at."""

    off: int
    """After how many of them the probabilities do not sum to one."""

    worst: float
    """The sum that is farthest from one."""

    history: str
    """The words after which it is."""

    @property
    def finite(self) -> bool:
        """Whether all sums are numbers."""
        return bool(np.isfinite(self.worst))

    def __str__(self) -> str:
        return (
            f"after {self.off:,} of {self.histories:,} histories looked at the probabilities do not sum to one "
            f"(to {self.worst:.6g} after {self.history!r})"
        )


def measure_normalisation(model: BackoffModel, *, everywhere: bool = False) -> Normalisation:
    """Sum the probabilities of all words after a sample of histories, or after every one.

    Example:
        >>> measure_normalisation(tslm.load("runs/asv-kn5"), everywhere=True).off
        0
    """
    trie = model.table.trie
    if everywhere and trie.order > 1:
        states = np.arange(trie.context_count)
        with np.errstate(over="ignore", invalid="ignore"):
            sums = _sum_everywhere(model)
    else:
        states = np.random.default_rng(0).permutation(trie.context_count)[:SAMPLE]
        states = np.unique([ROOT, min(trie.begin, trie.context_count - 1), *states.tolist()])
        with np.errstate(over="ignore", invalid="ignore"):
            sums = _sum_some(model, states)
    distance = np.where(np.isfinite(sums), np.abs(sums - 1), np.inf)
    worst = int(distance.argmax())
    return Normalisation(
        histories=len(states),
        off=int((distance > TOLERANCE).sum()),
        worst=float(sums[worst]),
        history=_spell(model, int(states[worst])),
    )


def _sum_everywhere(model: BackoffModel) -> Float[np.ndarray, "C"]:
    """Sum a blank that may be any word, over the whole tree at once."""
    trie = model.table.trie
    anything = np.ones(trie.vocabulary_size, np.bool_)
    blank = SweptBlank(Sweep(model.table, model.vocabulary.eos_id, anything))
    return blank.backward(Dense(np.ones(trie.context_count))).values.astype(np.float64)


def _sum_some(model: BackoffModel, states: Int[np.ndarray, "Q"]) -> Float[np.ndarray, "Q"]:
    step = max(1, ENTRIES_AT_ONCE // len(model.vocabulary))
    parts = [
        np.exp(model.predict(states[start : start + step])).sum(1) for start in range(0, len(states), step)
    ]
    return np.concatenate(parts)


def _spell(model: BackoffModel, state: int) -> str:
    trie = model.table.trie
    level = int(trie.order_of(np.array([state]))[0])
    names = (*model.vocabulary.words, "<s>")
    return " ".join(names[word] for word in trie.spell(np.array([state]), level)[0])
