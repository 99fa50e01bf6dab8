"""Several models as one: linear and log-linear interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tslm.config import check
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RunError
from tslm.models.base import LanguageModel
from tslm.models.parts import Part, load_parts, parts_without_cache, save_parts
from tslm.shapes import Float, Int

Form = Literal["linear", "log-linear"]


@dataclass(frozen=True, kw_only=True)
class InterpolationConfig:
    """How models are mixed."""

    form: Form = "linear"
    """``linear`` adds probabilities, Σ λ p; ``log-linear`` multiplies them, Π p^λ, and normalises."""

    weights: tuple[float, ...]
    """λ of each part; those of a linear mix sum to one."""

    def __post_init__(self) -> None:
        check(
            len(self.weights) >= 2,
            f"model.weights has {len(self.weights)} entries; a mix has two parts or more",
        )
        check(
            all(weight >= 0 for weight in self.weights),
            f"model.weights = {self.weights} must not be negative",
        )
        total = sum(self.weights)
        check(total > 0, "model.weights are all zero; give at least one part a weight")
        check(
            self.form == "log-linear" or abs(total - 1) < 1e-6,
            f"model.weights of a linear mix sum to {total:g}; they must sum to 1",
        )


class Interpolation(LanguageModel[tuple[Any, ...]]):
    """p(w) = Σ_k λ_k p_k(w), or p(w) ∝ Π_k p_k(w)^λ_k. The state is that of each part.

    Example:
        >>> run = tslm.open_run("runs/asv-kn5")
        >>> config = InterpolationConfig(form="linear", weights=(0.4, 0.6))
        >>> mix = Interpolation(config, [Part(run.model, run.recipe.model), Part(run.model, run.recipe.model)])
        >>> bool(np.allclose(mix.predict(mix.start(1)), run.model.predict(run.model.start(1))))
        True
    """

    kind: ClassVar[str] = "interpolation"

    def __init__(self, config: InterpolationConfig, parts: Sequence[Part]) -> None:
        """Mix models over the same words; their ids may differ.

        Raises:
            RunError: the parts know different words or have different text rules, or there are more weights than parts.
        """
        if len(parts) != len(config.weights):
            raise RunError(
                f"{len(config.weights)} weights for {len(parts)} models; give one weight per model"
            )
        self.config = config
        self.parts = tuple(parts)
        self.vocabulary, self.rule = parts[0].model.vocabulary, parts[0].model.rule
        for place, part in enumerate(parts, 1):
            if part.model.rule != self.rule:
                raise RunError(
                    f"models 1 and {place} cut a text into words in different ways; "
                    "only models of one text rule can be mixed"
                )
        self._ids = [
            _translate(self.vocabulary, part.model.vocabulary, place) for place, part in enumerate(parts)
        ]
        with np.errstate(divide="ignore"):
            self._log_weights = np.log(np.array(config.weights))
        self.window = min(part.model.window for part in parts)
        # A log-linear mix goes word by word, and is fast only with many lines side by side.
        self.forgets_lines = config.form == "linear" and all(part.model.forgets_lines for part in parts)

    def start(self, batch: int) -> tuple[Any, ...]:
        """Start each part."""
        return tuple(part.model.start(batch) for part in self.parts)

    def score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: tuple[Any, ...]
    ) -> tuple[Float[np.ndarray, "B T"], tuple[Any, ...]]:
        """Mix the parts' probabilities of each token; a log-linear mix needs all words' for its normaliser."""
        if self.config.form == "linear":
            scores_KBT, state = self.score_parts(tokens_BT, state)
            return self.mix(scores_KBT), state
        scores_BT = np.empty(tokens_BT.shape)
        for place, tokens_B in enumerate(tokens_BT.T):
            scores_BT[:, place] = np.take_along_axis(self.predict(state), tokens_B[:, None], 1)[:, 0]
            _, state = self.score_parts(tokens_B[:, None], state)
        return scores_BT, state

    def predict(self, state: tuple[Any, ...]) -> Float[np.ndarray, "B V"]:
        """Return ln p(next word) of the mix for every word."""
        mixed_BV = self.mix(self.predict_parts(state))
        if self.config.form == "linear":
            return mixed_BV
        normaliser_B1 = log_sum(mixed_BV, axis=1)[:, None]
        # Where the parts agree on no word at all, none is possible.
        return mixed_BV - np.where(normaliser_B1 == -np.inf, 0.0, normaliser_B1)

    def ids_of(self, place: int, tokens: Int[np.ndarray, "*T"]) -> Int[np.ndarray, "*T"]:
        """Return the ids that a part has for words given by the mix's own ids."""
        ids_V = self._ids[place]
        return tokens if ids_V is None else ids_V[tokens]

    def score_parts(
        self, tokens_BT: Int[np.ndarray, "B T"], state: tuple[Any, ...]
    ) -> tuple[Float[np.ndarray, "K B T"], tuple[Any, ...]]:
        """Return each part's own ln p of the tokens, and the state after them."""
        results = [
            part.model.score(self.ids_of(place, tokens_BT), own)
            for place, (part, own) in enumerate(zip(self.parts, state, strict=True))
        ]
        return np.stack([scores.astype(np.float64) for scores, _ in results]), tuple(
            after for _, after in results
        )

    def predict_parts(self, state: tuple[Any, ...]) -> Float[np.ndarray, "K B V"]:
        """Return each part's own ln p of every next word, in the order of the mix's vocabulary."""
        predicted = [part.model.predict(own) for part, own in zip(self.parts, state, strict=True)]
        return np.stack(
            [
                (log_BV if ids_V is None else log_BV[:, ids_V]).astype(np.float64)
                for log_BV, ids_V in zip(predicted, self._ids, strict=True)
            ]
        )

    def mix(self, log_KX: Float[np.ndarray, "K *X"]) -> Float[np.ndarray, "*X"]:
        """Return ln Σ λ p, or Σ λ ln p (not normalised)."""
        weights = self._log_weights.reshape(-1, *[1] * (log_KX.ndim - 1))
        if self.config.form == "linear":
            return log_sum(log_KX + weights, axis=0)
        # A part of weight zero says nothing, not even that a word is impossible.
        with np.errstate(invalid="ignore"):
            return np.where(weights == -np.inf, 0.0, np.exp(weights) * log_KX).sum(0)

    @property
    def parameter_count(self) -> int:
        """Those of all parts, and the weights."""
        return sum(part.model.parameter_count for part in self.parts) + len(self.parts)

    def without_cache(self) -> Interpolation | None:
        """Return the mix of its parts without their caches."""
        parts = parts_without_cache(self.parts)
        return None if parts is None else Interpolation(self.config, parts)

    def save(self, folder: Path) -> None:
        """Write every part with its own settings and vocabulary into ``parts/``."""
        save_parts(self.parts, folder)

    @classmethod
    def load(cls, folder: Path, config: InterpolationConfig, vocabulary: Vocabulary) -> Interpolation:
        """Read the parts."""
        return cls(config, load_parts(folder, len(config.weights), vocabulary))


def log_sum(log: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return ln Σ exp along an axis; -inf where every term is."""
    largest = log.max(axis, keepdims=True)
    largest = np.where(largest == -np.inf, 0.0, largest)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(log - largest).sum(axis)) + largest.squeeze(axis)


def _translate(words: Vocabulary, own: Vocabulary, place: int) -> NDArray[np.int64] | None:
    """Return a part's id of each word of the mix, or None where the ids are the same."""
    if own == words:
        return None
    differing = set(words.words) ^ set(own.words)
    if differing:
        raise RunError(
            f"models 1 and {place + 1} know different words ({len(differing)} of them, such as {min(differing)!r}); "
            "only models over the same vocabulary can be mixed"
        )
    return np.array([own.ids[word] for word in words.words])
