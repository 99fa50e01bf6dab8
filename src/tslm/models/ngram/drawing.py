"""Words drawn from a back-off model without its distribution ever being written out.

With probability p(w | h) summed over the words that follow a history, one of them is drawn, by a binary search in
their running sums. Otherwise a word is drawn after the history's suffix, and drawn again while it is one of those that
follow the history itself. How often that happens is given by the back-off weight, which is at most about one; so a
draw takes a few steps, however many words there are, and is exactly one from ``predict``'s distribution.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Container, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tslm.errors import NumberError
from tslm.models.ngram.contraction import line_start
from tslm.models.ngram.messages import Dense
from tslm.models.ngram.smoothing import BackoffTable
from tslm.models.ngram.sweep import Sweep, SweptBlank
from tslm.models.ngram.trie import ROOT
from tslm.shapes import Float, Int

LARGEST = 1 << 26
"""N-grams of a model whose running sums are kept; a larger one is drawn from by writing its distribution out."""

IMPOSSIBLE = "no word is possible here; use a smoothed model"

PATIENCE = 1000
"""How often a word is drawn again before the distribution is written out after all."""

_MASK = 2**64 - 1


class WordDrawer:
    """Running sums of a model, eight bytes for each n-gram and two times eight for each history.

    A draw visits a handful of numbers in as many places of the arrays. One after the other in plain Python that is
    faster than in arrays over hundreds of rows, which all wait for the one that is drawn again most often.
    """

    def __init__(self, table: BackoffTable, eos_id: int) -> None:
        """Add up the probabilities of the words that follow each history."""
        trie = table.trie
        self.base = trie.vocabulary_size + 1
        self.contexts = trie.context_count
        self.eos_id = eos_id
        self.line_start = line_start(table)
        running = np.zeros(trie.node_count)
        for level in range(1, trie.order + 1):
            nodes = trie.nodes(level)
            # In extended precision, so that a difference of two sums over a whole level keeps its digits.
            sums = np.zeros(nodes.stop - nodes.start + 1, np.longdouble)
            np.cumsum(np.exp(table.log_probability[nodes]), dtype=np.longdouble, out=sums[1:])
            firsts = trie.first_children[trie.parents[nodes]] - nodes.start
            running[nodes] = sums[1:] - sums[firsts]
        first, end = trie.first_children[:-1], trie.first_children[1:]
        explicit = np.where(end > first, running[end - 1], 0.0)
        total = explicit
        if trie.order > 1:
            everything = np.ones(trie.vocabulary_size, np.bool_)
            after = Dense(np.ones(trie.context_count))
            total = SweptBlank(Sweep(table, eos_id, everything)).backward(after).values.astype(np.float64)
            # Where nothing is passed on, nothing is left below either, whatever rounding says.
            total = np.where(table.log_weight == -np.inf, explicit, total)
        self.running = _floats(running)
        self.explicit = _floats(explicit)
        """For each history, the probability of all words that follow it."""
        self.total = _floats(total)
        """For each history, the probability of all words: one, but for rounding or a model that is not normalised."""
        self.keys = _ints(trie.keys)
        self.suffixes = _ints(trie.suffixes)
        self.first = _ints(trie.first_children)
        self.log_probability = _floats(table.log_probability)
        self.log_weight = _floats(table.log_weight)

    def draw(
        self,
        states_B: Int[np.ndarray, "B"],
        uniform_B: Float[np.ndarray, "B"],
        exclude: Container[int] = (),
    ) -> tuple[Int[np.ndarray, "B"], Float[np.ndarray, "B"], Int[np.ndarray, "B"]] | None:
        """Draw a word after each history.

        Args:
            states_B: the histories.
            uniform_B: a number from 0 to 1 for each; the same number draws the same word.
            exclude: words that are not to be drawn; another one is drawn in their place.

        Returns:
            The words, ln p of each, and the histories after them; None where hardly any is left.

        Raises:
            NumberError: no word is possible after a history.
        """
        running, explicit, total = self.running, self.explicit, self.total
        keys, suffixes, first = self.keys, self.suffixes, self.first
        words: list[int] = []
        scores: list[float] = []
        after: list[int] = []
        for state, uniform in zip(states_B.tolist(), uniform_B.tolist(), strict=True):
            history, wanted, tries = state, uniform, 0
            longer: list[int] = []  # the histories that were passed on the way down
            while True:
                whole, own = total[history], explicit[history]
                mark = wanted * whole
                if mark >= own and history != ROOT and whole > own:
                    wanted = (mark - own) / (whole - own)  # what is left of the number is as good as new
                    longer.append(history)
                    history = suffixes[history]
                    continue
                if own <= 0:
                    raise NumberError(IMPOSSIBLE)
                end = first[history + 1]
                edge = bisect_right(running, mark, first[history], end)
                if edge == end:
                    # A number that rounds up to the whole belongs to the last word with any probability.
                    edge = bisect_left(running, running[end - 1], first[history], end)
                word = keys[edge] % self.base
                again, kept = state if word in exclude else -1, 0
                for place in range(len(longer) - 1, -1, -1):
                    if self._follows(longer[place], word):
                        # It had its chance there, and below it does not count: another one is drawn.
                        again, kept = suffixes[longer[place]], place + 1
                        break
                if again < 0:
                    break
                if tries == PATIENCE:
                    return None
                tries += 1
                wanted = _renew(uniform, tries)
                history = again
                del longer[kept:]
            words.append(word)
            scores.append(self.log_probability[edge] + sum([self.log_weight[passed] for passed in longer]))
            if word == self.eos_id:
                after.append(self.line_start)
            else:
                after.append(edge if edge < self.contexts else suffixes[edge])
        return np.array(words), np.array(scores), np.array(after)

    def _follows(self, history: int, word: int) -> bool:
        key = history * self.base + word
        end = self.first[history + 1]
        place = bisect_left(self.keys, key, self.first[history], end)
        return place < end and self.keys[place] == key


def invert_rows(
    log_probability_BV: Float[np.ndarray, "B V"], uniform_B: Float[np.ndarray, "B"]
) -> Int[np.ndarray, "B"]:
    """Draw a word from each of some distributions that are written out.

    Raises:
        NumberError: no word is possible in one of them.
    """
    running_BV = np.exp(log_probability_BV).cumsum(1)
    if (running_BV[:, -1] <= 0).any():
        raise NumberError(IMPOSSIBLE)
    wanted_B = np.minimum(uniform_B * running_BV[:, -1], np.nextafter(running_BV[:, -1], 0.0))
    return (running_BV <= wanted_B[:, None]).sum(1)


def _floats(array: NDArray[np.floating]) -> Sequence[float]:
    """Return an array as a sequence of Python's own numbers, which are faster one by one; nothing is copied."""
    return cast(Sequence[float], memoryview(cast(Any, np.ascontiguousarray(array))))


def _ints(array: NDArray[np.integer]) -> Sequence[int]:
    return cast(Sequence[int], memoryview(cast(Any, np.ascontiguousarray(array))))


def _renew(uniform: float, tries: int) -> float:
    """Return another number from 0 to 1, which depends on nothing but the number and the try.

    SplitMix64 (Steele, Lea & Flood, 2014), its state the bits of the number.
    """
    bits = (struct.unpack("<Q", struct.pack("<d", uniform))[0] + tries * 0x9E3779B97F4A7C15) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((bits ^ (bits >> 31)) >> 11) * 2.0**-53
