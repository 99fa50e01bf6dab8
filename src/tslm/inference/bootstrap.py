"""How sure a difference between two models is, and where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.errors import NumberError
from tslm.shapes import Float

CONTEXT = 6
"""How many words before a word are shown with it."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean with its confidence interval."""

    mean: float
    low: float
    high: float
    better: float
    """The share of the drawn texts on which the mean is above zero."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A word on which two models disagree."""

    line: int
    context: str
    word: str
    log_probabilities: tuple[float, float]
    """Ln p of the word under the first model and under the other."""


def bootstrap(
    gains_L: Float[np.ndarray, " L"],
    sizes_L: Float[np.ndarray, " L"],
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 1,
) -> Interval:
    """Return what a model gains over another, by drawing the lines of a text again and again, with replacement.

    Both models are compared on the same drawn lines (a paired bootstrap), so what makes a line hard for both of them
    falls out. Lines, not words, are drawn, since the words of a line depend on each other.

    Args:
        gains_L: by how many nats the other model is better on each line.
        sizes_L: how many tokens, or bytes, each line has; the mean is per one of them.
        resamples: how many texts are drawn.
        confidence: the share of them inside the interval.
        seed: the same seed draws the same texts.

    Raises:
        NumberError: a model finds a word impossible, so there is no difference to speak of.
    """
    if not np.isfinite(gains_L).all():
        raise NumberError("a model finds some word of the text impossible; its perplexity is infinite")
    if resamples < 1 or not 0 < confidence < 1:
        raise NumberError(
            f"resamples {resamples} must be 1 or more and confidence {confidence} between 0 and 1"
        )
    generator = np.random.default_rng(seed)
    lines = len(gains_L)
    means = np.empty(resamples)
    for place in range(resamples):
        drawn = generator.integers(lines, size=lines)
        means[place] = gains_L[drawn].sum() / sizes_L[drawn].sum()
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(
        mean=float(gains_L.sum() / sizes_L.sum()),
        low=float(low),
        high=float(high),
        better=float((means > 0).mean()),
    )


def find_places(
    first_N: Float[np.ndarray, " N"],
    other_N: Float[np.ndarray, " N"],
    lines_N: NDArray[np.integer[Any]],
    words: Sequence[str],
    *,
    top: int = 10,
) -> dict[str, list[Place]]:
    """Return the words where each of two models is furthest ahead: ``first`` and ``other``.

    Args:
        first_N: ln p of every token under the first model.
        other_N: the same under the other.
        lines_N: the number of the line of every token, from 0.
        words: the tokens.
        top: how many of each.
    """
    difference_N = np.nan_to_num(other_N - first_N)
    order = np.argsort(difference_N, kind="stable")
    chosen = {"first": order[:top], "other": order[::-1][:top]}
    return {
        name: [
            _place(int(place), first_N, other_N, lines_N, words)
            for place in places
            if (difference_N[place] < 0) == (name == "first") and difference_N[place] != 0
        ]
        for name, places in chosen.items()
    }


def _place(
    place: int,
    first_N: NDArray[np.float64],
    other_N: NDArray[np.float64],
    lines_N: NDArray[np.integer[Any]],
    words: Sequence[str],
) -> Place:
    begin = place
    while begin > max(0, place - CONTEXT) and lines_N[begin - 1] == lines_N[place]:
        begin -= 1
    return Place(
        line=int(lines_N[place]) + 1,
        context=" ".join(words[begin:place]),
        word=words[place],
        log_probabilities=(float(first_N[place]), float(other_N[place])),
    )
