"""Models mixed by a gate: how far each is trusted depends on the words so far, never on the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from tslm.config import check
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RunError
from tslm.models.arrays import REMEDY, WEIGHTS, map_arrays, save_arrays
from tslm.models.base import HasVectors, KnowsHistory, LanguageModel
from tslm.models.interpolation import Interpolation, InterpolationConfig, log_sum
from tslm.models.parts import Part, load_parts, parts_without_cache, save_parts
from tslm.shapes import Float, Int

Sight = Literal["counts", "state", "both"]


@dataclass(frozen=True, kw_only=True)
class GatedConfig:
    """The shape of a gate and what it sees."""

    parts: int = 2
    """K: how many models are mixed."""

    sees: Sight = "counts"
    """``counts``: what count tensors and caches know of the history; ``state``: the direction of recurrent states."""

    hidden: int = 32
    """The units between what the gate sees and the weights of the parts."""

    def __post_init__(self) -> None:
        check(2 <= self.parts <= 64, f"model.parts = {self.parts} must be 2 to 64")
        check(1 <= self.hidden <= 4096, f"model.hidden = {self.hidden} must be 1 to 4096")


@dataclass(frozen=True, kw_only=True)
class Gate:
    """λ = softmax(B tanh(A x + a) + b), x being what is known of the words so far, brought to mean 0 and spread 1."""

    mean_F: Float[np.ndarray, "F"]
    spread_F: Float[np.ndarray, "F"]
    inner_HF: Float[np.ndarray, "H F"]
    inner_bias_H: Float[np.ndarray, "H"]
    outer_KH: Float[np.ndarray, "K H"]
    outer_bias_K: Float[np.ndarray, "K"]

    def __call__(self, known: Float[np.ndarray, "*X F"]) -> Float[np.ndarray, "*X K"]:
        """Return ln λ of each part."""
        hidden = np.tanh((known - self.mean_F) / self.spread_F @ self.inner_HF.T + self.inner_bias_H)
        logits = hidden @ self.outer_KH.T + self.outer_bias_K
        return logits - log_sum(logits, axis=-1)[..., None]


class GatedMixture(LanguageModel[tuple[Any, ...]]):
    """p(w) = Σ_k λ_k(x) p_k(w): T = T_sparse ⊕ T_dense with a learnt mixture.

    x is what the parts know of the words so far (see :class:`KnowsHistory`, :class:`HasVectors`). The weights are the
    same for every next word and sum to one, and so do the probabilities.

    Example:
        >>> run = tslm.open_run("runs/asv-kn5")
        >>> part = Part(run.model, run.recipe.model)
        >>> gate = even_gate(GatedConfig(), [part, part])
        >>> mixture = GatedMixture(GatedConfig(), [part, part], gate)
        >>> round(float(np.exp(mixture.predict(mixture.start(1))).sum()), 6)
        1.0
    """

    kind: ClassVar[str] = "gated-mixture"

    def __init__(self, config: GatedConfig, parts: Sequence[Part], gate: Gate) -> None:
        """Mix models over the same words; their ids may differ.

        Raises:
            RunError: the parts know different words or have different text rules, or have nothing for the gate to see.
        """
        self.config, self.gate = config, gate
        even = InterpolationConfig(weights=(1 / config.parts,) * config.parts)
        self._side_by_side = Interpolation(even, parts)
        self.parts = self._side_by_side.parts
        self.vocabulary, self.rule = self._side_by_side.vocabulary, self._side_by_side.rule
        self.window, self.forgets_lines = self._side_by_side.window, self._side_by_side.forgets_lines

    def start(self, batch: int) -> tuple[Any, ...]:
        """Start each part."""
        return self._side_by_side.start(batch)

    def score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: tuple[Any, ...]
    ) -> tuple[Float[np.ndarray, "B T"], tuple[Any, ...]]:
        """Mix the parts' probabilities of each token with the weights from before it."""
        scores_KBT, known_BTF, state = self.score_parts(tokens_BT, state)
        return log_sum(scores_KBT + np.moveaxis(self.gate(known_BTF), -1, 0), axis=0), state

    def score_parts(
        self, tokens_BT: Int[np.ndarray, "B T"], state: tuple[Any, ...]
    ) -> tuple[Float[np.ndarray, "K B T"], Float[np.ndarray, "B T F"], tuple[Any, ...]]:
        """Return each part's own ln p of the tokens, what the gate sees before each, and the state after them."""
        scores: list[Any] = []
        known: list[Any] = [np.empty((*tokens_BT.shape, 0))]
        after: list[Any] = []
        for place, (part, own) in enumerate(zip(self.parts, state, strict=True)):
            ids_BT = self._side_by_side.ids_of(place, tokens_BT)
            model: Any = part.model
            if _shows_counts(model, self.config.sees):
                scores_BT, known_BTF, own_after = model.score_knowing(ids_BT, own)
                known.append(known_BTF)
            elif _shows_state(model, self.config.sees):
                scores_BT, known_BTF, own_after = model.score_vectors(ids_BT, own)
                known.append(known_BTF)
            else:
                scores_BT, own_after = model.score(ids_BT, own)
            scores.append(scores_BT.astype(np.float64))
            after.append(own_after)
        return np.stack(scores), np.concatenate(known, axis=-1, dtype=np.float64), tuple(after)

    def know(self, state: tuple[Any, ...]) -> Float[np.ndarray, "B F"]:
        """Return what the gate sees."""
        sees, known = self.config.sees, list[Any]()
        for part, own in zip(self.parts, state, strict=True):
            model: Any = part.model
            if _shows_counts(model, sees):
                known.append(model.know(own))
            elif _shows_state(model, sees):
                known.append(model.vectors(own))
        return np.concatenate(known, axis=-1, dtype=np.float64)

    def predict(self, state: tuple[Any, ...]) -> Float[np.ndarray, "B V"]:
        """Return ln p of every next word."""
        weights_KB1 = self.gate(self.know(state)).T[..., None]
        return log_sum(self._side_by_side.predict_parts(state) + weights_KB1, axis=0)

    @property
    def parameter_count(self) -> int:
        """Those of all parts, and of the gate."""
        return sum(part.model.parameter_count for part in self.parts) + sum(
            array.size for array in _arrays(self.gate).values()
        )

    def without_cache(self) -> GatedMixture | None:
        """Return the mix of its parts without their caches; the gate sees what it saw, and weighs as it did."""
        parts = parts_without_cache(self.parts)
        return None if parts is None else GatedMixture(self.config, parts, self.gate)

    def save(self, folder: Path) -> None:
        """Write the gate, and every part with its own settings and vocabulary into ``parts/``."""
        save_parts(self.parts, folder)
        save_arrays(folder, _arrays(self.gate))

    @classmethod
    def load(cls, folder: Path, config: GatedConfig, vocabulary: Vocabulary) -> GatedMixture:
        """Read gate and parts."""
        parts = load_parts(folder, config.parts, vocabulary)
        shapes = {name: array.shape for name, array in _arrays(even_gate(config, parts)).items()}
        found = map_arrays(folder, {name: ("float64", shape) for name, shape in shapes.items()})
        # The general check lets ln 0 pass, which no gate holds.
        if not all(np.isfinite(found[name]).all() for name in shapes):
            raise RunError(f"{folder / WEIGHTS} holds what is no finite number; {REMEDY}")
        return cls(config, parts, Gate(**{name: np.array(found[name]) for name in shapes}))


