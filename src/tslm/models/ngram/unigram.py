"""The two simplest models: every word equally likely, and every word as likely as in the training text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from tslm.config import check
from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.models.arrays import map_arrays, save_arrays
from tslm.models.base import LanguageModel
from tslm.shapes import Float, Float64, Int


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

    window = 1 << 16
    forgets_lines = True

    def __init__(self, vocabulary: Vocabulary, log_probability_V: Float64[np.ndarray, " V"]) -> None:
        self.vocabulary = vocabulary
        self.log_probability_V = log_probability_V

    @classmethod
    def fit(cls, config: UnigramConfig, corpus: Corpus) -> Unigram:
        """Count the words of the training split."""
        size = len(corpus.vocabulary)
        counts_V = np.bincount(corpus.splits["train"], minlength=size) + config.add
        with np.errstate(divide="ignore"):  # a word unseen in train is impossible
            model = cls(corpus.vocabulary, np.log(counts_V / counts_V.sum()))
        model.rule = corpus.rule
        return model

    def start(self, batch: int) -> int:
        """Return the batch size: there is nothing else to remember."""
        return batch

    def score(self, tokens_BT: Int[np.ndarray, "B T"], state: int) -> tuple[Float[np.ndarray, "B T"], int]:
        """Look each token up."""
        return self.log_probability_V[tokens_BT], state

    def predict(self, state: int) -> Float[np.ndarray, "B V"]:
        """Return the one distribution, once per text."""
        return np.broadcast_to(self.log_probability_V, (state, len(self.log_probability_V)))

    @property
    def parameter_count(self) -> int:
        """One probability per word."""
        return len(self.vocabulary)

    def save(self, folder: Path) -> None:
        """Write ``model.safetensors``."""
        save_arrays(folder, {"log_probability": self.log_probability_V})

    @classmethod
    def load(cls, folder: Path, config: UnigramConfig, vocabulary: Vocabulary) -> Unigram:
        """Read ``model.safetensors``."""
        shapes = {"log_probability": ("float64", (len(vocabulary),))}
        return cls(vocabulary, map_arrays(folder, shapes)["log_probability"])


class Uniform(Unigram):
    """p(w) = 1 / V: the perplexity of knowing nothing is the size of the vocabulary."""

    kind: ClassVar[str] = "uniform"

    @classmethod
    def fit(cls, config: UniformConfig, corpus: Corpus) -> Unigram:  # type: ignore[override]
        """Take the size of the vocabulary, and nothing else, from the corpus."""
        size = len(corpus.vocabulary)
        model = cls(corpus.vocabulary, np.full(size, np.log(1 / size)))
        model.rule = corpus.rule
        return model

    @property
    def parameter_count(self) -> int:
        """There is nothing to learn."""
        return 0
