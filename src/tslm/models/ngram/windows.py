"""Windows of words as few whole numbers each, sorted in memory, and the n-grams of every order read off them.

A window begins at each token and at the begin of each line, and is padded behind the end of its line. Its words, plus
one so that 0 is the padding, are packed into as few 64-bit columns as hold them. Sorted, windows hold all orders at
once: the n-grams of length k are the different first k words, in the order of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.models.ngram.counting import mark_lines
from tslm.models.ngram.trie import IntArray
from tslm.shapes import Int

KEY_BITS = 63
"""The bits of a number that is never negative."""

RANK_BITS = 26
"""The bits for the rank of a row among those that are sorted together."""

LARGEST = 1 << RANK_BITS
"""How many windows can be sorted together."""


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How the words of a window stand in its columns."""

    order: int
    """The number of words."""

    vocabulary_size: int
    """V; the begin marker is word V."""

    eos_id: int
    """The word that ends a line."""

    @property
    def bits(self) -> int:
        """The bits of each word."""
        return (self.vocabulary_size + 1).bit_length()

    @property
    def widths(self) -> list[int]:
        """How many words each column holds; from the second on a rank must fit beside them."""
        widths = [min(self.order, KEY_BITS // self.bits)]
        while sum(widths) < self.order:
            widths.append(min(self.order - sum(widths), (KEY_BITS - RANK_BITS) // self.bits))
        return widths

    def pack(self, ids: Int[np.ndarray, "T"], start: int, stop: int) -> Int[np.ndarray, "Q C"]:
        """Return the windows from each token ``start`` to ``stop``, and from each begin of a line among them."""
        some = np.asarray(ids[start : stop + self.order])
        # The chunk begins within a line; its begin marker is not one of the text.
        inside = start > 0 and ids[start - 1] != self.eos_id
        stream, _ = mark_lines(some, self.vocabulary_size, self.eos_id)
        here = some[: stop - start]
        count = len(here) + 1 - int(inside) + int((here[:-1] == self.eos_id).sum())
        padded = np.zeros(count + self.order, np.int64)
        used = stream[int(inside) :][: len(padded)]
        padded[: len(used)] = used
        padded[: len(used)] += 1
        rows = np.zeros((count, len(self.widths)), np.int64)
        open_line = np.ones(count, np.bool_)
        place = 0
        for number, width in enumerate(self.widths):
            column = np.zeros(count, np.int64)
            for _ in range(width):
                words = padded[place : place + count] * open_line
                column <<= self.bits
                column |= words
                open_line &= words != self.eos_id + 1
                place += 1
            rows[:, number] = column
        return rows

    def unpack(self, row: Int[np.ndarray, "C"]) -> list[int]:
        """Return the words of one window, plus one."""
        words: list[int] = []
        for column, width in zip(row.tolist(), self.widths, strict=True):
            words += [column >> self.bits * place & (1 << self.bits) - 1 for place in reversed(range(width))]
        return words

    def sort(
        self, rows: Int[np.ndarray, "Q C"], times: Int[np.ndarray, "Q"] | None = None
    ) -> tuple[Int[np.ndarray, "R C"], Int[np.ndarray, "R"]]:
        """Return the different rows in ascending order, and how often each occurs.

        Column by column: the rank of a row among the columns so far, and the next column, make one number.

        Args:
            rows: at most ``LARGEST`` of them.
            times: how often each occurs already; once when left out.
        """
        shifts = [self.bits * width for width in self.widths[1:]]
        prefixes: list[IntArray] = []
        key = rows[:, 0]
        for number, shift in enumerate(shifts, 1):
            by_key = np.argsort(key)
            ascending = key[by_key]
            new = _changes([ascending])
            prefixes.append(ascending[new])
            ranks = np.empty(len(key), np.int64)
            ranks[by_key] = np.cumsum(new) - 1
            key = (ranks << shift) | rows[:, number]
        if times is None:
            key = np.sort(key)
            first = np.flatnonzero(_changes([key]))
            counts = np.diff(first, append=len(key))
        else:
            by_key = np.argsort(key)
            key = key[by_key]
            first = np.flatnonzero(_changes([key]))
            counts = np.add.reduceat(times[by_key], first)
        key = key[first]
        found = np.empty((len(key), rows.shape[1]), np.int64)
        for number in reversed(range(1, rows.shape[1])):
            shift = shifts[number - 1]
            found[:, number] = key & (1 << shift) - 1
            key = prefixes[number - 1][key >> shift]
        found[:, 0] = key
        return found, counts


@dataclass(frozen=True)
class Level:
    """The n-grams of one length in sorted windows."""

    length: int
    words: NDArray[np.int32]
    """The last word of each."""
    counts: IntArray
    """How often each occurs."""
    children: NDArray[np.integer]
    """How many different words follow each."""


def read_levels(
    packing: Packing, rows: Int[np.ndarray, "R C"], counts: Int[np.ndarray, "R"]
) -> Iterator[Level]:
    """Yield the n-grams of different sorted windows, the longest first: each is what the longer ones begin with."""
    columns, widths = [np.ascontiguousarray(column) for column in rows.T], packing.widths
    children = np.zeros(len(counts), np.int64)
    for length in range(packing.order, 0, -1):
        words = columns[-1] & (1 << packing.bits) - 1
        nodes = words > 0
        kept = slice(None) if nodes.all() else nodes
        yield Level(length, (words[kept] - 1).astype(np.int32), counts[kept], children[kept])
        widths[-1] -= 1
        if widths[-1]:
            columns[-1] >>= packing.bits
        else:
            columns.pop()
            widths.pop()
        first = np.flatnonzero(_changes(columns)) if columns else np.array([0])
        children = _sums(nodes, first)
        counts = _sums(counts, first)
        columns = [column[first] for column in columns]


def _changes(columns: Sequence[IntArray]) -> NDArray[np.bool_]:
    """Return where a row differs from the one above it; the first does."""
    new = np.zeros(len(columns[0]), np.bool_)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return new


def _sums(values: NDArray[Any], first: IntArray) -> IntArray:
    """Return the sum of each group of neighbours, given where each begins."""
    running = np.cumsum(values)
    return np.diff(running[np.append(first[1:], len(values)) - 1], prepend=0)
