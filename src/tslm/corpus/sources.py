"""Corpora: the named ones and the user's own files, as flat arrays of word ids."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tslm.config import check
from tslm.corpus.vocabulary import EOS, Vocabulary
from tslm.errors import CorpusError, nearest

SPLITS = ("train", "valid", "test")

_FILES = {
    "ptb": {split: f"ptb/ptb.{split}.txt" for split in SPLITS},
    "wikitext-2": {split: f"wikitext-2/wiki.{split}.tokens" for split in SPLITS},
}


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Which text a model learns, and how the text becomes words."""

    name: str = "asv"
    """A named corpus (``tslm data list``); when ``path`` is given, only the name that reports show."""

    path: tuple[str, ...] = ()
    """The user's own text: files, one folder with train, valid and test files, or ``-`` for standard input."""

    lower: bool = False
    """Lower-case the text (own files only)."""

    min_count: int = 2
    """Words seen less often in train become ``<unk>``; 1 keeps every word (own files only)."""

    max_vocabulary: int | None = None
    """The largest number of words kept, ``<eos>`` and ``<unk>`` among them (own files only)."""

    valid_fraction: float = 0.05
    """The share of lines for validation, where the files do not say it."""

    test_fraction: float = 0.05
    """The share of lines for the test, where the files do not say it."""

    split_seed: int = 0
    """Which lines go where, where the files do not say it."""

    def __post_init__(self) -> None:
        check(self.min_count >= 1, f"corpus.min_count = {self.min_count} must be 1 or more")
        check(
            self.max_vocabulary is None or self.max_vocabulary >= 3,
            f"corpus.max_vocabulary = {self.max_vocabulary} must be 3 or more (or left out)",
        )
        for key in ("valid_fraction", "test_fraction"):
            value = getattr(self, key)
            check(0 < value < 1, f"corpus.{key} = {value} must lie between 0 and 1")
        check(
            self.valid_fraction + self.test_fraction < 1,
            f"corpus.valid_fraction + corpus.test_fraction = {self.valid_fraction + self.test_fraction} "
            "leaves no line for train; make them smaller",
        )


@dataclass(frozen=True, repr=False)
class Corpus:
    """A text as word ids, split into train, valid and test.

    Example:
        >>> corpus = open_corpus("ptb")
        >>> corpus.splits["train"][:4], len(corpus.vocabulary)
        (memmap([...], dtype=int32), 10000)
    """

    name: str
    """What reports call it."""

    vocabulary: Vocabulary
    """The words of the training split."""

    splits: Mapping[str, NDArray[np.int32]]
    """Flat ids of ``train``, ``valid`` and ``test``, with one ``<eos>`` after each line."""

    fingerprint: str
    """SHA-256 over the vocabulary and all ids: two corpora with the same one are the same to a model."""

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(ids):,}" for split, ids in self.splits.items())
        return f"Corpus({self.name!r}, {sizes} tokens, vocabulary {len(self.vocabulary):,})"


def open_corpus(config: CorpusConfig | str, data_dir: Path | str | None = None) -> Corpus:
    """Open a corpus by name, or the user's own files.

    Args:
        config: a name, a path, or a config.
        data_dir: where to look for the files of named corpora first; then in ``TSLM_DATA``, then in the user cache.

    Raises:
        CorpusError: the corpus is unknown, missing or damaged.
    """
    config = CorpusConfig(name=config) if isinstance(config, str) else config
    if config.name not in _FILES:
        raise CorpusError(f"unknown corpus {config.name!r}: {nearest(config.name, _FILES)}")
    folder = Path(data_dir or os.environ.get("TSLM_DATA", "data"))
    words: dict[str, list[str]] = {}
    for split, name in _FILES[config.name].items():
        text = (folder / name).read_text(encoding="utf-8")
        words[split] = text.replace("\n", f" {EOS} ").split()
    vocabulary = Vocabulary.from_counts(Counter(words["train"]))
    splits = {split: vocabulary.encode(given) for split, given in words.items()}
    return Corpus(config.name, vocabulary, MappingProxyType(splits), fingerprint(vocabulary, splits))


def fingerprint(vocabulary: Vocabulary, splits: Mapping[str, NDArray[np.int32]]) -> str:
    """Return the SHA-256 over the words and all ids of a corpus."""
    digest = hashlib.sha256("\n".join(vocabulary.words).encode())
    for split in SPLITS:
        digest.update(f"\n{split} {len(splits[split])}\n".encode())
        digest.update(np.ascontiguousarray(splits[split], dtype="<i4").data)
    return digest.hexdigest()
