"""The chunks of a text, which stand between white space, as numbers on disk; and the words that each is cut into."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.rule import TextRule
from tslm.corpus.vocabulary import EOS

EOS_NUMBER = 0
"""The number of ``<eos>`` among chunks, and among words."""

_BLOCK_NUMBERS = 1 << 20
_BLOCK_CHUNKS = 1 << 16
_MARKER = rf"(?<!\S){EOS}(?!\S)"

NumberT = TypeVar("NumberT", np.int32, np.int64)


class Numbers(dict[str, int]):
    """Chunks or words in the order of their first appearance; ``<eos>`` is 0, and a new one takes the next number."""

    def __init__(self) -> None:
        super().__init__({EOS: EOS_NUMBER})

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


@dataclass(frozen=True)
class RawText:
    """A text as numbers of its chunks, on disk, with ``<eos>`` after each line; and the bytes of each line."""

    numbers_path: Path
    bytes_path: Path

    lines: int
    """How many lines the text has."""

    def numbers(self) -> Iterator[NDArray[np.int32]]:
        """Yield the numbers in blocks; a block may end within a line."""
        return _read_blocks(self.numbers_path, np.int32)

    def bytes_of_lines(self) -> Iterator[NDArray[np.int64]]:
        """Yield how many bytes of UTF-8 each line has, its newline included, in blocks of lines."""
        return _read_blocks(self.bytes_path, np.int64)

    def remove(self) -> None:
        """Remove the files."""
        self.numbers_path.unlink()
        self.bytes_path.unlink()


def write_chunks(pieces: Iterable[str], numbers: Numbers, path: Path, lower: bool) -> RawText:
    """Write the numbers of all chunks of a text, which comes in pieces that are cut at white space."""
    numbers_path, bytes_path = path.with_suffix(".numbers"), path.with_suffix(".bytes")
    lines = 0
    unfinished = 0  # the bytes so far of a line that goes on in the next piece
    number_of = numbers.__getitem__
    with numbers_path.open("wb") as of_chunks, bytes_path.open("wb") as of_lines:
        for piece in pieces:
            chunks = (piece.lower() if lower else piece).replace("\n", f" {EOS} ").split()
            block = np.fromiter(map(number_of, chunks), np.int32, len(chunks))
            of_chunks.write(block.data)
            ended = int(np.count_nonzero(block == EOS_NUMBER))
            lines += ended
            if ended != piece.count("\n"):  # a marker that stands in the text ends a line too
                piece = re.sub(_MARKER, "<eos\n", piece, flags=re.IGNORECASE if lower else re.NOFLAG)
            text = np.frombuffer(piece.encode(), np.uint8)
            ends = np.flatnonzero(text == ord("\n")) + 1
            lengths = np.diff(ends, prepend=0)
            if len(ends):
                lengths[0] += unfinished
                unfinished = len(text) - int(ends[-1])
            else:
                unfinished += len(text)
            of_lines.write(lengths.astype(np.int64).data)
    return RawText(numbers_path, bytes_path, lines)


def _read_blocks(path: Path, dtype: type[NumberT]) -> Iterator[NDArray[NumberT]]:
    with path.open("rb") as handle:
        while len(block := np.fromfile(handle, dtype, _BLOCK_NUMBERS)):
            yield block


@dataclass(frozen=True)
class Cuts:
    """The words that each chunk is cut into, as numbers one after the other."""

    words: Numbers
    """All words."""

    flat: NDArray[np.int32]
    """The words of all chunks, chunk after chunk."""

    lengths: NDArray[np.int64]
    """How many words each chunk has."""

    def count(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how often each word comes, given how often each chunk does."""
        # As floats, which are exact up to 2⁵³ words.
        weights = np.repeat(counts, self.lengths).astype(np.float64)
        return np.bincount(self.flat, weights, minlength=len(self.words)).astype(np.int64)

    def expand(self, block: NDArray[np.int32], values: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the value of each word of a text, given the numbers of its chunks and a value for each of ``flat``."""
        if self._whole:
            return values[block]
        lengths = self.lengths[block]
        ends = np.cumsum(lengths)
        places = np.repeat(self._starts[block] - (ends - lengths), lengths)
        return values[places + np.arange(len(places))]

    @cached_property
    def _whole(self) -> bool:
        """Whether every chunk is one word."""
        return bool((self.lengths == 1).all())

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Where the words of each chunk begin in ``flat``."""
        return np.cumsum(self.lengths) - self.lengths


def cut_chunks(rule: TextRule, chunks: Numbers) -> Cuts:
    """Return the words of every chunk by a rule."""
    if type(rule).cut is TextRule.cut:
        count = len(chunks)
        return Cuts(chunks, np.arange(count, dtype=np.int32), np.ones(count, np.int64))
    words = Numbers()
    flat: list[NDArray[np.int32]] = []
    lengths: list[NDArray[np.int64]] = []
    rest = iter(chunks)
    while some := list(islice(rest, _BLOCK_CHUNKS)):
        cut = rule.cut_many(some)
        lengths.append(np.fromiter(map(len, cut), np.int64, len(cut)))
        numbers = map(words.__getitem__, chain.from_iterable(cut))
        flat.append(np.fromiter(numbers, np.int32, int(lengths[-1].sum())))
    return Cuts(words, np.concatenate(flat), np.concatenate(lengths))
