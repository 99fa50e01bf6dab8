"""N-gram models: counts, smoothed by Kneser–Ney, by add-k or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tslm.config import check
from tslm.corpus.sources import Corpus
from tslm.models.ngram.backoff import BackoffModel, with_unknown
from tslm.models.ngram.counting import MAX_ORDER, NgramCounts, count_corpus
from tslm.models.ngram.packing import Bits, round_table
from tslm.models.ngram.smoothing import (
    BackoffTable,
    estimate_add_k,
    estimate_kneser_ney,
    estimate_maximum_likelihood,
)

OLD_SMOOTHING = {"modified": "kneser-ney", "plain": "kneser-ney-single"}
"""What older recipes, whose kind was ``kneser-ney``, call the two of them."""


@dataclass(frozen=True, kw_only=True)
class NgramConfig:
    """How an n-gram model is counted and smoothed."""

    order: int = 5
    """The length of the longest n-grams, 1 to 7."""

    smoothing: Literal["kneser-ney", "kneser-ney-single", "add-k", "none"] = "kneser-ney"
    """Interpolated Kneser–Ney with three discounts or with a single one, k more of every word, or bare counts."""

    k: float = 1.0
    """What ``add-k`` adds to every count."""

    prune: tuple[int, ...] = ()
    """For order 1, 2, …: n-grams that occur at most so often are dropped (Kneser–Ney only); the last entry
    serves all higher orders. ``[0, 0, 1]`` drops the n-grams of order 3 and more that occur once."""

    discount_fallback: tuple[float, ...] | None = None
    """Discounts (for counts 1, 2 and more, or one for all) where the text is too small for its own."""

    unknown: bool = True
    """Where the corpus has no ``<unk>``, add it as the last word, so that unknown words have some mass.
    A corpus of subwords, to which no word is unknown, is left as it is."""

    memory_gib: float | None = None
    """Count on disk, within about this much memory; counted in memory when left out."""

    bits: Bits = 64
    """How many bits each probability and back-off has; with 8 (256 values per order, from which the back-offs follow)
    the file is less than half as large, and perplexity hardly higher."""

    def __post_init__(self) -> None:
        check(1 <= self.order <= MAX_ORDER, f"model.order = {self.order} must be 1 to {MAX_ORDER}")
        check(self.k > 0, f"model.k = {self.k} must be positive; for bare counts give smoothing = 'none'")
        check(
            all(low <= high for low, high in zip((0, *self.prune), self.prune, strict=False)),
            f"model.prune = {list(self.prune)} must not fall from one order to the next",
        )
        check(
            not self.prune or self.prune[0] == 0,
            f"model.prune = {list(self.prune)} must begin with 0: single words are never dropped",
        )
        check(
            not self.prune or self.smoothing in ("kneser-ney", "kneser-ney-single"),
            f"model.prune does not go with smoothing = {self.smoothing!r}; leave it out",
        )
        fallback = self.discount_fallback
        check(
            fallback is None
            or (len(fallback) in (1, 3) and all(0 <= d <= i + 1 for i, d in enumerate(fallback))),
            f"model.discount_fallback = {fallback} must be one or three numbers, each from 0 to its count",
        )
        check(
            self.memory_gib is None or self.memory_gib >= 0.5,
            f"model.memory_gib = {self.memory_gib} must be 0.5 or more",
        )

    @classmethod
    def renew(cls, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the table of an older recipe in today's words."""
        new = OLD_SMOOTHING.get(str(table.get("smoothing")))
        return {**table} if new is None else {**table, "smoothing": new}


class NgramModel(BackoffModel):
    """An n-gram model estimated from the training split of a corpus."""

    kind: ClassVar[str] = "ngram"

    @classmethod
    def fit(cls, config: NgramConfig, corpus: Corpus) -> NgramModel:
        """Count and smooth.

        Raises:
            CorpusError: nothing to count, ids outside the vocabulary, or too little text for the discounts.
        """
        spells = corpus.rule.all_words() is not None  # to a rule that spells everything nothing is unknown
        vocabulary = with_unknown(corpus.vocabulary) if config.unknown and not spells else corpus.vocabulary
        counts = count_corpus(corpus, vocabulary, order=config.order, memory_gib=config.memory_gib)
        model = cls(round_table(smooth(counts, config), config.bits), vocabulary)
        model.rule = corpus.rule
        return model


def smooth(counts: NgramCounts, config: NgramConfig) -> BackoffTable:
    """Turn counts into probabilities in the way the config names."""
    if config.smoothing == "add-k":
        return estimate_add_k(counts, config.k)
    if config.smoothing == "none":
        return estimate_maximum_likelihood(counts)
    return estimate_kneser_ney(
        counts,
        single_discount=config.smoothing == "kneser-ney-single",
        prune=config.prune,
        fallback=config.discount_fallback,
    )
