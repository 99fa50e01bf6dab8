"""A pattern with blanks contracted with a back-off model: its probability, posteriors, best fillings and samples."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count as counter

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from tslm.errors import CorpusError, NumberError
from tslm.models.ngram.blanks import JointFilling, Pattern, Span
from tslm.models.ngram.contraction import Blank, Weighted, expand, gather, line_start, read_word
from tslm.models.ngram.smoothing import BackoffTable, FloatArray
from tslm.models.ngram.trie import ROOT, IntArray


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
            NumberError: the seed is below 0.
        """
        words, _ = self._draw(count, _make_generator(seed))
        return words[:, [place for place, word in enumerate(self.places) if word is None]]

    def sample_lines(self, count: int, seed: int, limit: int = 100) -> list[list[int]]:
        """Return whole lines: the pattern with its blanks drawn, and then word by word to the end of the line.

        Args:
            count: how many lines.
            seed: the same seed gives the same lines.
            limit: how many words may follow the pattern; only a prefix or a fragment goes on at all.

        Returns:
            The words of each line; ``<eos>`` is the last where the line came to its end.

        Raises:
            CorpusError: the pattern is impossible.
            NumberError: the seed is below 0.
        """
        generator = _make_generator(seed)
        words, states = self._draw(count, generator)
        lines: list[list[int]] = words.tolist()
        going = np.array([line for line in range(count) if lines[line][-1] != self.eos_id], np.int64)
        allowed = self.allowed.copy()
        allowed[self.eos_id] = True
        for _ in range(limit):
            if not len(going):
                break
            drawn, states[going] = self._draw_words(states[going], None, allowed, generator)
            for line, word in zip(going.tolist(), drawn.tolist(), strict=True):
                lines[line].append(word)
            going = going[drawn != self.eos_id]
        return lines

    def _draw(self, count: int, generator: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Draw the blanks from left to right, each given all that follows; return all words and the last histories."""
        if not self.backward:
            raise CorpusError(
                "the pattern has probability zero, so nothing can be drawn; use a smoothed model"
            )
        states = np.repeat(self.backward[0].states[:1], count)
        words = np.empty((count, len(self.places)), np.int64)
        for place, word in enumerate(self.places):
            if word is None:
                drawn, states = self._draw_words(states, self.backward[place + 1], self.allowed, generator)
                words[:, place] = drawn
            else:
                words[:, place] = word
                _, states = read_word(self.table, states, word, self.eos_id)
        return words, states

    def _draw_words(
        self,
        states: IntArray,
        after: Weighted | None,
        allowed: NDArray[np.bool_],
        generator: np.random.Generator,
    ) -> tuple[IntArray, IntArray]:
        """Draw one word after each history; return the words and the histories they lead to."""
        uniform = generator.random(len(states))
        words = np.empty(len(states), np.int64)
        following = np.empty(len(states), np.int64)
        unique, members = np.unique(states, return_inverse=True)
        for number, state in enumerate(unique):
            values_BV, targets_BV = expand(self.table, np.array([state]), after, allowed)
            running = np.cumsum(values_BV[0])
            rows = members == number
            # A draw that rounds up to the whole belongs to the last possible word.
            drawn = np.minimum(uniform[rows] * running[-1], np.nextafter(running[-1], 0))
            words[rows] = np.searchsorted(running, drawn, side="right")
            following[rows] = targets_BV[0, words[rows]]
        return words, following

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


def _make_generator(seed: int) -> np.random.Generator:
    """Return the random numbers of a seed."""
    if seed < 0:
        raise NumberError(f"seed {seed}; expected 0 or more")
    return np.random.default_rng(seed)
