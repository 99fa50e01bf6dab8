"""The two simplest models: every word equally likely, and every word as likely as in the training text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from tslm.config import check
from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.models.base import LanguageModel
from tslm.models.weights import load_weights, save_weights


@dataclass(frozen=True, kw_only=True)
class UniformConfig:
    """The uniform model has no settings."""


@dataclass(frozen=True, kw_only=True)
class UnigramConfig:
    """Settings of the unigram model."""

    add: float = 0.0
    """Added to the count of every word, so that words unseen in train stay possible."""

    def __post_init__(self) -> None:
        check(self.add >= 0, f"model.add = {self.add} must not be negative")


class Unigram(LanguageModel[int]):
    """p(w) = (count(w) + add) / (tokens + add · V), whatever came before. The state is the batch size."""

    kind: ClassVar[str] = "unigram"

    def __init__(self, vocabulary: Vocabulary, log_probability_V: Float64[Tensor, " V"]) -> None:
        self.vocabulary = vocabulary
        self.log_probability_V = log_probability_V

    @classmethod
    def fit(cls, config: UnigramConfig, corpus: Corpus) -> Unigram:
        """Count the words of the training split."""
        size = len(corpus.vocabulary)
        counts_V = torch.from_numpy(np.bincount(corpus.splits["train"], minlength=size)).double() + config.add
        return cls(corpus.vocabulary, (counts_V / counts_V.sum()).log())

    def start(self, batch: int) -> int:
        """Return the batch size: there is nothing else to remember."""
        return batch

    def score(self, tokens_BT: Int[Tensor, "B T"], state: int) -> tuple[Float[Tensor, "B T"], int]:
        """Look each token up."""
        return self.log_probability_V[tokens_BT.long()], state

    def predict(self, state: int) -> Float[Tensor, "B V"]:
        """Return the one distribution, once per text."""
        return self.log_probability_V.expand(state, -1)

    @property
    def parameter_count(self) -> int:
        """One probability per word."""
        return len(self.vocabulary)

    def save(self, folder: Path) -> None:
        """Write ``model.safetensors``."""
        save_weights(folder, {"log_probability": self.log_probability_V})

    @classmethod
    def load(cls, folder: Path, config: UnigramConfig, vocabulary: Vocabulary) -> Unigram:
        """Read ``model.safetensors``."""
        shapes = {"log_probability": (torch.float64, (len(vocabulary),))}
        return cls(vocabulary, load_weights(folder, shapes)["log_probability"])


class Uniform(Unigram):
    """p(w) = 1 / V: the perplexity of knowing nothing is the size of the vocabulary."""

    kind: ClassVar[str] = "uniform"

    @classmethod
    def fit(cls, config: UniformConfig, corpus: Corpus) -> Unigram:  # type: ignore[override]
        """Take the size of the vocabulary, and nothing else, from the corpus."""
        size = len(corpus.vocabulary)
        return cls(corpus.vocabulary, torch.full((size,), 1 / size, dtype=torch.float64).log())

    @property
    def parameter_count(self) -> int:
        """There is nothing to learn."""
        return 0
