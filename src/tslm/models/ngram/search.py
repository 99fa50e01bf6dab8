"""The best fillings of all blanks of a pattern together: a best-first search with a bound on what is to come."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import count as counter

import numpy as np
from numpy.typing import NDArray

from tslm.models.ngram.blanks import JointFilling
from tslm.models.ngram.contraction import expand, read_word
from tslm.models.ngram.messages import Message, Step
from tslm.models.ngram.smoothing import BackoffTable
from tslm.stopping import check_wanted

FIRST = 32
"""How many words of a blank are held at first; four times as many each time they run out."""

SLACK = 16 * 2.0**-24
"""How far rounding in single precision may put a bound too low, relative to it, at each place of a pattern."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """Where to search."""

    table: BackoffTable
    eos_id: int
    allowed_V: NDArray[np.bool_]
    places: tuple[int | None, ...]
    start: int
    """The history before the first place."""
    steps: tuple[Step, ...]
    last: Message
    """The histories after the last place."""

    def find(self, top: int, limit: int) -> list[tuple[float, tuple[int, ...]]]:
        """Return ln p and words of the best fillings, the best first.

        No filling is better than the bound of its beginning, so a finished one that comes first is the best there
        is. The bound is the best single way to go on, found from right to left; it is too high only where a history's
        suffix would like a word better than the history itself does, so the search hardly ever strays.

        Args:
            top: how many.
            limit: how many beginnings to extend at most.
        """
        bounds: list[Message] = [self.last.scale(0.0)]
        for step in reversed(self.steps):
            check_wanted()
            bounds.insert(0, step.bound(bounds[0]))
        ticket = counter()  # breaks ties, so that the heap never compares what stands behind
        heap: list[tuple[float, int, _Extensions | None, int, float, tuple[int, ...]]] = []
        found: list[tuple[float, tuple[int, ...]]] = []

        def extend(place: int, state: int, log_path: float, words: tuple[int, ...]) -> None:
            """Read up to the next blank and put its best word on the heap."""
            while place < len(self.places) and (word := self.places[place]) is not None:
                probability, after = read_word(self.table, np.array([state]), word, self.eos_id)
                if probability[0] <= 0:
                    return
                log_path += math.log(probability[0])
                place, state = place + 1, int(after[0])
            if place == len(self.places):
                heapq.heappush(heap, (-log_path, next(ticket), None, 0, log_path, words))
            else:
                push(_Extensions(self, place, state, bounds[place + 1]), 0, log_path, words)

        def push(extensions: _Extensions, rank: int, log_path: float, words: tuple[int, ...]) -> None:
            """Put the extension of one rank on the heap."""
            if extensions.has(rank):
                bound = log_path + float(extensions.bounds[rank])
                heapq.heappush(heap, (-bound, next(ticket), extensions, rank, log_path, words))

        extend(0, self.start, 0.0, ())
        extended = 1
        while heap and len(found) < top:
            _, _, extensions, rank, log_path, words = heapq.heappop(heap)
            if extensions is None:
                found.append((log_path, words))
                continue
            if extended >= limit:
                break
            check_wanted()
            push(extensions, rank + 1, log_path, words)
            extend(
                extensions.place + 1,
                int(extensions.targets[rank]),
                log_path + float(extensions.log_probabilities[rank]),
                (*words, int(extensions.words[rank])),
            )
            extended += 1
        return found


class _Extensions:
    """The words of one blank after one history, the best first; only those that are asked for are kept."""

    def __init__(self, search: Search, place: int, state: int, after: Message) -> None:
        self.search = search
        self.place = place
        self.state = state
        self.after = after
        self._keep(FIRST)

    def has(self, rank: int) -> bool:
        """Return whether there is a word of this rank."""
        while rank >= len(self.words) and not self.complete:
            self._keep(4 * len(self.words))
        return rank < len(self.words)

    def _keep(self, count: int) -> None:
        """Find the best ``count`` words."""
        log_BV, targets_BV = expand(self.search.table, np.array([self.state]))
        log_V, targets_V = log_BV[0], targets_BV[0]
        bounds_V = log_V + self.after.at(targets_V, -np.inf)
        possible = np.flatnonzero(self.search.allowed_V & (bounds_V > -np.inf))
        bounds_V[possible] += SLACK * len(self.search.places) * np.abs(bounds_V[possible])
        self.complete = len(possible) <= count
        if not self.complete:
            order = np.argpartition(-bounds_V[possible], count)[:count]
            possible = np.sort(possible[order])
        self.words = possible[np.argsort(-bounds_V[possible], kind="stable")]
        self.bounds = bounds_V[self.words]
        self.log_probabilities = log_V[self.words]
        self.targets = targets_V[self.words]


def best_fillings(search: Search, top: int, limit: int, log_total: float) -> list[JointFilling]:
    """Return the most probable fillings with their share of all fillings' probability, the best first."""
    found = search.find(top, limit)
    return [JointFilling(words, math.exp(log_path - log_total)) for log_path, words in found]
