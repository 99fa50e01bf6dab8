"""A model that remembers what it has just read: the words that followed states like the present one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tslm.config import check
from tslm.corpus.vocabulary import Vocabulary
from tslm.models.base import HasVectors, LanguageModel
from tslm.models.parts import Part, load_parts, save_parts
from tslm.shapes import Float, Int

CHUNK = 256
"""How many words are compared with the cache at once: what is formed is a chunk by the size of the cache."""


@dataclass(frozen=True, kw_only=True)
class CachedConfig:
    """How much is remembered, and how much it counts."""

    size: int = 2000
    """N: how many words are remembered."""

    weight: float
    """λ: the share of the cache in the probability, once there is anything in it."""

    sharpness: float = 0.0
    """θ: how much more a word counts whose state is like the present one; 0 counts all words of the cache alike."""

    def __post_init__(self) -> None:
        check(1 <= self.size <= 1_000_000, f"model.size = {self.size} must be 1 to 1,000,000")
        check(0 <= self.weight < 1, f"model.weight = {self.weight} must lie in [0, 1)")
        check(0 <= self.sharpness <= 60, f"model.sharpness = {self.sharpness} must be 0 to 60")


@dataclass(frozen=True)
class CachedState:
    """The state of the model, and the last N words with the vectors from which each was predicted."""

    inner: Any
    words_BN: Int[np.ndarray, "B N"]
    keys_BNM: Float[np.ndarray, "B N M"] | None
    """None where the model has no vectors: then all words count alike."""


Trial = tuple[int, float]
"""A size N of the cache and a sharpness θ."""


@dataclass(frozen=True)
class Recollection:
    """What a model and its cache say of words, each by itself; S pairs of N and θ are tried at once."""

    scores_BT: Float[np.ndarray, "B T"]
    """ln p of the model alone."""
    recalled_SBT: Float[np.ndarray, "S B T"]
    """p of the cache alone; nan while it is empty."""
    likeness_SBT: Float[np.ndarray, "S B T"]
    """ln of the mean weight of the cache's words; 0 while it is empty."""


