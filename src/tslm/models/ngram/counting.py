"""Counting all n-grams of a corpus with sorted integer arrays."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError
from tslm.models.ngram.trie import IntArray, NgramTrie, build_trie
from tslm.shapes import Int

MAX_ORDER = 7

MANY = 1 << 22
"""How many keys are worth sorting on several cores: below, the threads win nothing."""

MOST_PARTS = 8
"""Into how many ranges keys are parted at most, since each core looks at all of them to find its own."""

SAMPLE = 1 << 12
"""How many keys are looked at to choose the ranges."""


@dataclass(frozen=True, kw_only=True)
class NgramCounts:
    """How often each n-gram occurs. A line begins with one begin marker, and no n-gram crosses lines."""

    trie: NgramTrie
    """The n-grams."""

    counts: NDArray[np.integer]
    """For each node its occurrences; for the root all tokens, for the begin marker the lines."""

    @property
    def byte_count(self) -> int:
        """How much memory (or mapped file) the arrays take."""
        return self.trie.byte_count + self.counts.nbytes


def count_ngrams(
    ids: Int[np.ndarray, "T"],
    order: int,
    vocabulary_size: int,
    eos_id: int,
    *,
    memory_gib: float | None = None,
) -> NgramCounts:
    """Eqs. 12, 13. Count every n-gram of length 1 to ``order``.

    Each level is one sort: an n-gram is the pair (rank of its history, last word), packed in 64 bits, so no
    order and no vocabulary needs a longer key. Memory is a small number of integers per token; where that is
    too much, give ``memory_gib``: the sorting is then done on disk, and the answer is the same in mapped
    files.

    Args:
        ids: the tokens, with ``eos_id`` after each line.
        order: the longest n-gram, 1 to 7.
        vocabulary_size: V; every id is below it.
        eos_id: the word that ends a line.
        memory_gib: the memory to stay within, about; None for no limit.

    Raises:
        CorpusError: no tokens, an id outside the vocabulary, or an order out of range.
    """
    check_tokens(ids, order, vocabulary_size)
    if memory_gib is not None:
        from tslm.models.ngram.spill import count_on_disk

        return count_on_disk(ids, order, vocabulary_size, eos_id, memory_gib)
    level_keys, suffixes, counts = _rank_levels(ids, order, vocabulary_size, eos_id)
    trie = build_trie(
        vocabulary_size=vocabulary_size, level_keys=level_keys, suffixes=np.concatenate(suffixes)
    )
    return NgramCounts(trie=trie, counts=np.concatenate(counts))


def count_corpus(
    corpus: Corpus, vocabulary: Vocabulary, *, order: int, memory_gib: float | None
) -> NgramCounts:
    """Count the training split of a corpus with the corpus's vocabulary, or with that and words after it."""
    ids = corpus.splits["train"]
    return count_ngrams(ids, order, len(vocabulary), vocabulary.eos_id, memory_gib=memory_gib)


def _rank_levels(
    ids: Int[np.ndarray, "T"], order: int, vocabulary_size: int, eos_id: int
) -> tuple[list[IntArray], list[NDArray[np.integer]], list[NDArray[np.integer]]]:
    """Return keys, suffixes and counts of the n-grams of each level, one sort per level."""
    base = vocabulary_size + 1
    stream, places = mark_lines(ids, vocabulary_size, eos_id)
    # Nodes are never more than the tokens of all levels together.
    narrow = np.int32 if len(stream) * order + base < 2**31 else np.int64
    ranks = stream.astype(np.int64) + 1
    level_keys = [np.array([-1], np.int64), np.arange(base, dtype=np.int64)]
    suffixes: list[NDArray[np.integer]] = [np.zeros(1 + base, narrow)]
    counts: list[NDArray[np.integer]] = [
        np.array([len(ids)], narrow),
        np.bincount(stream, minlength=base).astype(narrow),
    ]
    ends = np.arange(len(stream))
    offset = 1 + base
    for level in range(2, order + 1):
        ends = ends[places[ends] >= level - 1]
        keys = ranks[ends - 1] * base + stream[ends]
        by_key, keys = _sort(keys)
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        level_keys.append(keys[first])
        suffixes.append(ranks[ends[by_key[first]]].astype(narrow))
        sizes = np.diff(first, append=len(keys))
        counts.append(sizes.astype(narrow))
        # The next level needs only the new ranks of the ends.
        ranks[ends[by_key]] = np.repeat(np.arange(offset, offset + len(first)), sizes)
        offset += len(first)
    return level_keys, suffixes, counts


def _sort(keys: IntArray) -> tuple[IntArray, IntArray]:
    """Return the places of the keys in ascending order, and the keys in it; of many, each core sorts a range."""
    parts = min(MOST_PARTS, os.cpu_count() or 1)
    if parts == 1 or len(keys) < MANY:
        by_key = np.argsort(keys)
        return by_key, keys[by_key]
    sample = np.sort(keys[:: 1 + len(keys) // SAMPLE])
    bounds = [0, *sample[np.arange(1, parts) * len(sample) // parts].tolist(), np.iinfo(np.int64).max]

    def sort(bounds: tuple[int, int]) -> tuple[IntArray, IntArray]:
        own = np.flatnonzero((keys >= bounds[0]) & (keys < bounds[1]))
        some = keys[own]
        by_key = np.argsort(some)
        return own[by_key], some[by_key]

    with ThreadPoolExecutor(parts) as pool:
        places, ascending = zip(*pool.map(sort, pairwise(bounds)), strict=True)
    return np.concatenate(places), np.concatenate(ascending)


def mark_lines(ids: Int[np.ndarray, "T"], begin_id: int, eos_id: int) -> tuple[NDArray[np.int32], IntArray]:
    """Return the tokens with a begin marker before each line, and the place of each in its line."""
    starts = np.concatenate([[0], np.flatnonzero(ids[:-1] == eos_id) + 1])
    stream = np.insert(ids.astype(np.int32), starts, begin_id)
    markers = starts + np.arange(len(starts))
    lengths = np.diff(markers, append=len(stream))
    return stream, np.arange(len(stream)) - np.repeat(markers, lengths)


def check_tokens(ids: Int[np.ndarray, "T"], order: int, vocabulary_size: int) -> None:
    """Raise a CorpusError unless the tokens can be counted up to ``order``."""
    if not 1 <= order <= MAX_ORDER:
        raise CorpusError(f"order {order} is out of range: give 1 to {MAX_ORDER}")
    if not len(ids):
        raise CorpusError("the corpus has no tokens to count; give at least one line of text")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocabulary_size:
        wrong = low if low < 0 else high
        raise CorpusError(
            f"token id {wrong} is outside the vocabulary of {vocabulary_size} words: "
            "encode the text with the vocabulary that is given to the model"
        )
