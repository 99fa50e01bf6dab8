"""Claim 2. A pattern with blanks contracted with a probabilistic model, from both sides."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count as counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tslm.errors import CorpusError, NumberError
from tslm.models.ngram.blanks import FillCost, JointFilling, Pattern, Span
from tslm.models.probabilistic.config import ProbabilisticConfig
from tslm.models.probabilistic.network import ALL, Network, check_ids, draw_from, network_bytes
from tslm.shapes import Float, Int
from tslm.stopping import check_wanted

FIRST = 32
"""How many words of a blank are held at first; four times as many each time they run out."""


class Place(NamedTuple):
    """A place of a pattern: which hidden states it can be in, and the probability of what stands there from each."""

    word: int | None
    states: slice
    emission: Tensor


def estimate_cost(config: ProbabilisticConfig, words: int, pattern: Pattern) -> FillCost:
    """Return about what a pattern will take: a blank beside another one reads all of W, others a strip of it."""
    rank, states, terms = config.rank, config.states, 0
    for before, word in zip([0, *pattern], [*pattern, 0], strict=True):
        wide = rank if before is None else states
        high = rank if word is None else states
        terms += config.features * (wide + high) or wide * high
    blanks = sum(word is None for word in pattern)
    return FillCost(
        terms=terms + blanks * words * states, bytes=network_bytes(config) + 8 * rank * len(pattern)
    )


@torch.no_grad()
def fill_pattern(
    network: Network, pattern: Pattern, *, span: Span = "sentence", exclude: Sequence[int] = ()
) -> FilledPattern:
    """Eq. 14. Contract the network with a pattern, forward and backward.

    Args:
        network: of the model.
        pattern: word ids, None for each blank.
        span: which part of a line the pattern is.
        exclude: words that may not stand in a blank, beside ``<eos>``.

    Raises:
        CorpusError: an empty pattern or an id outside the vocabulary.
    """
    vocabulary = network.model.vocabulary
    if not pattern:
        raise CorpusError("the pattern has no words and no blanks; give at least one, for example 'the ? of'")
    check_ids([*pattern, *exclude], len(vocabulary))
    banned = frozenset({vocabulary.eos_id, *exclude})
    free_R = network.mass_R([word for word in range(len(vocabulary)) if word not in banned])
    words = (*pattern, vocabulary.eos_id) if span in ("sentence", "suffix") else tuple(pattern)
    places = [
        Place(None, ALL, free_R)
        if word is None
        else Place(word, network.of_word(word), network.emission_k(word))
        for word in words
    ]
    start_R = network.begin_R if span in ("sentence", "prefix") else network.anywhere_R()
    log_probability, before, value = 0.0, ALL, start_R
    moved: list[Tensor] = []
    for place in places:
        check_wanted()
        moved.append(network.move(value, before, place.states))
        value = moved[-1] * place.emission
        total = float(value.sum())
        if total <= 0:
            return FilledPattern(network, tuple(places), banned, start_R, -math.inf, (), (), ())
        log_probability += math.log(total)
        before, value = place.states, value / total
    behind, log_behind = [torch.ones_like(value)], [0.0]
    for before, place in zip(reversed(places[:-1]), reversed(places[1:]), strict=True):
        check_wanted()
        value = network.pull(place.emission * behind[0], before.states, place.states)
        largest = float(value.max())
        behind.insert(0, value / largest)
        log_behind.insert(0, log_behind[0] + math.log(largest))
    return FilledPattern(
        network,
        tuple(places),
        banned,
        start_R,
        log_probability,
        tuple(moved),
        tuple(behind),
        tuple(log_behind),
    )


@dataclass(frozen=True)
class FilledPattern:
    """A pattern after both passes: all that is asked about it is read off here."""

    network: Network
    places: tuple[Place, ...]
    banned: frozenset[int]
    # The words that may not stand in a blank.
    start_R: Tensor
    log_probability: float
    """Ln p of the pattern, all fillings together; -inf where no filling is possible."""
    moved: tuple[Tensor, ...]
    # What is believed of the states of each place, given all before it.
    behind: tuple[Tensor, ...]
    # For each place the probability of all that follows given each of its states, up to a factor.
    log_behind: tuple[float, ...]
    # And ln of that factor.

    @property
    def posteriors(self) -> Float[np.ndarray, "K V"]:
        """For each blank the probability of each word, given the whole pattern; zero if impossible."""
        blanks = [number for number, place in enumerate(self.places) if place.word is None]
        result_KV = np.zeros((len(blanks), len(self.network.model.vocabulary)))
        if self.moved:
            for row, number in enumerate(blanks):
                weights_V = self._weights(self.moved[number], number).double().numpy()
                result_KV[row] = weights_V / weights_V.sum()
        return result_KV

    def _weights(self, moved_R: Tensor, number: int) -> Tensor:
        """Return p of each word in a blank and of all that follows, up to a factor, given what comes before."""
        weights_V = self.network.words_V(moved_R * self.behind[number])
        weights_V[list(self.banned)] = 0
        return weights_V

    def _read(self, value: Tensor, states: slice, number: int, word: int) -> tuple[Tensor, slice, float]:
        """Return what is believed after a word in a place, where, and its probability."""
        after = self.network.of_word(word)
        value = self.network.move(value, states, after) * self.network.emission_k(word)
        total = float(value.sum())
        return value / max(total, 1e-300), after, math.log(total) if total > 0 else -math.inf

    @torch.no_grad()
    def best(self, top: int, limit: int = 500) -> list[JointFilling]:
        """Return the most probable fillings of all blanks together, the best first.

        A beginning of a filling has the probability of all fillings that begin so, and none of them can have more: a
        whole filling that comes first in that order is the best there is.

        Args:
            top: how many.
            limit: how many partial fillings to extend at most; where that is not enough fewer come back.
        """
        if not self.moved:
            return []
        ticket = counter()
        heap: list[tuple[float, int, _Node, Iterator[tuple[float, int]] | None]] = []

        def extend(node: _Node) -> None:
            """Read up to the next blank; put its best word on the heap, or the whole filling."""
            value, states, log_path, number = node.value, node.states, node.log_path, node.number
            while number < len(self.places):
                word = self.places[number].word
                if word is None:
                    break
                value, states, log_word = self._read(value, states, number, word)
                log_path, number = log_path + log_word, number + 1
            node = _Node(value, states, log_path, number, node.words)
            if number == len(self.places):
                heapq.heappush(heap, (-log_path, next(ticket), node, None))
            else:
                moved_R = self.network.move(value, states)
                push(node, _descending(self._weights(moved_R, number), self.log_behind[number]))

        def push(node: _Node, words: Iterator[tuple[float, int]]) -> None:
            """Put the next best word of a blank on the heap."""
            if (entry := next(words, None)) is not None:
                log_word, word = entry
                wanted = _Node(node.value, node.states, node.log_path, node.number, (*node.words, word))
                heapq.heappush(heap, (-(node.log_path + log_word), next(ticket), wanted, words))

        extend(_Node(self.start_R, ALL, 0.0, 0, ()))
        found: list[JointFilling] = []
        while heap and len(found) < top and limit > 0:
            check_wanted()
            bound, _, node, words = heapq.heappop(heap)
            if words is None:
                found.append(JointFilling(node.words, math.exp(-bound - self.log_probability)))
                continue
            limit -= 1
            before = _Node(node.value, node.states, node.log_path, node.number, node.words[:-1])
            value, states, log_word = self._read(node.value, node.states, node.number, node.words[-1])
            extend(_Node(value, states, node.log_path + log_word, node.number + 1, node.words))
            push(before, words)
        return found

    def sample(self, count: int, seed: int) -> Int[np.ndarray, "count K"]:
        """Return ``count`` fillings drawn from the exact joint posterior; the same ones for the same seed.

        Raises:
            CorpusError: the pattern is impossible.
            NumberError: the seed is below 0.
        """
        lines = self.sample_lines(count, seed, 0)
        blanks = [number for number, place in enumerate(self.places) if place.word is None]
        return np.array([[line[number] for number in blanks] for line in lines], np.int64).reshape(
            count, len(blanks)
        )

    @torch.no_grad()
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
        if seed < 0:
            raise NumberError(f"seed {seed}; expected 0 or more")
        if not self.moved:
            raise CorpusError("the pattern has probability zero, so nothing can be drawn; allow more words")
        generator = torch.Generator().manual_seed(seed)
        eos_id = self.network.model.vocabulary.eos_id
        lines: list[list[int]] = []
        for _ in range(count):
            check_wanted()
            line: list[int] = []
            value, states = self.start_R, ALL
            while len(line) < len(self.places) + limit and eos_id not in line:
                word = None
                if len(line) < len(self.places):
                    word = self.places[len(line)].word
                    if word is None:
                        moved_R = self.network.move(value, states)
                        word = int(draw_from(self._weights(moved_R, len(line)), generator))
                else:
                    weights_V = self.network.words_V(self.network.move(value, states))
                    weights_V[[banned for banned in self.banned if banned != eos_id]] = 0
                    word = int(draw_from(weights_V, generator))
                value, states, _ = self._read(value, states, len(line), word)
                line.append(word)
            lines.append(line)
        return lines


class _Node(NamedTuple):
    """A beginning of a filling."""

    value: Tensor
    states: slice
    log_path: float
    number: int
    """The next place."""
    words: tuple[int, ...]


def _descending(weights_V: Tensor, log_factor: float) -> Iterator[tuple[float, int]]:
    """Yield ln p and id of words, the likeliest first."""
    given, held = 0, FIRST
    while given < len(weights_V):
        best, words = weights_V.topk(min(held, len(weights_V)))
        for weight, word in zip(best[given:].tolist(), words[given:].tolist(), strict=True):
            if weight <= 0:
                return
            yield math.log(weight) + log_factor, word
        given, held = len(best), held * 4
