"""Models side by side on the same text: how far apart, how surely, and where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from tslm.corpus.vocabulary import EOS
from tslm.errors import CorpusError, NumberError
from tslm.evaluation.perplexity import perplexity
from tslm.inference.score import read_lines, score_ids
from tslm.models.base import LanguageModel

CONTEXT = 6
"""How many words before a word are shown with it."""

Tick = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How a model differs from the first one, with what confidence."""

    nats_per_token: float
    """The mean of ln p(model) − ln p(first); positive where the model is better than the first."""
    low: float
    """The lower end of the bootstrap's confidence interval of that mean."""
    high: float
    """The upper end."""
    better: float
    """The share of the resampled texts on which the model is better than the first."""
    perplexity_ratio: float
    """The model's perplexity divided by the first one's."""
    ratio_low: float
    ratio_high: float


@dataclass(frozen=True, kw_only=True)
class Place:
    """A word on which two models disagree."""

    line: int
    context: str
    word: str
    log_probabilities: tuple[float, float]
    """Ln p of the word under the first model and under the other."""


def bootstrap(
    first_N: Float[np.ndarray, " N"],
    other_N: Float[np.ndarray, " N"],
    lines_N: NDArray[np.integer[Any]],
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 1,
) -> Difference:
    """Compare two models by drawing the lines of a text again and again, with replacement.

    Both models are compared on the same drawn lines (a paired bootstrap), so what makes a line hard for both of them
    falls out. Lines, not words, are drawn, since the words of a line depend on each other.

    Args:
        first_N: ln p of every token under the first model.
        other_N: the same under the other.
        lines_N: the number of the line of every token, from 0.
        resamples: how many texts are drawn.
        confidence: the share of them inside the interval.
        seed: the same seed draws the same texts.

    Raises:
        NumberError: a model finds a word impossible, so there is no difference to speak of.
    """
    difference_N = other_N - first_N
    if not np.isfinite(difference_N).all():
        raise NumberError("a model finds some word of the text impossible; its perplexity is infinite")
    if resamples < 1 or not 0 < confidence < 1:
        raise NumberError(
            f"resamples {resamples} must be 1 or more and confidence {confidence} between 0 and 1"
        )
    nats_L = np.bincount(lines_N, weights=difference_N)
    tokens_L = np.bincount(lines_N).astype(np.float64)
    generator = np.random.default_rng(seed)
    lines = len(nats_L)
    means = np.empty(resamples)
    for place in range(resamples):
        drawn = generator.integers(lines, size=lines)
        means[place] = nats_L[drawn].sum() / tokens_L[drawn].sum()
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    mean = float(difference_N.mean())
    return Difference(
        nats_per_token=mean,
        low=float(low),
        high=float(high),
        better=float((means > 0).mean()),
        perplexity_ratio=float(np.exp(-mean)),
        ratio_low=float(np.exp(-high)),
        ratio_high=float(np.exp(-low)),
    )


def find_differences(
    first_N: Float[np.ndarray, " N"],
    other_N: Float[np.ndarray, " N"],
    lines_N: NDArray[np.integer[Any]],
    words: Sequence[str],
    *,
    top: int = 10,
) -> dict[str, list[Place]]:
    """Return the words where each of two models is furthest ahead: ``first`` and ``other``."""
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


def compare(
    models: Sequence[tuple[str, LanguageModel[Any]]],
    words: Sequence[str],
    *,
    top: int = 10,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 1,
    tick: Tick | None = None,
) -> dict[str, Any]:
    """Return models side by side on the same text as plain values.

    Args:
        models: each with a name; the others are compared with the first.
        words: the text as words, one ``<eos>`` after each line; each model encodes it with its own vocabulary.
        top: how many words where they differ most.
        resamples: of the bootstrap.
        confidence: of its interval.
        seed: of its draws.
        tick: told how many more tokens have been scored.

    Returns:
        ``models`` (name, kind, parameters, perplexity, unknown words), ``differences`` from the first model,
        ``places`` where they differ most, and ``same_vocabulary``: without it perplexities cannot be compared, since a
        model that knows fewer words has fewer to choose from.
    """
    if not words:
        raise CorpusError("the text to compare on has no token; give at least one line")
    reports: list[dict[str, Any]] = []
    scores: list[NDArray[np.float64]] = []
    for name, model in models:
        ids = model.vocabulary.encode(words)
        scores.append(score_ids(model, ids, tick=tick))
        nats = -float(scores[-1].sum())
        unknown = model.vocabulary.unk_id
        reports.append(
            {
                "name": name,
                "kind": model.kind,
                "parameters": model.parameter_count,
                "vocabulary": len(model.vocabulary),
                "perplexity": perplexity(nats, len(ids)),
                "nats": nats,
                "tokens": len(ids),
                "unk_share": 0.0 if unknown is None else float((ids == unknown).mean()),
            }
        )
    ends = np.array([word == EOS for word in words])
    lines_N = np.concatenate([[0], np.cumsum(ends)[:-1]])
    differences: list[dict[str, Any]] = []
    for (name, _), scores_N in zip(models[1:], scores[1:], strict=True):
        found = find_differences(scores[0], scores_N, lines_N, words, top=top)
        sure = bootstrap(scores[0], scores_N, lines_N, resamples=resamples, confidence=confidence, seed=seed)
        differences.append(
            {
                "name": name,
                **asdict(sure),
                "places": {key: [asdict(place) for place in places] for key, places in found.items()},
            }
        )
    return {
        "models": reports,
        "same_vocabulary": len({frozenset(model.vocabulary.words) for _, model in models}) == 1,
        "confidence": confidence,
        "resamples": resamples,
        "differences": differences,
    }


def read_words(path: str) -> list[str]:
    """Return the words of a text file (``-`` for standard input), one ``<eos>`` after each line."""
    return [word for line in read_lines([path]) for word in (*line.split(), EOS)]


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