def even_gate(config: GatedConfig, parts: Sequence[Part]) -> Gate:
    """Return a gate of the right shape that trusts all parts alike.

    Raises:
        RunError: no part shows what the gate is to see.
    """
    size = 0
    for part in parts:
        model: Any = part.model
        if _shows_counts(model, config.sees):
            size += model.know(model.start(1)).shape[1]
        elif _shows_state(model, config.sees):
            size += model.vectors(model.start(1)).shape[1]
    if size == 0:
        needed = {"counts": "an n-gram model or a cache", "state": "a recurrent model"}
        kinds = ", ".join(part.model.kind for part in parts)
        raise RunError(
            f"a gate that sees {config.sees!r} has nothing to see in models of the kinds {kinds}; give it "
            f"{needed.get(config.sees, 'an n-gram model, a cache or a recurrent model')}, or take --mix linear"
        )
    F, H, K = size, config.hidden, config.parts
    return Gate(
        mean_F=np.zeros(F),
        spread_F=np.ones(F),
        inner_HF=np.zeros((H, F)),
        inner_bias_H=np.zeros(H),
        outer_KH=np.zeros((K, H)),
        outer_bias_K=np.zeros(K),
    )


def _shows_counts(model: Any, sees: Sight) -> bool:
    return sees != "state" and isinstance(model, KnowsHistory)


def _shows_state(model: Any, sees: Sight) -> bool:
    return sees != "counts" and isinstance(model, HasVectors)


def _arrays(gate: Gate) -> dict[str, Any]:
    return {field.name: getattr(gate, field.name) for field in fields(gate)}
