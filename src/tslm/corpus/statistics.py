"""The sizes of a corpus, as the paper tabulates them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.sources import Corpus


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """Table 1. Return the tokens, lines, types and share of ``<unk>`` of each split, and the vocabulary's size.

    Tokens include one ``<eos>`` per line, and so does the vocabulary. ``bytes`` and ``words`` are those of the text as
    it stands in its files, whatever the rule makes of it.
    """
    size = len(corpus.vocabulary)
    unk_id = corpus.vocabulary.unk_id
    splits: dict[str, dict[str, float]] = {}
    for split, ids in corpus.splits.items():
        counts = count_words(corpus, split)
        splits[split] = {
            "tokens": len(ids),
            "lines": int(counts[corpus.vocabulary.eos_id]),
            "types": int(np.count_nonzero(counts)),
            "oov_rate": 0.0 if unk_id is None else int(counts[unk_id]) / len(ids),
        }
        if split in corpus.sizes:
            splits[split] |= {"bytes": corpus.sizes[split].bytes, "words": corpus.sizes[split].words}
    return {"splits": splits, "vocabulary": size, "fingerprint": corpus.fingerprint}


def count_words(corpus: Corpus, split: str) -> NDArray[np.int64]:
    """Return how often each word of the vocabulary occurs in a split, a mapped one read piece by piece."""
    ids, size = corpus.splits[split], len(corpus.vocabulary)
    counts = np.zeros(size, np.int64)
    for start in range(0, len(ids), 1 << 22):
        counts += np.bincount(ids[start : start + (1 << 22)], minlength=size)
    return counts


def head(corpus: Corpus, split: str, lines: int) -> list[list[str]]:
    """Return the words of the first lines of a split, without ``<eos>``."""
    ids = corpus.splits[split]
    found: list[list[str]] = []
    start = 0
    for stop in range(len(ids)):
        if len(found) >= lines:
            break
        if ids[stop] == corpus.vocabulary.eos_id:
            found.append(corpus.vocabulary.decode(ids[start:stop]))
            start = stop + 1
    return found
