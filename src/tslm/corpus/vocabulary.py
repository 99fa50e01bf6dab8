"""The words a model knows, each with its id."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tslm.errors import CorpusError
from tslm.files import read_regular, write_text

EOS = "<eos>"
"""Ends every line; it is a token like any other and is predicted like any other."""

UNK = "<unk>"
"""Stands for every word outside the vocabulary."""

LARGEST_FILE = 1 << 28
"""Bytes of a vocabulary's file."""


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """An immutable list of words; a word's id is its place in the list. The most frequent word has id 0.

    Example:
        >>> vocabulary = Vocabulary.from_counts({"the": 3, "cat": 2, "sat": 1, "<eos>": 2}, min_count=2)
        >>> vocabulary.words
        ('the', '<eos>', 'cat', '<unk>')
        >>> vocabulary.decode(vocabulary.encode_line("the dog"))
        ['the', '<unk>', '<eos>']
    """

    words: tuple[str, ...]
    """All words, the most frequent first."""

    ids: Mapping[str, int] = field(init=False, compare=False)
    """The id of each word."""

    eos_id: int = field(init=False, compare=False)
    """The id of ``<eos>``."""

    unk_id: int | None = field(init=False, compare=False)
    """The id of ``<unk>``; None where every word of the text is in the vocabulary."""

    _table: dict[str, int] = field(init=False, compare=False)
    # The look-up table behind `ids`: mapping over a dict itself is faster than over the read-only view of it.

    def __post_init__(self) -> None:
        ids = dict(zip(self.words, range(len(self.words)), strict=True))
        if len(ids) != len(self.words):
            twice = next(word for number, word in enumerate(self.words) if ids[word] != number)
            raise CorpusError(f"the vocabulary holds {twice!r} twice; give every word once")
        if EOS not in ids:
            raise CorpusError(f"the vocabulary of {len(ids)} words lacks {EOS}; add it as a word of its own")
        if "\n".join(self.words).split() != list(self.words):
            bad = next(word for word in self.words if word.split() != [word])
            raise CorpusError(f"the vocabulary holds {bad!r}, which is empty or has a space; remove it")
        object.__setattr__(self, "_table", ids)
        object.__setattr__(self, "ids", MappingProxyType(ids))
        object.__setattr__(self, "eos_id", ids[EOS])
        object.__setattr__(self, "unk_id", ids.get(UNK))

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, int], min_count: int = 1, max_size: int | None = None
    ) -> Vocabulary:
        """Make a vocabulary of the frequent words, the most frequent first and equals in alphabetical order.

        ``<eos>`` is always in it. ``<unk>`` is in it when the text has it, or when words may be left out (a
        ``min_count`` above 1 or a ``max_size``); it is placed by the count of all the words it stands for.

        Args:
            counts: how often each word stands in the training text, ``<eos>`` included.
            min_count: words seen less often are left out.
            max_size: the largest number of words kept, ``<eos>`` and ``<unk>`` among them.
        """
        special = {EOS: counts.get(EOS, 0)}
        if UNK in counts or min_count > 1 or max_size is not None:
            special[UNK] = counts.get(UNK, 0)
        if max_size is not None and max_size < len(special) + 1:
            raise CorpusError(
                f"a vocabulary of {max_size} words is too small; allow {len(special) + 1} or more"
            )
        # Two sorts, the second one stable: much faster than one by pairs when there are a million words.
        usual = sorted(word for word in counts if word not in special)
        usual.sort(key=counts.__getitem__, reverse=True)
        frequent = bisect_right(usual, -min_count, key=lambda word: -counts[word])
        kept = usual[: frequent if max_size is None else min(frequent, max_size - len(special))]
        if UNK in special:
            special[UNK] += sum(map(counts.__getitem__, usual[len(kept) :]))
        for word in sorted(special):
            insort(kept, word, key=lambda word: (-special.get(word, counts.get(word, 0)), word))
        return cls(tuple(kept))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read a vocabulary that ``save`` wrote.

        Raises:
            CorpusError: the file is missing, is not UTF-8, or is not a list of words with ``<eos>`` in it.
        """
        try:
            text = read_regular(path, LARGEST_FILE).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
            raise CorpusError(
                f"cannot read the vocabulary {path}: {reason}; give one word per line"
            ) from error
        try:
            return cls(tuple(text.removesuffix("\n").split("\n")))
        except CorpusError as error:
            raise CorpusError(f"{path}: {error}") from error

    def save(self, path: Path) -> None:
        """Write the words as plain text, one per line, the word of id 0 first."""
        write_text(path, "".join(f"{word}\n" for word in self.words))

    def encode(self, words: Sequence[str]) -> NDArray[np.int32]:
        """Return the ids of ``words``; a word outside the vocabulary becomes ``<unk>``.

        Raises:
            CorpusError: a word is outside the vocabulary and there is no ``<unk>``.
        """
        if self.unk_id is not None:
            numbers = map(self._table.get, words, repeat(self.unk_id))
            return np.fromiter(numbers, np.int32, len(words))
        try:
            return np.fromiter(map(self._table.__getitem__, words), np.int32, len(words))
        except KeyError as error:
            raise unknown_word(str(error.args[0])) from None

    def look_up(self, words: Sequence[str]) -> NDArray[np.int32]:
        """Return the ids of ``words``, -1 for a word outside the vocabulary."""
        return np.fromiter(map(self._table.get, words, repeat(-1)), np.int32, len(words))

    def encode_line(self, text: str) -> NDArray[np.int32]:
        """Return the ids of the words of one line (split at white space), with ``<eos>`` after them."""
        return self.encode([*text.split(), EOS])

    def decode(self, ids: Iterable[int] | NDArray[np.integer]) -> list[str]:
        """Return the words of ``ids``.

        Raises:
            CorpusError: an id outside the vocabulary.
        """
        numbers = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids), dtype=np.int64)
        outside = numbers[(numbers < 0) | (numbers >= len(self.words))]
        if outside.size:
            last = len(self.words) - 1
            raise CorpusError(f"id {outside[0]} is outside the vocabulary; give ids from 0 to {last}")
        return [self.words[number] for number in numbers.tolist()]

    def __reduce__(self) -> tuple[type[Vocabulary], tuple[tuple[str, ...]]]:
        # The read-only view cannot be copied; the words say it all.
        return Vocabulary, (self.words,)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.ids

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} words, unk_id={self.unk_id})"


def unknown_word(word: str) -> CorpusError:
    """Return the error for a word that the vocabulary can only meet with ``<unk>``, which it has not."""
    shown = word if len(word) <= 40 else word[:40] + "…"
    return CorpusError(
        f"the word {shown!r} is not in the vocabulary, and there is no {UNK} to stand for it; "
        f"use words of the training text, or train with corpus.min_count=2"
    )
