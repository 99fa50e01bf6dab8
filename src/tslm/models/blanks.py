"""Claim 2. Sentences with blanks: exact probabilities, posteriors, best fillings and samples.

A blank stands for exactly one word other than ``<eos>``. A pattern is by default a whole sentence, from the
begin of the line to its ``<eos>``; a *prefix* may go on after its last word, a *suffix* starts with the
history unknown (empty), and a *fragment* is both.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count as counter
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError, UnsupportedError
from tslm.models.contraction import Blank, Weighted, expand, gather, line_start, read_word
from tslm.models.smoothing import BackoffTable, FloatArray
from tslm.models.trie import ROOT, IntArray

Span = Literal["sentence", "prefix", "suffix", "fragment"]

Pattern = Sequence[int | None]
"""Word ids, with None for a blank."""


class Filling(Protocol):
    """What a model says about a pattern."""

    @property
    def log_probability(self) -> float:
        """Ln p of the pattern, all fillings together."""
        ...

    @property
    def posteriors(self) -> Float[np.ndarray, "K V"]:
        """For each blank the probability of each word, given the whole pattern."""
        ...

    def best(self, top: int, limit: int = ...) -> list[JointFilling]:
        """Return the most probable fillings of all blanks together."""
        ...

    def sample(self, count: int, seed: int) -> Int[np.ndarray, "count K"]:
        """Return fillings of all blanks drawn from their joint posterior."""
        ...


@runtime_checkable
class FillsBlanks(Protocol):
    """A model that can sum over blanks exactly. Recurrent models cannot."""

    def fill(self, pattern: Pattern, *, span: Span = "sentence", exclude: Sequence[int] = ()) -> Filling:
        """Contract the model with a pattern.

        Args:
            pattern: word ids, None for each blank.
            span: which part of a line the pattern is.
            exclude: words that may not stand in a blank, beside ``<eos>``.
        """
        ...


@dataclass(frozen=True)
class JointFilling:
    """One way to fill all blanks."""

    words: tuple[int, ...]
    """The word of each blank."""

    probability: float
    """Its probability given the pattern."""


def parse_pattern(text: str, vocabulary: Vocabulary, blank: str = "?") -> list[int | None]:
    r"""Read a pattern: words between spaces, ``?`` for a blank, ``\?`` for the word "?" itself.

    Example:
        >>> parse_pattern("the ? of", vocabulary)
        [0, None, 3]
    """
    words = text.split()
    plain = [word[1:] if word == "\\" + blank else word for word in words]
    ids = vocabulary.encode([word for word, given in zip(plain, words, strict=True) if given != blank])
    rest = iter(ids.tolist())
    return [None if word == blank else next(rest) for word in words]


def require_blanks(model: object) -> FillsBlanks:
    """Return the model when it can fill blanks.

    Raises:
        UnsupportedError: it cannot.
    """
    if isinstance(model, FillsBlanks):
        return model
    kind = getattr(model, "kind", type(model).__name__)
    raise UnsupportedError(
        f"a model of kind {kind!r} cannot fill blanks: it reads from left to right and would have to be run "
        "once for every filling; use an n-gram model (kind 'kneser-ney', 'count-tensor' or 'backoff')"
    )


def fill_blanks(
    table: BackoffTable,
    eos_id: int,
    pattern: Pattern,
    *,
    span: Span = "sentence",
    exclude: Sequence[int] = (),
) -> ContractedPattern:
    """Eq. 14, Claim 2. Contract a back-off model with a pattern, forward and backward.

    Args:
        table: the model.
        eos_id: the word that ends a line.
        pattern: word ids, None for each blank.
        span: which part of a line the pattern is.
        exclude: words that may not stand in a blank, beside ``<eos>``.

    Raises:
        CorpusError: an empty pattern or an id outside the vocabulary.
    """
    size = table.trie.vocabulary_size
    if not pattern:
        raise CorpusError("the pattern has no words and no blanks; give at least one, for example 'the ? of'")
    wrong = [word for word in (*pattern, *exclude) if word is not None and not 0 <= word < size]
    if wrong:
        raise CorpusError(
            f"word id {wrong[0]} is outside the vocabulary of {size} words; give 0 to {size - 1}"
        )
    allowed = np.ones(size, np.bool_)
    allowed[[eos_id, *exclude]] = False
    start = line_start(table) if span in ("sentence", "prefix") else ROOT
    places = [*pattern, eos_id] if span in ("sentence", "suffix") else list(pattern)
    forward = Weighted(np.array([start]), np.ones(1))
    steps: list[Blank | tuple[Weighted, FloatArray, IntArray]] = []
    log_probability = 0.0
    for word in places:
        if word is None:
            step = Blank(table, forward, allowed)
            forward = step.forward()
        else:
            probability, after = read_word(table, forward.states, word, eos_id)
            step = (forward, probability, after)
            forward = gather(after, forward.values * probability)
        steps.append(step)
        total = float(forward.values.sum())
        if total <= 0.0:
            return ContractedPattern(table, eos_id, tuple(places), allowed, -math.inf, [])
        log_probability += math.log(total)
        forward = Weighted(forward.states, forward.values / total)
    backward = [Weighted(forward.states, np.ones(len(forward.states)))]
    log_scales = [0.0]
    posteriors: list[FloatArray] = []
    for step in reversed(steps):
        if isinstance(step, Blank):
            posterior = step.posterior(backward[0])
            posteriors.insert(0, posterior / posterior.sum())
            before = step.backward(backward[0])
        else:
            states, probability, after = step
            before = Weighted(states.states, probability * backward[0].at(after))
        scale = float(before.values.max())
        backward.insert(0, Weighted(before.states, before.values / scale))
        log_scales.insert(0, log_scales[0] + math.log(scale))
    return ContractedPattern(
        table, eos_id, tuple(places), allowed, log_probability, posteriors, backward, log_scales
    )


@dataclass(frozen=True)
class ContractedPattern:
    """A pattern after both passes: all that is asked about it is read off here."""

    table: BackoffTable
    eos_id: int
    places: tuple[int | None, ...]
    allowed: NDArray[np.bool_]
    log_probability: float
    """Ln p of the pattern, all fillings together; -inf where no filling is possible."""

    rows: list[FloatArray]
    # The posterior of each blank.

    backward: list[Weighted] = field(default_factory=list[Weighted])
    # For each place, the probability of all that follows given each history, up to e^log_scales.
    log_scales: list[float] = field(default_factory=list[float])

    @property
    def blank_count(self) -> int:
        """K, the number of blanks."""
        return sum(word is None for word in self.places)

    @property
    def posteriors(self) -> Float[np.ndarray, "K V"]:
        """For each blank the probability of each word, given the whole pattern; zero if impossible."""
        if not self.rows:
            return np.zeros((self.blank_count, self.table.trie.vocabulary_size))
        return np.stack(self.rows)

    def best(self, top: int, limit: int = 4000) -> list[JointFilling]:
        """Return the most probable fillings of all blanks together, the best first.

        A best-first search: no filling of the blanks to come can be better than all of them together, so a
        finished filling that comes first is the best there is. Every entry returned is exact and in its right
        place.

        Args:
            top: how many.
            limit: how many partial fillings to extend at most; where that is not enough (many blanks with
                little to tell their words apart) fewer fillings come back.
        """
        found: list[JointFilling] = []
        if not self.backward:
            return found
        ticket = counter()  # breaks ties, so that the heap never compares arrays
        state = int(self.backward[0].states[0])
        heap: list[tuple[float, int, _Extensions | None, int, tuple[int, ...]]] = []

        def extend(place: int, state: int, log_path: float, words: tuple[int, ...]) -> None:
            """Read up to the next blank and put its best word on the heap."""
            while place < len(self.places) and (word := self.places[place]) is not None:
                probability, after = read_word(self.table, np.array([state]), word, self.eos_id)
                log_path += math.log(probability[0]) if probability[0] > 0 else -math.inf
                place, state = place + 1, int(after[0])
            if place == len(self.places):
                heapq.heappush(heap, (self.log_probability - log_path, next(ticket), None, 0, words))
                return
            values_BV, targets_BV = expand(
                self.table, np.array([state]), self.backward[place + 1], self.allowed
            )
            extensions = _Extensions.make(
                place, values_BV[0], targets_BV[0], log_path + self.log_scales[place + 1]
            )
            push(extensions, 0, words)

        def push(extensions: _Extensions, rank: int, words: tuple[int, ...]) -> None:
            """Put the extension of one rank on the heap."""
            if rank < len(extensions.words):
                log_bound = extensions.log_base + math.log(extensions.values[rank])
                heapq.heappush(
                    heap, (self.log_probability - log_bound, next(ticket), extensions, rank, words)
                )

        extend(0, state, 0.0, ())
        extended = 1
        while heap and len(found) < top:
            cost, _, extensions, rank, words = heapq.heappop(heap)
            if extensions is None:
                found.append(JointFilling(words, math.exp(-cost)))
                continue
            if extended >= limit:
                break
            push(extensions, rank + 1, words)
            log_path = -cost + self.log_probability - self._log_after(extensions, rank)
            word = int(extensions.words[rank])
            extend(extensions.place + 1, int(extensions.targets[rank]), log_path, (*words, word))
            extended += 1
        return found

    def sample(self, count: int, seed: int) -> Int[np.ndarray, "count K"]:
        """Return ``count`` fillings drawn from the exact joint posterior; the same ones for the same seed.

        Raises:
            CorpusError: the pattern is impossible.
        """
        if not self.backward:
            raise CorpusError(
                "the pattern has probability zero, so no filling can be drawn; use a smoothed model"
            )
        generator = np.random.default_rng(seed)
        states = np.repeat(self.backward[0].states[:1], count)
        drawn: list[IntArray] = []
        for place, word in enumerate(self.places):
            if word is not None:
                _, states = read_word(self.table, states, word, self.eos_id)
                continue
            uniform = generator.random(count)
            words = np.empty(count, np.int64)
            unique, members = np.unique(states, return_inverse=True)
            for number, state in enumerate(unique):
                values_BV, targets_BV = expand(
                    self.table, np.array([state]), self.backward[place + 1], self.allowed
                )
                running = np.cumsum(values_BV[0])
                rows = members == number
                words[rows] = np.searchsorted(running, uniform[rows] * running[-1], side="right")
                states[rows] = targets_BV[0, words[rows]]
            drawn.append(words)
        return np.stack(drawn, axis=1) if drawn else np.zeros((count, 0), np.int64)

    def _log_after(self, extensions: _Extensions, rank: int) -> float:
        """Return ln p of all that follows an extension's word."""
        after = self.backward[extensions.place + 1].at(extensions.targets[rank : rank + 1])[0]
        return math.log(after) + self.log_scales[extensions.place + 1]


@dataclass(frozen=True)
class _Extensions:
    """The words of one blank after one history, the best first."""

    place: int
    words: IntArray
    values: FloatArray
    targets: IntArray
    log_base: float

    @classmethod
    def make(cls, place: int, values_V: FloatArray, targets_V: IntArray, log_base: float) -> _Extensions:
        """Sort the possible words."""
        words = np.argsort(-values_V, kind="stable")
        words = words[values_V[words] > 0]
        return cls(place, words, values_V[words], targets_V[words], log_base)
