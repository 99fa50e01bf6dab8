"""Blanks for models that only read from left to right: every filling scored, or fillings drawn from another model.

One blank has as many fillings as there are words: all are scored, and the answer is exact. A model whose states branch
(:class:`Branches`) reads what stands before the blank once.

Several blanks have far too many fillings; some are drawn from the exact posterior of a model that has one (the
*proposal*: n-gram or probabilistic), and each is weighed by how much likelier the model itself finds it. That is
importance sampling: an estimate, with the number of draws that it is worth.

A proposal that is too sure of itself would never draw what it finds impossible, and nobody would notice. So some
fillings are drawn by the model itself as it reads from left to right, blind to what follows a blank; all draws count as
draws from the mixture of both. No filling then weighs more than the words behind the blanks allow. The model's own
draws alone would not do: what follows may depend on fillings so rare that a thousand draws agree on a wrong answer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.errors import CorpusError, NumberError, UnsupportedError
from tslm.models.base import Branches, LanguageModel
from tslm.models.ngram.blanks import FillsBlanks, JointFilling, Pattern, Span
from tslm.shapes import Float, Int
from tslm.stopping import check_wanted

AT_ONCE = 1 << 12
"""How many words are scored together."""

DRAWN_AT_ONCE = 1 << 8
"""How many texts a model draws words for together: each takes a whole distribution."""

MOST_DRAWS = 1_000_000

OWN_SHARE = 0.2
"""Which part of the draws is the model's own."""


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
    """How many independent draws from the true posterior the sample is worth; None where nothing was drawn."""
    error: float = 0.0
    """The standard error of ``log_probability``."""

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
        proposal: a model of the same words with exact blanks, from which most fillings are drawn; needed for more than
            one blank.
        draws: how many fillings to draw.
        seed: for the draws.

    Raises:
        UnsupportedError: the span needs an unknown history, or several blanks have no proposal with exact ones.
        CorpusError: the pattern is empty, or the proposal knows other words or finds it impossible.
        NumberError: the number of draws is out of range, or none of them is possible.
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
    barred = {eos_id, *exclude}
    if blanks <= 1:
        allowed = [word for word in range(size) if word not in barred]
        words_NK = np.array(allowed, np.int64)[:, None] if blanks else np.zeros((1, 0), np.int64)
        counts_N = np.ones(len(words_NK), np.int64)
        if blanks and isinstance(model, Branches):
            log_weight_N = _branch(model, places, words_NK[:, 0])
        else:
            log_weight_N = _score(model, places, words_NK).sum(1)
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
        own = round(OWN_SHARE * draws)
        drawn = [_draw_forward(model, places, barred, own, seed), found.sample(draws - own, seed)]
        words_NK, counts_N = np.unique(np.concatenate(drawn), axis=0, return_counts=True)
        scores_NT = _score(model, places, words_NK)
        # The model reads on blind to what follows, so the chance of its draw is that of the words in the blanks alone.
        log_own_N = scores_NT[:, [word is None for word in places]].sum(1)
        log_given_N = _score(proposal, places, words_NK).sum(1) - found.log_probability
        with np.errstate(divide="ignore"):
            log_q_N = np.logaddexp(np.log(own / draws) + log_own_N, np.log(1 - own / draws) + log_given_N)
        # A filling that was drawn n times stands n times in the mean of p / q.
        log_weight_N = scores_NT.sum(1) - log_q_N + np.log(counts_N / draws)
    best = float(log_weight_N.max(initial=-math.inf))
    if best == -math.inf:
        if blanks > 1:
            raise NumberError(
                f"none of the {draws:,} fillings drawn is possible; draw more, or give a proposal"
            )
        return WeighedFilling(-math.inf, places, words_NK, np.zeros(len(words_NK)), size, None)
    weight_N = np.exp(log_weight_N - best)
    share_N = weight_N / weight_N.sum()
    log_probability = best + math.log(float(weight_N.sum()))
    if blanks <= 1:
        return WeighedFilling(log_probability, places, words_NK, share_N, size, None)
    # Of the single draws, not of the fillings, of which some were drawn several times.
    effective = float(1 / (share_N**2 / counts_N).sum())
    error = math.sqrt(max(1 / effective - 1 / draws, 0))
    return WeighedFilling(log_probability, places, words_NK, share_N, size, effective, error)


def _branch(
    model: LanguageModel[Any], places: Sequence[int | None], words_N: Int[np.ndarray, "N"]
) -> Float[np.ndarray, "N"]:
    """Return ln p of the pattern with each word in its one blank; what stands before it is read once."""
    assert isinstance(model, Branches)  # noqa: S101
    blank = places.index(None)
    log_before, state = 0.0, model.start(1)
    if blank:
        scores, state = model.score(np.array([places[:blank]], np.int64), state)
        log_before = float(scores.astype(np.float64).sum())
    log_weight_N = log_before + model.predict(state)[0, words_N].astype(np.float64)
    behind_T = np.array(places[blank + 1 :], np.int64)
    step = AT_ONCE // max(1, len(behind_T)) + 1
    for begin in range(0, len(words_N) if len(behind_T) else 0, step):
        check_wanted()
        words_n = words_N[begin : begin + step]
        branches = model.branch(state, np.zeros_like(words_n), words_n)
        scores, _ = model.score(np.tile(behind_T, (len(words_n), 1)), branches)
        log_weight_N[begin : begin + step] += scores.astype(np.float64).sum(1)
    return log_weight_N


def _draw_forward(
    model: LanguageModel[Any], places: Sequence[int | None], barred: Collection[int], draws: int, seed: int
) -> Int[np.ndarray, "N K"]:
    """Return fillings that the model draws as it reads on; those with a barred word are left out, and fill nothing."""
    random = np.random.default_rng(seed)
    last = max(place for place, word in enumerate(places) if word is None)
    parts = [np.zeros((0, sum(word is None for word in places)), np.int64)]
    for begin in range(0, draws, DRAWN_AT_ONCE):
        count = min(DRAWN_AT_ONCE, draws - begin)
        state = model.start(count)
        filled: list[NDArray[np.int64]] = []
        for word in places[: last + 1]:
            check_wanted()
            if word is None:
                edges_BV = np.exp(model.predict(state).astype(np.float64)).cumsum(1)
                at_B1 = random.random((count, 1)) * edges_BV[:, -1:]
                read_B = np.minimum((edges_BV <= at_B1).sum(1), edges_BV.shape[1] - 1)
                filled.append(read_B)
            else:
                read_B = np.full(count, word, np.int64)
            _, state = model.score(read_B[:, None], state)
        parts.append(np.stack(filled, 1))
    words_NK = np.concatenate(parts)
    return words_NK[~np.isin(words_NK, list(barred)).any(1)]


def _put(places: Sequence[int | None], filling: Sequence[int]) -> list[int]:
    rest = iter(filling)
    return [next(rest) if word is None else word for word in places]


def _score(
    model: LanguageModel[Any], places: Sequence[int | None], words_NK: Int[np.ndarray, "N K"]
) -> Float[np.ndarray, "N T"]:
    """Return ln p of each word of the pattern with each filling."""
    lines_NT = np.array([_put(places, filling) for filling in words_NK.tolist()], np.int64)
    step = max(1, AT_ONCE // lines_NT.shape[1])
    parts: list[NDArray[np.float64]] = []
    for begin in range(0, len(lines_NT), step):
        check_wanted()
        part = lines_NT[begin : begin + step]
        scores, _ = model.score(part, model.start(len(part)))
        parts.append(scores.astype(np.float64))
    return np.concatenate(parts)