class CachedModel(LanguageModel[CachedState]):
    """p(w) = (1 − λ) p_model(w) + λ p_cache(w), p_cache(w) ∝ Σ exp(θ ⟨z, z_i⟩) over the last N words w_i = w.

    z is the direction from which the model predicts the next word, and z_i that from which it predicted w_i (Grave et
    al. 2017, with states of length one, so that θ means the same for every model). A model without such vectors, an
    n-gram model, remembers plain words (Kuhn and De Mori 1990).

    Example:
        >>> run = tslm.open_run("runs/asv-kn5")
        >>> model = CachedModel(CachedConfig(weight=0.1), Part(run.model, run.recipe.model))
        >>> round(float(np.exp(model.predict(model.start(1))).sum()), 6)
        1.0
    """

    kind: ClassVar[str] = "cache"

    def __init__(self, config: CachedConfig, part: Part) -> None:
        self.config = config
        self.part = part
        self.vocabulary, self.rule = part.model.vocabulary, part.model.rule
        if not isinstance(part.model, HasVectors):
            self.window = part.model.window

    def start(self, batch: int) -> CachedState:
        """Start with nothing remembered."""
        inner = self.part.model.start(batch)
        keys_BNM = None
        if isinstance(self.part.model, HasVectors):
            keys_BNM = self.part.model.vectors(inner)[:, None][:, :0]
        return CachedState(inner, np.empty((batch, 0), np.int64), keys_BNM)

    def score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: CachedState
    ) -> tuple[Float[np.ndarray, "B T"], CachedState]:
        """Score the tokens, each with the cache as it is before it."""
        read, state = self.read(tokens_BT, state, (self._trial,))
        return mix_cache(read.scores_BT, read.recalled_SBT[0], self.config.weight), state

    def score_knowing(
        self, tokens_BT: Int[np.ndarray, "B T"], state: CachedState
    ) -> tuple[Float[np.ndarray, "B T"], Float[np.ndarray, "B T F"], CachedState]:
        """Return what ``score`` does, and how much the states of the cache are like that before each token."""
        read, state = self.read(tokens_BT, state, (self._trial,))
        return (
            mix_cache(read.scores_BT, read.recalled_SBT[0], self.config.weight),
            read.likeness_SBT[0][..., None],
            state,
        )

    def know(self, state: CachedState) -> Float[np.ndarray, "B F"]:
        """Return ln of the mean of exp(θ ⟨z, z_i⟩) over the cache; 0 while it is empty, or knows no vectors."""
        weights_BN = self._weigh(state)
        if not weights_BN.shape[1]:
            return np.zeros((len(weights_BN), 1))
        return np.log(weights_BN.mean(1, keepdims=True))

    @property
    def _trial(self) -> Trial:
        return self.config.size, self.config.sharpness

    def read(
        self, tokens_BT: Int[np.ndarray, "B T"], state: CachedState, tried: Sequence[Trial]
    ) -> tuple[Recollection, CachedState]:
        """Return what model and cache say of each token by themselves, for each N and θ, and the state after them."""
        model, vectors_BTM = self.part.model, None
        if isinstance(model, HasVectors):
            scores_BT, vectors_BTM, inner = model.score_vectors(tokens_BT, state.inner)
        else:
            scores_BT, inner = model.score(tokens_BT, state.inner)
        after = replace(state, inner=inner)
        return remember(tokens_BT, scores_BT, vectors_BTM, after, tried)

    def predict(self, state: CachedState) -> Float[np.ndarray, "B V"]:
        """Return ln p of every next word."""
        log_BV = self.part.model.predict(state.inner)
        B, N = state.words_BN.shape
        if N == 0:
            return log_BV
        weights_BN = self._weigh(state)
        weights_BN /= weights_BN.sum(1, keepdims=True)
        recalled_BV = np.zeros(log_BV.shape)
        np.add.at(recalled_BV, (np.arange(B)[:, None], state.words_BN), weights_BN)
        return mix_cache(log_BV, recalled_BV, self.config.weight)

    def _weigh(self, state: CachedState) -> Float[np.ndarray, "B N"]:
        """Return exp(θ ⟨z, z_i⟩) of each word of the cache; all alike where there are no vectors."""
        if state.keys_BNM is None:
            return np.ones(state.words_BN.shape)
        assert isinstance(self.part.model, HasVectors)  # noqa: S101
        query_BM = self.part.model.vectors(state.inner)
        alike_BN = np.einsum("bnm,bm->bn", state.keys_BNM, query_BM, optimize=True)
        return np.exp(self.config.sharpness * alike_BN.astype(np.float64))

    @property
    def parameter_count(self) -> int:
        """Those of the model, λ and θ; what is remembered is no parameter."""
        return self.part.model.parameter_count + 2

    def without_cache(self) -> CachedModel:
        """Return it with λ = 0."""
        return CachedModel(replace(self.config, weight=0.0), self.part)

    def save(self, folder: Path) -> None:
        """Write the model into ``parts/1``."""
        save_parts([self.part], folder)

    @classmethod
    def load(cls, folder: Path, config: CachedConfig, vocabulary: Vocabulary) -> CachedModel:
        """Read the model."""
        (part,) = load_parts(folder, 1, vocabulary)
        return cls(config, part)


def mix_cache(
    scores: NDArray[np.floating[Any]], recalled: NDArray[np.float64], weight: float
) -> NDArray[np.float64]:
    """Return ln of the mixed probabilities; the first word of a text has no cache before it."""
    share = np.where(np.isnan(recalled), 0.0, weight)
    with np.errstate(divide="ignore"):
        return np.log((1 - share) * np.exp(scores.astype(np.float64)) + share * np.nan_to_num(recalled))


