"""What the gradient engine asks of a model; it knows no concrete one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, nn

from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.models.base import LanguageModel
from tslm.models.recurrent.heads.base import CrossEntropy

StateT = TypeVar("StateT")

Carried = tuple[tuple[Tensor, ...], ...]
"""What a model carries from window to window: a few tensors per layer, B the last dimension but one of each."""


class Window(NamedTuple):
    """What a model makes of a window of training."""

    nats: Float[Tensor, ""]
    """The mean of −ln p over the targets."""
    carried: Carried
    """What goes on to the next window."""
    outputs_TBR: Float[Tensor, "T B R"]
    """What stands for each word that was read; penalties look at it."""
    latents: Tensor
    """What the words are predicted from; penalties look at it."""


class Trainable(nn.Module, LanguageModel[StateT], ABC):
    """A language model that is trained by gradients, window after window."""

    moves: ClassVar[bool] = False
    """Whether it makes every tensor where its weights are, so that it can compute on an accelerator."""

    lowers: ClassVar[bool] = False
    """Whether it can be trained under autocast, with matrix products in bfloat16."""

    asks: ClassVar[bool] = False
    """Whether its loss is the cross entropy that training gives it."""

    @abstractmethod
    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__()

    @abstractmethod
    def prepare(self, corpus: Corpus) -> None:
        """Start from what can be counted in the training text."""

    def follow(self, starts_B: Int[np.ndarray, " B"]) -> None:
        """Be told where in the training text each column begins, before any is read; most models need not know."""

    @abstractmethod
    def begin(self, batch: int) -> Carried:
        """Return what is carried before anything has been read."""

    @abstractmethod
    def read_window(
        self,
        inputs_TB: Int[Tensor, "T B"],
        targets_TB: Int[Tensor, "T B"],
        carried: Carried,
        cross_entropy: CrossEntropy,
    ) -> Window:
        """Read a window, time first, and predict each target behind its input; targets below 0 are left out."""

    def word_vectors(self) -> list[Tensor]:
        """Return the matrices that have a row for each word, to be trained as such; most models have none."""
        return []

    def diagnostics(self) -> dict[str, float]:
        """Return numbers that tell how training goes, for ``metrics.jsonl``."""
        return {}
