"""The one protocol that joins all models, its small companions, and the legend of shapes.

Shapes: B batch, T time, V vocabulary, M embedding, R rank or hidden size, K mixture, N order.

The protocol speaks NumPy: whoever scores, generates or measures needs no PyTorch, and an n-gram model never loads it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from tslm.corpus.rule import TextRule
from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.shapes import Float, Int

StateT = TypeVar("StateT")


class LanguageModel(ABC, Generic[StateT]):
    """A model that reads words one after the other and gives the probability of the next one.

    All that is needed of the words read so far is in a *state*, opaque to the caller. ``start`` gives the
    state at the beginning of a text, which is also that of a line whose history is forgotten. Reading never
    changes a state in place, so a caller may keep one and go on from it twice.

    Example:
        >>> model = tslm.load("runs/asv-kn5")
        >>> state = model.start(1)
        >>> log_probability_BT, state = model.score(np.array([[11, 7, 2]]), state)
        >>> round(float(np.exp(model.predict(state)).sum()), 6)  # every next-word distribution sums to one
        1.0
    """

    kind: ClassVar[str]
    """The name of this kind of model in recipes and run folders."""

    vocabulary: Vocabulary

    rule: TextRule = TextRule()
    """How raw text becomes words of the vocabulary, and words become text again; a run gives its model its own."""

    window: int = 1 << 12
    """How many tokens are best scored at once; it changes speed and memory, not the result."""

    forgets_lines: bool = False
    """Whether the state after ``<eos>`` is that of ``start``: lines that start anew are then one running text."""

    @abstractmethod
    def start(self, batch: int) -> StateT:
        """Return the state at the beginning of ``batch`` texts."""

    @abstractmethod
    def score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: StateT
    ) -> tuple[Float[np.ndarray, "B T"], StateT]:
        """Return ln p(token | all tokens before it) for each given token, and the state after the last.

        The first column is predicted from ``state``. Impossible words give -inf. Implementations do not form a
        B×T×V array where they need not.
        """

    @abstractmethod
    def predict(self, state: StateT) -> Float[np.ndarray, "B V"]:
        """Return ln p(next word) for every word of the vocabulary."""

    @property
    @abstractmethod
    def parameter_count(self) -> int:
        """How many numbers the model stores: weights, or counts and back-offs."""

    def without_cache(self) -> LanguageModel[StateT] | None:
        """Return the model with a cache that says nothing, for the same states; None where it has no cache."""
        return None

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what the model has learnt into ``folder`` (the vocabulary and the recipe are written by the run)."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, config: Any, vocabulary: Vocabulary) -> LanguageModel[StateT]:
        """Read a model that ``save`` wrote.

        Args:
            folder: the run folder.
            config: the ``[model]`` table of its recipe, as this kind's config dataclass.
            vocabulary: the vocabulary of the run folder.

        Raises:
            RunError: a file is missing, damaged or does not fit the config.
        """


@runtime_checkable
class Estimated(Protocol):
    """A model that is counted from a text at one go, without gradients."""

    @classmethod
    def fit(cls, config: Any, corpus: Corpus) -> LanguageModel[Any]:
        """Estimate the model from a corpus."""
        ...


@runtime_checkable
class ReadsWindows(Protocol):
    """A model that can begin in the middle of a text, as a window of training does."""

    def unread(self, batch: int) -> Any:
        """Return the state before any word is read; it predicts nothing yet."""
        ...


@runtime_checkable
class DrawsWords(Protocol):
    """A model that can draw its next word without writing its whole distribution out."""

    def draw(
        self, state: Any, uniform_B: Float[np.ndarray, "B"], exclude: Collection[int] = ()
    ) -> tuple[Int[np.ndarray, "B"], Float[np.ndarray, "B"], Any]:
        """Draw a word after each state, from ``predict``'s distribution.

        Args:
            state: of each text.
            uniform_B: a number from 0 to 1 for each; the same number after the same state draws the same word.
            exclude: words that are not to be drawn.

        Returns:
            The words, ln p of each (nothing excluded), and the state after them.

        Raises:
            NumberError: no word is possible.
        """
        ...


@runtime_checkable
class Branches(Protocol):
    """A model that can go on from one state in many ways at once."""

    def branch(self, state: Any, places_N: Int[np.ndarray, "N"], words_N: Int[np.ndarray, "N"]) -> Any:
        """Read a word more, without scoring it, after some texts of a batch.

        Args:
            state: of the texts.
            places_N: which of them; one may be taken several times, or never.
            words_N: the word that each goes on with.
        """
        ...


@runtime_checkable
class HasNetwork(Protocol):
    """A model that may be a network of tensors, which can then be contracted, cut and drawn."""

    def chain(self) -> Any | None:
        """Return the recurrence whose states are a chain of tensors, or None where there is none."""
        ...


@runtime_checkable
class HasVectors(Protocol):
    """A model with a vector for each state that says what it expects: alike for states that expect the same."""

    def vectors(self, state: Any) -> Float[np.ndarray, "B M"]:
        """Return the vector, of length one, from which the next word is predicted."""
        ...

    def score_vectors(
        self, tokens_BT: Int[np.ndarray, "B T"], state: Any
    ) -> tuple[Float[np.ndarray, "B T"], Float[np.ndarray, "B T M"], Any]:
        """Return what ``score`` does, and between the two the vector from which each token was predicted."""
        ...


@runtime_checkable
class KnowsHistory(Protocol):
    """A model that can say how well it knows the words so far, whatever comes next: a gate between models may ask."""

    def know(self, state: Any) -> Float[np.ndarray, "B F"]:
        """Return a few numbers for each state, of about the size of one."""
        ...

    def score_knowing(
        self, tokens_BT: Int[np.ndarray, "B T"], state: Any
    ) -> tuple[Float[np.ndarray, "B T"], Float[np.ndarray, "B T F"], Any]:
        """Return what ``score`` does, and between the two what was known before each token."""
        ...
