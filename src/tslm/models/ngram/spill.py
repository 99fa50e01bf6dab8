"""Counting n-grams of more text than fits in memory.

Windows are distributed over files by ranges of their first words, about equally many in each, and each file is sorted
in memory and read off as n-grams, on all cores. The files follow each other in the order of the tree, so its arrays are
written from beginning to end.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tslm.models.ngram.counting import NgramCounts
from tslm.models.ngram.trie import IntArray, NgramTrie, cut_histories, link_children
from tslm.models.ngram.windows import LARGEST, Level, Packing, read_levels
from tslm.progress import track_count
from tslm.shapes import Int

CHUNK = 1 << 19
"""How many tokens or nodes are held at a time: few enough for their memory to be used again and again."""

CORES = os.cpu_count() or 1

HELD = CORES + 1
"""How many parts are in memory at a time: one on each core, and one that is being written."""

SORTED_BYTES = 120
"""What sorting a window and reading it off takes, about."""

SHARE = 0.5
"""The share of the memory for sorting; the rest is for chunks and mapped arrays."""

MOST_PARTS = 400
"""How many files are open at a time, at most."""

SAMPLE = 1 << 14
"""How many windows of a chunk are looked at to choose the ranges."""

Tick = Callable[[int], None]

Show = Callable[[str, int, str], AbstractContextManager[Tick]]
"""Given what is being done, how much of it there is, and its unit: shows it, and is told how much more is done."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def count_on_disk(
    ids: Int[np.ndarray, "T"],
    order: int,
    vocabulary_size: int,
    eos_id: int,
    memory_gib: float,
    show: Show = track_count,
) -> NgramCounts:
    """Eqs. 12, 13. Count every n-gram of length 1 to ``order`` within about ``memory_gib`` of memory.

    The arrays of the answer are mapped from temporary files that vanish with them (``TMPDIR`` says where).

    Args:
        ids: the tokens, with ``eos_id`` after each line.
        order: the longest n-gram.
        vocabulary_size: V; every id is below it.
        eos_id: the word that ends a line.
        memory_gib: the memory to stay within, about.
        show: shows the progress of each stage; on standard error, after two seconds, unless given.
    """
    packing = Packing(order=order, vocabulary_size=vocabulary_size, eos_id=eos_id)
    together = max(1, min(LARGEST, int(memory_gib * 2**30 * SHARE / SORTED_BYTES / HELD)))
    with tempfile.TemporaryDirectory(prefix="tslm-count-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        parts = _distribute(folder, ids, packing, together, show)
        sizes = _write_levels(folder, parts, packing, together, show)
        levels = np.concatenate([[0, 1], 1 + np.cumsum([vocabulary_size + 1, *sizes])]).astype(np.int64)
        with show("linking n-grams to histories", int(levels[-1] - levels[2]), "n-grams") as tick:
            keys, first_children = _join_keys(folder, levels, vocabulary_size + 1, tick)
        with show("linking n-grams to suffixes", int(levels[-1] - levels[2]), "n-grams") as tick:
            suffixes = _find_suffixes(folder, levels, keys, first_children, vocabulary_size + 1, tick)
        counts = _join_counts(folder, levels, len(ids))
    trie = NgramTrie(
        vocabulary_size=vocabulary_size,
        levels=levels,
        keys=keys,
        suffixes=suffixes,
        first_children=first_children,
    )
    return NgramCounts(trie=trie, counts=counts)


def _distribute(
    folder: Path, ids: Int[np.ndarray, "T"], packing: Packing, together: int, show: Show
) -> list[Path]:
    """Write the windows to files, each of a range of first columns, and return the files in their order."""
    starts = range(0, len(ids), CHUNK)
    wanted = min(MOST_PARTS, -(-2 * len(ids) // together))
    splitters = _choose_splitters(ids, packing, starts, wanted)
    paths = [folder / f"windows-{number}" for number in range(len(splitters) + 1)]

    def pack(start: int) -> tuple[NDArray[np.int64], IntArray]:
        rows = packing.pack(ids, start, min(start + CHUNK, len(ids)))
        numbers = np.searchsorted(splitters, rows[:, 0], side="right").astype(np.uint16)
        # A stable sort of so short numbers is one by their digits, and much faster.
        return rows[np.argsort(numbers, kind="stable")], np.bincount(numbers, minlength=len(paths))

    with ExitStack() as stack, show("writing windows", len(ids), "tokens") as tick:
        files = [stack.enter_context(path.open("wb")) for path in paths]
        for start, (rows, sizes) in zip(starts, _map_in_order(pack, starts), strict=True):
            for file, own in zip(files, np.split(rows, np.cumsum(sizes)[:-1]), strict=True):
                own.tofile(file)
            tick(min(CHUNK, len(ids) - start))
    return paths


def _choose_splitters(
    ids: Int[np.ndarray, "T"], packing: Packing, starts: Sequence[int], parts: int
) -> IntArray:
    """Return first columns that part a sample of the windows into about equally many."""
    some = starts[:: max(1, len(starts) // 64)]
    sample = np.sort(
        np.concatenate(
            [packing.pack(ids, start, min(start + min(CHUNK, SAMPLE), len(ids)))[:, 0] for start in some]
        )
    )
    return np.unique(sample[np.arange(1, parts) * len(sample) // parts])


def _write_levels(folder: Path, parts: list[Path], packing: Packing, together: int, show: Show) -> list[int]:
    """Write word, count and number of children of every n-gram; return the size of each level from two on."""
    row_bytes = 8 * len(packing.widths)
    base, order = packing.vocabulary_size + 1, packing.order
    single, children = np.zeros(base, np.int64), np.zeros(base, np.int64)
    sizes = np.zeros(order + 1, np.int64)
    last = [0] * order

    def read(path: Path) -> tuple[IntArray, list[Level]]:
        rows, counts = _sort_file(path, packing, together)
        return rows[[0, -1]], list(read_levels(packing, rows, counts))

    filled = [path for path in parts if path.stat().st_size]
    total = sum(path.stat().st_size for path in filled) // row_bytes
    with ExitStack() as stack, show("counting n-grams", total, "windows") as tick:
        files = {
            (level, name): stack.enter_context((folder / f"{name}-{level}").open("w+b"))
            for level in range(2, order + 1)
            for name in ("words", "counts", "children")
        }
        for path, (ends, levels) in zip(filled, _map_in_order(read, filled), strict=True):
            shared = _shared(last, packing.unpack(ends[0]))
            for level in levels:
                # An n-gram with which the part before ended goes on; so may its last child.
                goes_on = level.length <= shared
                if level.length < shared:
                    level.children[0] -= 1
                if level.length == 1:
                    single[level.words] += level.counts
                    children[level.words] += level.children
                else:
                    _append(files[level.length, "words"], level.words[int(goes_on) :])
                    _append(files[level.length, "counts"], level.counts, add=goes_on)
                    _append(files[level.length, "children"], level.children, add=goes_on)
                sizes[level.length] += len(level.words) - int(goes_on)
            last = packing.unpack(ends[1])
            tick(path.stat().st_size // row_bytes)
            path.unlink()
    single.tofile(folder / "counts-1")
    children.tofile(folder / "children-1")
    return sizes[2:].tolist()


def _sort_file(path: Path, packing: Packing, together: int) -> tuple[IntArray, IntArray]:
    """Return the different windows of a file in ascending order, and how often each occurs.

    A file can be larger than it should be where very many windows begin with the same words.
    """
    found: list[tuple[IntArray, IntArray]] = []
    columns = len(packing.widths)
    with path.open("rb") as file:
        while len(rows := np.fromfile(file, np.int64, together * columns)):
            found.append(packing.sort(rows.reshape(-1, columns)))
    if len(found) == 1:
        return found[0]
    return packing.sort(*(np.concatenate(some) for some in zip(*found, strict=True)))


def _shared(left: list[int], right: list[int]) -> int:
    """Return with how many of the same words two windows begin."""
    for place, (one, other) in enumerate(zip(left, right, strict=True)):
        if one != other or not one:
            return place
    return len(left)


def _append(file: IO[bytes], values: NDArray[np.integer], *, add: bool = False) -> None:
    """Append numbers to a file; where ``add`` is set, the first of them is added to the last one there."""
    if add:
        file.seek(-values.itemsize, os.SEEK_END)
        values[0] += np.fromfile(file, values.dtype, 1)[0]
        file.seek(-values.itemsize, os.SEEK_END)
    values.tofile(file)


def _join_keys(folder: Path, levels: IntArray, base: int, tick: Tick) -> tuple[IntArray, IntArray]:
    """Put the keys of all levels in one file, and in another where the children of each history begin."""
    with (folder / "keys").open("wb") as keys, (folder / "first_children").open("wb") as first_children:
        np.arange(-1, base, dtype=np.int64).tofile(keys)
        np.array([1]).tofile(first_children)
        begin = int(levels[2])
        for level in range(2, len(levels) - 1):
            parent = int(levels[level - 1])
            with (folder / f"words-{level}").open("rb") as words:
                for children in _read_chunks(folder / f"children-{level - 1}"):
                    ends = np.cumsum(children)
                    (begin + ends - children).tofile(first_children)
                    numbers = np.repeat(np.arange(parent, parent + len(children)) * base, children)
                    numbers += np.fromfile(words, np.int32, len(numbers))
                    numbers.tofile(keys)
                    parent += len(children)
                    begin += len(numbers)
                    tick(len(numbers))
            for name in (f"words-{level}", f"children-{level - 1}"):
                (folder / name).unlink()
        levels[-1:].tofile(first_children)
    return _map(folder / "keys", np.int64), _map(folder / "first_children", np.int64)


def _join_counts(folder: Path, levels: IntArray, total: int) -> NDArray[np.integer]:
    """Put the counts of all levels in one file."""
    narrow = np.int32 if total < 2**31 else np.int64  # no n-gram occurs more often than there are tokens
    with (folder / "counts").open("wb") as file:
        np.array([total], narrow).tofile(file)
        for level in range(1, len(levels) - 1):
            for counts in _read_chunks(folder / f"counts-{level}"):
                counts.astype(narrow).tofile(file)
            (folder / f"counts-{level}").unlink()
    return _map(folder / "counts", narrow)


def _find_suffixes(
    folder: Path, levels: IntArray, keys: IntArray, first_children: IntArray, base: int, tick: Tick
) -> NDArray[np.integer]:
    """Write the suffix of each n-gram: the suffix of its history, extended by its word."""
    narrow = np.int32 if int(levels[-1]) < 2**31 else np.int64
    np.zeros(int(levels[2]), narrow).tofile(folder / "suffixes")
    for level in range(2, len(levels) - 1):
        # The suffixes of the level above are mapped anew, for reading, while this level's are appended.
        known = _map(folder / "suffixes", narrow)
        histories = slice(int(levels[level - 1]), int(levels[level]))
        children = slice(int(levels[level]), int(levels[level + 1]))
        cuts = list(pairwise(cut_histories(first_children, histories, children)))

        def link(
            cut: tuple[int, int], known: NDArray[Any] = known, shorter: slice = histories
        ) -> NDArray[Any]:
            return link_children(keys, first_children, known[slice(*cut)], cut[0], shorter, base).astype(
                narrow
            )

        with (folder / "suffixes").open("ab") as file:
            for found in _map_in_order(link, cuts):
                found.tofile(file)
                tick(len(found))
    return _map(folder / "suffixes", narrow)


def _map_in_order(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield the result for each item in turn; while one is used, all cores have the next. Sorting frees the GIL."""
    with ThreadPoolExecutor(CORES) as pool:
        ahead: deque[Future[Result]] = deque()
        for item in items:
            ahead.append(pool.submit(work, item))
            if len(ahead) > CORES:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _read_chunks(path: Path) -> Iterable[IntArray]:
    """Yield the numbers of a file, some at a time."""
    with path.open("rb") as file:
        while len(chunk := np.fromfile(file, np.int64, CHUNK)):
            yield chunk


def _map(path: Path, dtype: Any) -> NDArray[Any]:
    """Map a file; the numbers live on disk until they are read, and the file may be unlinked meanwhile."""
    return np.memmap(path, dtype, "r")