def remember(
    tokens_BT: Int[np.ndarray, "B T"],
    scores_BT: Float[np.ndarray, "B T"],
    vectors_BTM: Float[np.ndarray, "B T M"] | None,
    state: CachedState,
    tried: Sequence[Trial],
) -> tuple[Recollection, CachedState]:
    """Return what a cache says of words that a model has scored, for each N and θ, and the cache after the last.

    Args:
        tokens_BT: the words.
        scores_BT: ln p of each under the model.
        vectors_BTM: from which each was predicted, of length one; None where the model has none.
        state: the cache before them; the model's own state goes through as it is.
        tried: the N and θ to try; as many words are remembered as the largest N says.
    """
    begin, keys_BNM, largest = state.words_BN.shape[1], state.keys_BNM, max(size for size, _ in tried)
    words_BN = np.concatenate([state.words_BN, tokens_BT], axis=1)
    if vectors_BTM is None:
        recalled_SBT = np.stack([[_count(words_N, begin, size) for words_N in words_BN] for size, _ in tried])
        likeness_SBT = np.zeros(recalled_SBT.shape)
    else:
        keys_BNM = vectors_BTM if keys_BNM is None else np.concatenate([keys_BNM, vectors_BTM], axis=1)
        recalled_SBT, likeness_SBT = np.stack(
            [
                _recall(words_N, keys_NM, begin, tried)
                for words_N, keys_NM in zip(words_BN, keys_BNM, strict=True)
            ],
            axis=2,
        )
        keys_BNM = keys_BNM[:, -largest:]
    after = CachedState(state.inner, words_BN[:, -largest:], keys_BNM)
    return Recollection(scores_BT, recalled_SBT, likeness_SBT), after


def _recall(
    words_N: Int[np.ndarray, "N"], keys_NM: Float[np.ndarray, "N M"], begin: int, tried: Sequence[Trial]
) -> Float[np.ndarray, "2 S T"]:
    """Return, for each N, θ and word from ``begin`` on, the cache's probability of it and ln of the mean weight.

    Where nothing is before a word, the first is nan and the second 0.
    """
    found_2ST = np.empty((2, len(tried), len(words_N) - begin))
    sizes = sorted({size for size, _ in tried})
    for first in range(begin, len(words_N), CHUNK):
        last = min(first + CHUNK, len(words_N))
        here, oldest = slice(first - begin, last - begin), max(0, first - sizes[-1])
        alike_CN = keys_NM[first:last] @ keys_NM[oldest:last].T
        distance_CN = np.arange(first, last)[:, None] - np.arange(oldest, last)
        equal_CN = words_N[first:last, None] == words_N[oldest:last]
        # A larger cache is a smaller one and a band of older words: each pair of words is looked at once for all sizes.
        bands: list[tuple[slice, Any, Any]] = []
        for below, size in zip((0, *sizes), sizes, strict=False):
            columns = slice(max(0, first - size - oldest), max(0, last - below - oldest))
            seen_CN = (distance_CN[:, columns] > below) & (distance_CN[:, columns] <= size)
            bands.append((columns, seen_CN, seen_CN & equal_CN[:, columns]))
        for theta in dict.fromkeys(theta for _, theta in tried):
            weights_CN = np.exp(alike_CN * np.float32(theta))
            same_C, seen_C = np.zeros(last - first), np.zeros(last - first)
            for size, (columns, seen_CN, same_CN) in zip(sizes, bands, strict=True):
                same_C += np.sum(weights_CN[:, columns], axis=1, where=same_CN, dtype=np.float64)
                seen_C += np.sum(weights_CN[:, columns], axis=1, where=seen_CN, dtype=np.float64)
                if (size, theta) not in tried:
                    continue
                place, count_C = tried.index((size, theta)), np.minimum(np.arange(first, last), size)
                with np.errstate(invalid="ignore"):
                    found_2ST[0, place, here] = same_C / seen_C
                found_2ST[1, place, here] = np.log(
                    np.divide(seen_C, count_C, out=np.ones_like(seen_C), where=count_C > 0)
                )
    return found_2ST


def _count(words_N: Int[np.ndarray, "N"], begin: int, size: int) -> Float[np.ndarray, "T"]:
    """Return the share of each word from ``begin`` on among the ``size`` words before it; nan where there are none."""
    places_N = np.arange(len(words_N))
    reach_N = np.minimum(places_N, size)
    # Sorted by word, then by place: equal words within reach are neighbours. What is looked for is sorted as well,
    # which makes the search several times as fast.
    keys_N = np.sort(words_N.astype(np.int64) * len(words_N) + places_N)
    sorted_N = keys_N % len(words_N)
    found_N = np.empty_like(places_N)
    found_N[sorted_N] = places_N - np.searchsorted(keys_N, keys_N - reach_N[sorted_N])
    with np.errstate(invalid="ignore"):
        return found_N[begin:] / reach_N[begin:]
