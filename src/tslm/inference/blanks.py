"""Blanks for models that only read from left to right: every filling scored, or fillings drawn from another model.

One blank has as many fillings as there are words: all are scored, and the answer is exact. Several blanks have far too
many; fillings are drawn from the exact posterior of a model that has one (the *proposal*: n-gram or probabilistic), and
each is weighed by how much likelier the model itself finds it. That is importance sampling: an estimate, with the
number of draws that it is worth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.errors import CorpusError, NumberError, UnsupportedError
from tslm.models.base import LanguageModel
from tslm.models.ngram.blanks import FillsBlanks, JointFilling, Pattern, Span
from tslm.shapes import Float, Int
from tslm.stopping import check_wanted

AT_ONCE = 1 << 12
"""How many words are scored together."""

MOST_DRAWS = 1_000_000


@dataclass(frozen=True)
class WeighedFilling:
    """Some fillings of a pattern and their probabilities; all of them, or a weighed sample."""

    log_probability: float
    """Ln p of the pattern, all fillings together; an estimate where they are a sample."""
    places: tuple[int | None, ...]
    words_NK: Int[np.ndarray, "N K"]
    """Fillings, each once."""
    share_N: Float[np.ndarray, "N"]
    """The probability of each given the pattern."""
    vocabulary: int
    effective: float | None
    """How many independent draws from the model itself the sample is worth; None where nothing was drawn."""

    @property
    def posteriors(self) -> Float[np.ndarray, "K V"]:
        """For each blank the probability of each word, given the whole pattern."""
        rows_KV = np.zeros((self.words_NK.shape[1], self.vocabulary))
        for row_V, words_N in zip(rows_KV, self.words_NK.T, strict=True):
            np.add.at(row_V, words_N, self.share_N)
        return rows_KV

    def best(self, top: int, limit: int = 0) -> list[JointFilling]:
        """Return the most probable fillings among those at hand, the best first."""
        order = np.argsort(-self.share_N, kind="stable")[:top]
        return [
            JointFilling(tuple(self.words_NK[number].tolist()), float(self.share_N[number]))
            for number in order
        ]

    def sample(self, count: int, seed: int) -> Int[np.ndarray, "count K"]:
        """Return fillings drawn by their probabilities.

        Raises:
            CorpusError: the pattern is impossible.
            NumberError: the seed is below 0.
        """
        if seed < 0:
            raise NumberError(f"seed {seed}; expected 0 or more")
        if self.log_probability == -math.inf:
            raise CorpusError(
                "the pattern has probability zero, so nothing can be drawn; use a smoothed model"
            )
        chosen = np.random.default_rng(seed).choice(len(self.share_N), count, p=self.share_N)
        return self.words_NK[chosen]

    def sample_lines(self, count: int, seed: int, limit: int = 0) -> list[list[int]]:
        """Return whole lines with the blanks drawn; they do not go on behind the pattern."""
        if limit > 0:
            raise UnsupportedError("only models with exact blanks go on behind a pattern; leave --go-on out")
        return [_put(self.places, filling) for filling in self.sample(count, seed).tolist()]


def fill_by_scoring(
    model: LanguageModel[Any],
    pattern: Pattern,
    *,
    span: Span,
    exclude: Sequence[int] = (),
    proposal: LanguageModel[Any] | None = None,
    draws: int = 1000,
    seed: int = 1,
) -> WeighedFilling:
    """Fill the blanks of a pattern with a model that reads from left to right.

    Args:
        model: any model.
        pattern: word ids, None for each blank.
        span: ``sentence`` or ``prefix``: such a model cannot begin in the middle of a line.
        exclude: words that may not stand in a blank, beside ``<eos>``.
        proposal: a model of the same words with exact blanks; needed for more than one blank.
        draws: how many fillings to draw from it.
        seed: for the draws.

    Raises:
        UnsupportedError: the span needs an unknown history, or there are several blanks and no proposal.
        CorpusError: the pattern is empty, or the proposal knows other words or finds it impossible.
        NumberError: the number of draws is out of range.
    """
    if not pattern:
        raise CorpusError("the pattern has no words and no blanks; give at least one, for example 'the ? of'")
    if span not in ("sentence", "prefix"):
        raise UnsupportedError(
            f"a model of kind {model.kind!r} reads every line from its beginning; take --as sentence or prefix"
        )
    if not 1 <= draws <= MOST_DRAWS:
        raise NumberError(f"draws {draws} must be 1 to {MOST_DRAWS:,}")
    eos_id, size = model.vocabulary.eos_id, len(model.vocabulary)
    places = (*pattern, eos_id) if span == "sentence" else tuple(pattern)
    blanks = sum(word is None for word in pattern)
    log_proposal_N, counts_N = np.zeros(1), np.ones(1)
    if blanks <= 1:
        allowed = [word for word in range(size) if word != eos_id and word not in exclude]
        words_NK = np.array(allowed, np.int64)[:, None] if blanks else np.zeros((1, 0), np.int64)
    elif not isinstance(proposal, FillsBlanks):
        raise UnsupportedError(
            f"a model of kind {model.kind!r} would have to be run once for every filling of {blanks} blanks; give an "
            "n-gram or probabilistic run of the same words with --proposal, from which fillings are drawn"
        )
    else:
        if proposal.vocabulary.words != model.vocabulary.words:
            raise CorpusError("the proposal knows other words than the model; train both on the same corpus")
        found = proposal.fill(pattern, span=span, exclude=exclude)
        if found.log_probability == -math.inf:
            raise CorpusError("the proposal finds the pattern impossible; give a smoothed one")
        words_NK, counts_N = np.unique(found.sample(draws, seed), axis=0, return_counts=True)
        scored_N = _score(proposal, places, words_NK)
        # A filling that was drawn n times stands n times in the mean; its proposal probability is given the pattern.
        log_proposal_N = scored_N - found.log_probability - np.log(counts_N / draws)
    log_weight_N = _score(model, places, words_NK) - log_proposal_N
    best = float(log_weight_N.max())
    if best == -math.inf:
        return WeighedFilling(-math.inf, places, words_NK, np.zeros(len(words_NK)), size, None)
    weight_N = np.exp(log_weight_N - best)
    share_N = weight_N / weight_N.sum()
    effective = None
    if blanks > 1:
        # Of the single draws, not of the fillings, of which some were drawn several times.
        effective = float(1 / (share_N**2 / counts_N).sum())
    return WeighedFilling(best + math.log(float(weight_N.sum())), places, words_NK, share_N, size, effective)


def _put(places: Sequence[int | None], filling: Sequence[int]) -> list[int]:
    rest = iter(filling)
    return [next(rest) if word is None else word for word in places]


def _score(
    model: LanguageModel[Any], places: Sequence[int | None], words_NK: Int[np.ndarray, "N K"]
) -> Float[np.ndarray, "N"]:
    """Return ln p of the pattern with each filling."""
    lines_NT = np.array([_put(places, filling) for filling in words_NK.tolist()], np.int64)
    step = max(1, AT_ONCE // lines_NT.shape[1])
    parts: list[NDArray[np.float64]] = []
    for begin in range(0, len(lines_NT), step):
        check_wanted()
        part = lines_NT[begin : begin + step]
        scores, _ = model.score(part, model.start(len(part)))
        parts.append(scores.astype(np.float64).sum(1))
    return np.concatenate(parts)
