"""What is passed along a pattern: a number for each history, in a list of histories or for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tslm.models.ngram.smoothing import FloatArray
from tslm.models.ngram.trie import IntArray, add_up, search_sorted
from tslm.shapes import Float, Int


@dataclass(frozen=True)
class Weighted:
    """Some histories, ascending, each with a number: a sparse vector over all histories."""

    states: IntArray
    values: FloatArray

    def at(self, states: Int[np.ndarray, "*Q"], missing: float = 0.0) -> Float[np.ndarray, "*Q"]:
        """Return the number of each state, ``missing`` where there is none."""
        flat = states.reshape(-1)
        places = np.minimum(search_sorted(self.states, flat), len(self.states) - 1)
        return np.where(self.states[places] == flat, self.values[places], missing).reshape(states.shape)

    def scale(self, factor: float) -> Weighted:
        """Return the same histories with their numbers multiplied."""
        return Weighted(self.states, self.values * factor)

    def only(self, states: Int[np.ndarray, "Q"]) -> Weighted:
        """Return the numbers of some histories, ascending."""
        return Weighted(states, self.at(states))

    def ones(self) -> Weighted:
        """Return the same histories with the number one."""
        return Weighted(self.states, np.ones(len(self.states)))


@dataclass(frozen=True)
class Dense:
    """A number for every history of the model, in the order of the tree's nodes."""

    values: NDArray[np.floating]

    def at(self, states: Int[np.ndarray, "*Q"], missing: float = 0.0) -> Float[np.ndarray, "*Q"]:
        """Return the number of each state; none is missing."""
        return self.values[states]

    def scale(self, factor: float) -> Dense:
        """Return the same histories with their numbers multiplied."""
        return Dense(self.values * factor)

    def only(self, states: Int[np.ndarray, "Q"]) -> Weighted:
        """Return the numbers of some histories, ascending."""
        return Weighted(states, self.at(states))

    def ones(self) -> Dense:
        """Return the number one for every history."""
        return Dense(np.ones(len(self.values)))


Message = Weighted | Dense


@runtime_checkable
class Step(Protocol):
    """A place of a pattern as a linear map between histories."""

    def forward(self, before: Message) -> Message:
        """Return the probability of each history after the place, given those before it."""
        ...

    def backward(self, after: Message) -> Message:
        """Return, for each history before the place, the probability of what follows."""
        ...

    def bound(self, after: Message) -> Message:
        """Return, for each history before the place, a bound on ln p of the best single way to go on.

        Args:
            after: such bounds for the histories after the place.
        """
        ...


def gather(states: Int[np.ndarray, "Q"], values: Float[np.ndarray, "Q"]) -> Weighted:
    """Return the sum of the values of each state; states without any mass are left out."""
    alive = values > 0
    unique, places = np.unique(states[alive], return_inverse=True)
    return Weighted(unique, add_up(places, values[alive], len(unique)))
