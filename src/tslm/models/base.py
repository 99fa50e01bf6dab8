"""The one protocol that joins all models, and the legend of shapes.

Shapes: B batch, T time, V vocabulary, M embedding, R rank or hidden size, K mixture, N order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

from tslm.corpus.vocabulary import Vocabulary

StateT = TypeVar("StateT")


class LanguageModel(ABC, Generic[StateT]):
    """A model that reads words one after the other and gives the probability of the next one.

    All that is needed of the words read so far is in a *state*, opaque to the caller. ``start`` gives the
    state at the beginning of a text, which is also that of a line whose history is forgotten. Reading never
    changes a state in place, so a caller may keep one and go on from it twice.

    Example:
        >>> model = tslm.load("runs/ptb-kn5")
        >>> state = model.start(1)
        >>> log_probability_BT, state = model.score(torch.tensor([[11, 7, 2]]), state)
        >>> model.predict(state).exp().sum()  # every next-word distribution sums to one
        tensor([1.])
    """

    kind: ClassVar[str]
    """The name of this kind of model in recipes and run folders."""

    vocabulary: Vocabulary

    @abstractmethod
    def start(self, batch: int) -> StateT:
        """Return the state at the beginning of ``batch`` texts."""

    @abstractmethod
    def score(self, tokens_BT: Int[Tensor, "B T"], state: StateT) -> tuple[Float[Tensor, "B T"], StateT]:
        """Return ln p(token | all tokens before it) for each given token, and the state after the last.

        The first column is predicted from ``state``. Impossible words give -inf. Implementations do not form a
        B×T×V array where they need not.
        """

    @abstractmethod
    def predict(self, state: StateT) -> Float[Tensor, "B V"]:
        """Return ln p(next word) for every word of the vocabulary."""

    @property
    @abstractmethod
    def parameter_count(self) -> int:
        """How many numbers the model stores: weights, or counts and back-offs."""

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
