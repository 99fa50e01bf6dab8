"""A pattern with blanks contracted with a back-off model: its probability, posteriors, best fillings and samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tslm.errors import CorpusError, NumberError
from tslm.models.ngram.blanks import FillCost, JointFilling, Pattern, Span
from tslm.models.ngram.contraction import Blank, Word, close, expand, line_start, read_word
from tslm.models.ngram.messages import Message, Step, Weighted
from tslm.models.ngram.search import Search, best_fillings
from tslm.models.ngram.smoothing import BackoffTable, FloatArray
from tslm.models.ngram.sweep import Sweep, SweptBlank, SweptWord
from tslm.models.ngram.trie import ROOT, IntArray, add_up
from tslm.shapes import Float, Int
from tslm.stopping import check_wanted

SWEPT_SHARE = 1 / 8
"""A blank that concerns more than this share of all n-grams is summed over the whole tree."""


def estimate_cost(table: BackoffTable, pattern: Pattern) -> FillCost:
    """Return about what a pattern will take: a blank behind another one reads the whole tree, others little of it."""
    nodes = table.trie.node_count
    blanks = [place for place, word in enumerate(pattern) if word is None]
    swept = sum(place > 0 and pattern[place - 1] is None for place in blanks)
    listed = len(blanks) - swept
    return FillCost(
        terms=swept * nodes + listed * (nodes // 50 + table.trie.vocabulary_size),
        bytes=bool(swept) * 56 * nodes
        + swept * 8 * nodes
        + listed * (nodes + 200 * table.trie.vocabulary_size),
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
    places = (*pattern, eos_id) if span in ("sentence", "suffix") else tuple(pattern)
    steps = _Steps(table, eos_id, allowed)
    forward: Message = Weighted(np.array([start]), np.ones(1))
    forwards: list[Message] = []
    prepared: list[Step] = []
    log_probability = 0.0
    for word in places:
        check_wanted()
        prepared.append(steps.prepare(forward, word))
        forward = prepared[-1].forward(forward)
        total = float(forward.values.sum())
        if total <= 0.0:
            return ContractedPattern(table, eos_id, places, allowed, start, -math.inf)
        log_probability += math.log(total)
        forward = forward.scale(1 / total)
        forwards.append(forward)
    contracted = ContractedPattern(
        table, eos_id, places, allowed, start, log_probability, [], [forward.ones()], tuple(prepared)
    )
    for word, step in zip(reversed(places), reversed(prepared), strict=True):
        check_wanted()
        after, forward = contracted.backward[0], forwards.pop()
        if word is None:
            contracted.rows.insert(0, _posterior(table, allowed, forward, after))
        before = step.backward(after)
        if forwards and isinstance(forwards[-1], Weighted):
            before = before.only(forwards[-1].states)
        contracted.backward.insert(0, before.scale(1 / float(before.values.max())))
    return contracted


class _Steps:
    """Chooses how a place is summed: over the list of possible histories, or over the whole tree."""

    def __init__(self, table: BackoffTable, eos_id: int, allowed: NDArray[np.bool_]) -> None:
        self.table = table
        self.eos_id = eos_id
        self.allowed = allowed

    @cached_property
    def sweep(self) -> Sweep:
        """What all steps over the whole tree share."""
        return Sweep(self.table, self.eos_id, self.allowed)

    def prepare(self, before: Message, word: int | None) -> Step:
        """Prepare a place for the histories that are possible before it."""
        trie = self.table.trie
        if isinstance(before, Weighted):
            if word is not None:
                return Word(self.table, before.states, word, self.eos_id)
            contexts = close(trie, before.states)
            edges = int((trie.first_children[contexts + 1] - trie.first_children[contexts]).sum())
            if edges <= SWEPT_SHARE * trie.node_count or trie.order == 1:
                return Blank(self.table, before.states, contexts, self.allowed)
        return SweptBlank(self.sweep) if word is None else SweptWord(self.sweep, word)


def _posterior(
    table: BackoffTable, allowed: NDArray[np.bool_], forward: Message, backward: Message
) -> FloatArray:
    """Return the probability of each word in a blank: the history after it ends with that word.

    Args:
        table: the model.
        allowed: the words that may stand in the blank.
        forward: the probability of all up to the blank, for each history after it.
        backward: the probability of all behind the blank, for each of the same histories.
    """
    trie = table.trie
    if trie.order == 1:
        row = np.exp(table.log_probability[1 : trie.vocabulary_size + 1]) * allowed
    else:
        joint = forward.values * backward.values
        if isinstance(forward, Weighted):
            words = trie.last_words(forward.states)
        else:
            words, joint = trie.words[1 : len(joint)], joint[1:]
        row = add_up(words, joint, trie.vocabulary_size + 1)[:-1]
    return row / row.sum()


@dataclass(frozen=True)
class ContractedPattern:
    """A pattern after both passes: all that is asked about it is read off here."""

    table: BackoffTable
    eos_id: int
    places: tuple[int | None, ...]
    allowed: NDArray[np.bool_]
    start: int
    # The history before the first place.
    log_probability: float
    """Ln p of the pattern, all fillings together; -inf where no filling is possible."""

    rows: list[FloatArray] = field(default_factory=list[FloatArray])
    # The posterior of each blank.

    backward: list[Message] = field(default_factory=list[Message])
    # For each place and behind the last, the probability of all that follows given each history, up to a factor.

    steps: tuple[Step, ...] = ()

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

        Every entry returned is exact and in its right place.

        Args:
            top: how many.
            limit: how many partial fillings to extend at most; where that is not enough fewer come back.
        """
        if not self.backward:
            return []
        search = Search(
            table=self.table,
            eos_id=self.eos_id,
            allowed_V=self.allowed,
            places=self.places,
            start=self.start,
            steps=self.steps,
            last=self.backward[-1],
        )
        return best_fillings(search, top, limit, self.log_probability)

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
            check_wanted()
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
        states = np.full(count, self.start)
        words = np.empty((count, len(self.places)), np.int64)
        for place, word in enumerate(self.places):
            check_wanted()
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
        after: Message | None,
        allowed: NDArray[np.bool_],
        generator: np.random.Generator,
    ) -> tuple[IntArray, IntArray]:
        """Draw one word after each history; return the words and the histories they lead to."""
        uniform = generator.random(len(states))
        words = np.empty(len(states), np.int64)
        following = np.empty(len(states), np.int64)
        unique, members = np.unique(states, return_inverse=True)
        for number, state in enumerate(unique):
            log_BV, targets_BV = expand(self.table, np.array([state]))
            values_V = np.exp(log_BV[0]) * allowed
            running = np.cumsum(values_V if after is None else values_V * after.at(targets_BV[0]))
            rows = members == number
            # A draw that rounds up to the whole belongs to the last possible word.
            drawn = np.minimum(uniform[rows] * running[-1], np.nextafter(running[-1], 0))
            words[rows] = np.searchsorted(running, drawn, side="right")
            following[rows] = targets_BV[0, words[rows]]
        return words, following


def _make_generator(seed: int) -> np.random.Generator:
    """Return the random numbers of a seed."""
    if seed < 0:
        raise NumberError(f"seed {seed}; expected 0 or more")
    return np.random.default_rng(seed)
