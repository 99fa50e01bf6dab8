"""Finite automata over words: what a sentence must be like, in a form that a model can be multiplied with.

An automaton tells only some words apart, those that its pattern names; all others are one symbol. It reads a sentence
without its ``<eos>``, and the sentence matches when the automaton is then in an accepting state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tslm.errors import UnsupportedError

State = TypeVar("State")

DEAD = -1
"""Where no way leads to an accepting state any more."""

MOST_STATES = 10_000
"""An automaton that needs more is refused: a model has all its hidden states in each of them."""


@dataclass(frozen=True)
class Automaton:
    """A deterministic automaton; it starts in state 0.

    Example:
        >>> contains((5,)).accepts([3, 5, 7])
        True
    """

    words: tuple[int, ...]
    """The words that are told apart."""

    next_QS: NDArray[np.int64]
    """The state after each symbol: column 0 for all other words, then one for each of ``words``."""

    accepting_Q: NDArray[np.bool_]

    def symbols(self, vocabulary: int) -> NDArray[np.int64]:
        """Return the symbol of each word of a vocabulary."""
        symbol_V = np.zeros(vocabulary, np.int64)
        symbol_V[list(self.words)] = np.arange(1, len(self.words) + 1)
        return symbol_V

    def read(self, words: Iterable[int], state: int = 0) -> int:
        """Return the state after some words, ``DEAD`` where nothing can match any more."""
        place = {word: number for number, word in enumerate(self.words, 1)}
        for word in words:
            if state == DEAD:
                break
            state = int(self.next_QS[state, place.get(word, 0)])
        return state

    def accepts(self, words: Iterable[int]) -> bool:
        """Return whether a sentence matches."""
        state = self.read(words)
        return state != DEAD and bool(self.accepting_Q[state])

    def __and__(self, other: Automaton) -> Automaton:
        """Return the automaton of the sentences that match both."""
        words = tuple(sorted({*self.words, *other.words}))
        columns = [
            [0, *(automaton.words.index(word) + 1 if word in automaton.words else 0 for word in words)]
            for automaton in (self, other)
        ]

        def follow(pair: tuple[int, int], symbol: int) -> tuple[int, int] | None:
            after = (
                int(self.next_QS[pair[0], columns[0][symbol]]),
                int(other.next_QS[pair[1], columns[1][symbol]]),
            )
            return None if DEAD in after else after

        return build(
            words,
            (0, 0),
            follow,
            lambda pair: bool(self.accepting_Q[pair[0]] and other.accepting_Q[pair[1]]),
        )


def build(
    words: Sequence[int],
    start: State,
    follow: Callable[[State, int], State | None],
    accepts: Callable[[State], bool],
) -> Automaton:
    """Number the states that can be reached, and leave out those from which nothing is accepted.

    Args:
        words: those that are told apart.
        start: any hashable thing.
        follow: the state after a symbol (0 for all other words, then 1 … for ``words``), None where nothing can match.
        accepts: whether a sentence may end in a state.

    Raises:
        UnsupportedError: there are more states than ``MOST_STATES``.
    """
    numbers = {start: 0}
    found = [start]
    table: list[list[int]] = []
    for state in found:
        row: list[int] = []
        for symbol in range(len(words) + 1):
            after = follow(state, symbol)
            if after is not None and after not in numbers:
                numbers[after] = len(found)
                found.append(after)
                if len(found) > MOST_STATES:
                    raise UnsupportedError(
                        f"the pattern needs an automaton of more than {MOST_STATES:,} states; make it simpler"
                    )
            row.append(DEAD if after is None else numbers[after])
        table.append(row)
    next_QS = np.array(table, np.int64)
    accepting_Q = np.array([accepts(state) for state in found])
    alive_Q = accepting_Q.copy()
    while True:
        reaches_Q = alive_Q | (alive_Q[next_QS] & (next_QS != DEAD)).any(1)
        if (reaches_Q == alive_Q).all():
            break
        alive_Q = reaches_Q
    kept_Q = alive_Q.copy()
    # The start stays, so that there is an automaton even where nothing matches.
    kept_Q[0] = True
    number_Q = np.where(kept_Q, np.cumsum(kept_Q) - 1, DEAD)
    next_QS = np.where((next_QS == DEAD) | ~alive_Q[next_QS], DEAD, number_Q[next_QS])
    return Automaton(tuple(words), next_QS[kept_Q], accepting_Q[kept_Q])


def anything() -> Automaton:
    """Return the automaton of all sentences."""
    return Automaton((), np.zeros((1, 1), np.int64), np.ones(1, np.bool_))


def contains(phrase: Sequence[int]) -> Automaton:
    """Return the automaton of the sentences with a phrase somewhere: how much of it stands at the end so far."""
    words = tuple(sorted(set(phrase)))
    size = len(phrase)

    def follow(matched: int, symbol: int) -> int:
        if matched == size:
            return size
        read = (*phrase[:matched], words[symbol - 1] if symbol else None)
        return max(
            length for length in range(len(read) + 1) if read[len(read) - length :] == tuple(phrase[:length])
        )

    return build(words, 0, follow, lambda matched: matched == size)


def without(banned: Iterable[int]) -> Automaton:
    """Return the automaton of the sentences in which some words do not occur."""
    words = tuple(sorted(set(banned)))
    return build(words, 0, lambda _, symbol: None if symbol else 0, lambda _: True)


def of_length(shortest: int = 0, longest: int | None = None) -> Automaton:
    """Return the automaton of the sentences of so many words."""

    def follow(length: int, _: int) -> int | None:
        if longest is None:
            return min(length + 1, shortest)
        return length + 1 if length < longest else None

    return build((), 0, follow, lambda length: length >= shortest)
