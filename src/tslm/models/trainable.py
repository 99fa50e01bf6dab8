"""What the gradient engine asks of a model; it knows no concrete one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from tslm.corpus.vocabulary import Vocabulary
from tslm.models.base import LanguageModel
from tslm.models.recurrent.heads.base import CrossEntropy, WindowLoss

StateT = TypeVar("StateT")

Carried = tuple[tuple[Tensor, ...], ...]
"""What a model carries from window to window: a few tensors per layer, B the last dimension but one of each."""


class Trainable(nn.Module, LanguageModel[StateT], ABC):
    """A language model that is trained by gradients, window after window."""

    @abstractmethod
    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__()

    @abstractmethod
    def set_prior(self, counts_V: Int[Tensor, " V"]) -> None:
        """Start from how often each word occurs."""

    @abstractmethod
    def begin(self, batch: int) -> Carried:
        """Return what is carried before anything has been read."""

    @abstractmethod
    def read(self, inputs_TB: Int[Tensor, "T B"], carried: Carried) -> tuple[Float[Tensor, "T B R"], Carried]:
        """Read a window of words, time first; return what stands for each, and what to carry on."""

    @abstractmethod
    def loss(
        self, outputs_TBR: Float[Tensor, "T B R"], targets_N: Int[Tensor, " N"], cross_entropy: CrossEntropy
    ) -> WindowLoss:
        """Return what training minimises for a window that was read; targets below 0 are left out."""

    def diagnostics(self) -> dict[str, float]:
        """Return numbers that tell how training goes, for ``metrics.jsonl``."""
        return {}
