"""Counting n-grams of more text than fits in memory: the sorting is left to DuckDB, which spills to disk.

Every window of N words from each token on, padded behind the end of its line, is one row of whole numbers, each of
which packs several words. Sorted, the rows hold all orders at once: the n-grams of length k are the different first k
words, in the order of the tree. They are not grouped before: most windows are different, and equal ones stand side by
side once they are sorted.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tslm.errors import TslmError
from tslm.models.ngram.counting import NgramCounts, mark_lines
from tslm.models.ngram.trie import IntArray, NgramTrie, search_sorted
from tslm.progress import track_count
from tslm.shapes import Int

CHUNK = 1 << 19
"""How many windows or nodes are held at a time: few enough for their memory to be used again and again."""

CORES = os.cpu_count() or 1

ENGINE_SHARE = 0.4
"""The share of the memory that DuckDB may take for its buffers; the rest is for chunks and mapped arrays."""

POLL_SECONDS = 0.5
"""How often DuckDB is asked how far it has sorted."""

Tick = Callable[[int], None]

Show = Callable[[str, int, str], AbstractContextManager[Tick]]
"""Given what is being done, how much of it there is, and its unit: shows it, and is told how much more is done."""


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

    Raises:
        TslmError: DuckDB is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="tslm-count-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        rows = _sort_windows(folder, ids, order, vocabulary_size, eos_id, memory_gib, show)
        sizes = _write_levels(folder, rows, order, vocabulary_size)
        levels = np.concatenate([[0, 1], 1 + np.cumsum([vocabulary_size + 1, *sizes])]).astype(np.int64)
        keys = _join_keys(folder, levels, vocabulary_size)
        with show("linking n-grams to histories", int(levels[-2] - levels[1]), "n-grams") as tick:
            first_children = _find_children(folder, levels, keys, vocabulary_size, tick)
        with show("linking n-grams to suffixes", int(levels[-1] - levels[2]), "n-grams") as tick:
            suffixes = _find_suffixes(folder, levels, keys, vocabulary_size, tick)
        counts = _join_counts(folder, levels, len(ids))
    trie = NgramTrie(
        vocabulary_size=vocabulary_size,
        levels=levels,
        keys=keys,
        suffixes=suffixes,
        first_children=first_children,
    )
    return NgramCounts(trie=trie, counts=counts)


def _sort_windows(
    folder: Path,
    ids: Int[np.ndarray, "T"],
    order: int,
    vocabulary_size: int,
    eos_id: int,
    memory_gib: float,
    show: Show,
) -> Iterator[IntArray]:
    """Yield the windows in ascending order, one row of the array per place in the window, 0 behind the line."""
    try:
        import duckdb
    except ImportError as error:
        raise TslmError("counting on disk needs DuckDB: pip install 'tslm[spill]'") from error
    bits = (vocabulary_size + 1).bit_length()
    per_column = 63 // bits
    columns = [f"c{number}" for number in range(-(-order // per_column))]
    names = ", ".join(columns)
    connection = duckdb.connect(
        str(folder / "windows.duckdb"),
        config={
            "memory_limit": f"{int(memory_gib * ENGINE_SHARE * 1024)}MiB",
            "temp_directory": str(folder / "spilled"),
        },
    )
    try:
        connection.execute(f"CREATE TABLE windows ({', '.join(f'{name} BIGINT' for name in columns)})")
        total = 0
        with show("writing windows", len(ids), "tokens") as tick:
            for chunk, words in enumerate(_make_windows(ids, order, vocabulary_size, eos_id)):
                packed: dict[str, IntArray] = {}
                for number, name in enumerate(columns):
                    packed[name] = np.zeros(words.shape[1], np.int64)
                    for word in words[number * per_column : (number + 1) * per_column]:
                        packed[name] <<= bits
                        packed[name] |= word
                connection.register("packed", packed)
                connection.execute(f"INSERT INTO windows SELECT {names} FROM packed")  # noqa: S608
                connection.unregister("packed")
                total += words.shape[1]
                tick(min(CHUNK, len(ids) - chunk * CHUNK))
        with show("sorting windows", total, "windows") as tick, _followed(connection, total, tick):
            connection.execute(
                f"CREATE TABLE sorted AS SELECT {names} FROM windows ORDER BY {names}"  # noqa: S608
            )
        connection.execute("DROP TABLE windows")
        with show("counting n-grams", total, "windows") as tick:
            for start in range(0, total, CHUNK):
                got: dict[str, Any] = connection.execute(
                    f"SELECT {names} FROM sorted WHERE rowid >= ? AND rowid < ?",  # noqa: S608
                    [start, start + CHUNK],
                ).fetchnumpy()
                words = np.empty((order, len(got[columns[0]])), np.int64)
                for number, name in enumerate(columns):
                    places = range(number * per_column, min((number + 1) * per_column, order))
                    for place in places:
                        np.right_shift(got[name], bits * (places[-1] - place), out=words[place])
                        words[place] &= (1 << bits) - 1
                yield words
                tick(words.shape[1])
    finally:
        connection.close()
        (folder / "windows.duckdb").unlink(missing_ok=True)


@contextmanager
def _followed(connection: Any, total: int, tick: Tick) -> Generator[None, None, None]:
    """Tell how far the one long statement within the block has come: ``total`` at its end."""
    connection.execute("SET enable_progress_bar = true")
    connection.execute("SET enable_progress_bar_print = false")
    ended = threading.Event()
    done = 0

    def tell(share: float) -> None:
        nonlocal done
        now = max(done, int(total * share))
        tick(now - done)
        done = now

    def follow() -> None:
        while not ended.wait(POLL_SECONDS):
            tell(connection.query_progress() / 100)  # below zero where it is not known yet

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    tell(1.0)


def _make_windows(
    ids: Int[np.ndarray, "T"], order: int, vocabulary_size: int, eos_id: int
) -> Iterator[IntArray]:
    """Yield the windows from each token and each begin marker, as word + 1, 0 behind the end of the line.

    One row of the array per place in the window.
    """
    for start in range(0, len(ids), CHUNK):
        some = np.asarray(ids[start : start + CHUNK + order])
        inside = start > 0 and ids[start - 1] != eos_id  # the chunk begins within a line
        stream, _ = mark_lines(some, vocabulary_size, eos_id)
        here = some[:CHUNK]
        count = len(here) + 1 + int((here[:-1] == eos_id).sum())
        stream, count = stream[int(inside) :], count - int(inside)
        padded = np.concatenate([stream, np.full(order, -1, np.int32)]) + 1
        words = np.empty((order, count), np.int64)
        open_line = np.ones(count, np.bool_)
        for place in range(order):
            np.multiply(padded[place : place + count], open_line, out=words[place])
            open_line &= words[place] != eos_id + 1
        yield words


def _write_levels(folder: Path, windows: Iterator[IntArray], order: int, vocabulary_size: int) -> list[int]:
    """Write key and count of every n-gram, histories numbered within their level; return the size of each level."""
    files = {
        (level, name): (folder / f"{name}-{level}").open("wb")
        for level in range(2, order + 1)
        for name in ("keys", "counts")
    }
    base = vocabulary_size + 1
    single = np.zeros(base, np.int64)
    sizes = np.zeros(order + 1, np.int64)
    pending = np.zeros(order + 1, np.int64)  # the count of each level's last n-gram, which may go on
    previous = np.full(order, -1, np.int64)
    for words in windows:
        numbers = words[0] - 1
        single += np.bincount(numbers, minlength=base)
        changed = np.zeros(words.shape[1], np.bool_)
        _note_changes(changed, words[0], int(previous[0]))
        for level in range(2, order + 1):
            column = words[level - 1]
            _note_changes(changed, column, int(previous[level - 1]))
            present = column > 0
            begins = changed & present
            new = np.flatnonzero(begins)
            (numbers[new] * base + column[new] - 1).tofile(files[level, "keys"])
            numbers = np.cumsum(begins)
            numbers += sizes[level] - 1
            # How many windows stand before each new n-gram, and in all.
            before = np.concatenate([[0], np.cumsum(present)[np.append(new, len(column)) - 1]])
            if len(new) and new[0] == 0:
                before[1] = 0
            groups = np.diff(before)
            # Before the first new n-gram the last one of the chunk before goes on.
            groups[0] += pending[level]
            _append(files[level, "counts"], groups[:-1] if sizes[level] else groups[1:-1])
            pending[level] = groups[-1]
            sizes[level] += len(new)
        previous = words[:, -1].copy()
    for level in range(2, order + 1):
        _append(files[level, "counts"], pending[level : level + 1] if sizes[level] else pending[:0])
    for file in files.values():
        file.close()
    single.tofile(folder / "counts-1")
    return sizes[2:].tolist()


def _note_changes(changed: NDArray[np.bool_], column: IntArray, before: int) -> None:
    """Mark where a number differs from the one above it."""
    changed[1:] |= column[1:] != column[:-1]
    changed[0] |= column[0] != before


def _append(file: IO[bytes], values: IntArray) -> None:
    """Append numbers to a file."""
    values.tofile(file)


def _join_keys(folder: Path, levels: IntArray, vocabulary_size: int) -> IntArray:
    """Put the keys of all levels in one file, histories numbered over the whole tree."""
    base = vocabulary_size + 1
    with (folder / "keys").open("wb") as file:
        np.arange(-1, base, dtype=np.int64).tofile(file)
        for level in range(2, len(levels) - 1):
            for keys in _read_chunks(folder / f"keys-{level}"):
                (keys + int(levels[level - 1]) * base).tofile(file)
            (folder / f"keys-{level}").unlink()
    return _map(folder / "keys", np.int64)


def _join_counts(folder: Path, levels: IntArray, total: int) -> IntArray:
    """Put the counts of all levels in one file."""
    with (folder / "counts").open("wb") as file:
        np.array([total]).tofile(file)
        for level in range(1, len(levels) - 1):
            for counts in _read_chunks(folder / f"counts-{level}"):
                counts.tofile(file)
            (folder / f"counts-{level}").unlink()
    return _map(folder / "counts", np.int64)


def _find_children(
    folder: Path, levels: IntArray, keys: IntArray, vocabulary_size: int, tick: Tick
) -> IntArray:
    """Write where the children of each history begin: where its number times V + 1 falls among the keys."""
    base = vocabulary_size + 1
    with (folder / "children").open("wb") as file:
        np.array([1]).tofile(file)
        for level in range(1, len(levels) - 2):
            low, high = int(levels[level + 1]), int(levels[level + 2])
            for start in range(int(levels[level]), int(levels[level + 1]), CHUNK):
                stop = min(start + CHUNK, int(levels[level + 1]))
                (np.searchsorted(keys[low:high], np.arange(start, stop) * base) + low).tofile(file)
                tick(stop - start)
        levels[-1:].tofile(file)
    return _map(folder / "children", np.int64)


def _find_suffixes(
    folder: Path, levels: IntArray, keys: IntArray, vocabulary_size: int, tick: Tick
) -> NDArray[np.integer]:
    """Write the suffix of each n-gram: the suffix of its history, extended by its word."""
    base = vocabulary_size + 1
    narrow = np.int32 if int(levels[-1]) < 2**31 else np.int64
    np.zeros(int(levels[2]), narrow).tofile(folder / "suffixes")
    for level in range(2, len(levels) - 1):
        # The suffixes of the level above are mapped anew, for reading, while this level's are appended.
        known = _map(folder / "suffixes", narrow)
        shorter = keys[int(levels[level - 1]) : int(levels[level])]

        def link(start: int, stop: int, known: Any = known, shorter: IntArray = shorter) -> NDArray[Any]:
            parents, words = np.divmod(keys[start:stop], base)
            wanted = known[parents].astype(np.int64) * base + words
            return (search_sorted(shorter, wanted) + (len(known) - len(shorter))).astype(narrow)

        starts = range(int(levels[level]), int(levels[level + 1]), CHUNK)
        ranges = [(start, min(start + CHUNK, int(levels[level + 1]))) for start in starts]
        with (folder / "suffixes").open("ab") as file, ThreadPoolExecutor(CORES) as pool:
            # Sorting and searching leave Python alone, so each core has its chunk; no more chunks than cores are held.
            for first in range(0, len(ranges), CORES):
                for found in pool.map(link, *zip(*ranges[first : first + CORES], strict=True)):
                    found.tofile(file)
                    tick(len(found))
    return _map(folder / "suffixes", narrow)


def _read_chunks(path: Path) -> Iterator[IntArray]:
    """Yield the numbers of a file, some at a time."""
    with path.open("rb") as file:
        while len(chunk := np.fromfile(file, np.int64, CHUNK)):
            yield chunk


def _map(path: Path, dtype: Any) -> NDArray[Any]:
    """Map a file; the numbers live on disk until they are read, and the file may be unlinked meanwhile."""
    return np.memmap(path, dtype, "r")
