"""The lines of an ARPA file, read and checked; an error names the file and the line."""

from __future__ import annotations

import errno
import gzip
import io
import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from tslm.corpus.vocabulary import EOS, UNK, Vocabulary
from tslm.errors import CorpusError
from tslm.models.ngram.smoothing import FloatArray
from tslm.models.ngram.trie import IntArray

BEGIN, END = "<s>", "</s>"
ZERO = -99.0
"""What stands for the logarithm of zero."""

LINES_AT_ONCE = 20_000

LONGEST_LINE = 1 << 20
"""Bytes; a longer line is no n-gram, and need not end before the memory does."""

LARGEST_ORDER = 64

LARGEST_WEIGHT = 99.0
"""The largest logarithm of a back-off weight: as far above one as the logarithm that stands for zero is below."""

Tick = Callable[[int], None]


def read_sections(path: Path, tick: Tick | None = None) -> tuple[list[Section], Vocabulary]:
    """Read the n-grams of each order and the words of a file, plain or gzipped.

    Raises:
        CorpusError: the file cannot be read, or is malformed; the message names the line.
    """
    try:
        packed = _is_packed(path)
        with path.open("rb") as stored:
            file = io.BufferedReader(gzip.GzipFile(fileobj=stored)) if packed else stored  # pyright: ignore[reportArgumentType]
            lines = iter(partial(file.readline, LONGEST_LINE), b"")
            # Told as places in the stored file, since packed and plain lengths differ.
            return _parse(_Lines(path, lines, stored.tell, tick))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CorpusError(f"cannot read {path}: {reason}; give an ARPA file, plain or gzipped") from error


@dataclass(frozen=True)
class Section:
    """The n-grams of one order: words, ln p and ln(weight); NaN where the file does not have the n-gram."""

    words: IntArray
    log_probability: FloatArray
    log_weight: FloatArray
    lines: IntArray
    """The line of the file that each n-gram stands in; 0 where the file does not have it."""


class _Lines:
    """The lines of a file that are not empty, with their numbers for error messages."""

    def __init__(
        self, path: Path, lines: Iterator[bytes], place: Callable[[], int], tick: Tick | None
    ) -> None:
        self.path, self.lines, self.place, self.tick = path, lines, place, tick
        self.number = self.told = 0

    def next(self, expected: str) -> bytes:
        """Return the next line."""
        for line in self.lines:
            self.number += 1
            self.check(line)
            if line.strip():
                return line.strip()
        raise self.fail(self.number, b"the end of the file", expected)

    def rows(self, count: int, expected: str) -> tuple[IntArray, list[bytes]]:
        """Return the next ``count`` lines, and their numbers."""
        numbers: list[IntArray] = []
        rows: list[bytes] = []
        while len(rows) < count:
            read = list(islice(self.lines, count - len(rows)))
            if not read:
                raise self.fail(self.number, b"the end of the file", expected)
            if len(longest := max(read, key=len)) == LONGEST_LINE:
                self.check(longest)
            if self.tick is not None:
                here = self.place()
                self.tick(here - self.told)
                self.told = here
            places = np.arange(self.number + 1, self.number + len(read) + 1)
            self.number += len(read)
            if any(map(bytes.isspace, read)):
                places = places[[not line.isspace() for line in read]]
                read = [line for line in read if not line.isspace()]
            numbers.append(places)
            rows += read
        return np.concatenate(numbers), rows

    def check(self, line: bytes) -> None:
        """Raise for a line that is cut off because it is too long."""
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise self.fail(self.number, line, f"lines of less than {LONGEST_LINE:,} bytes")

    def fail(self, number: int, given: bytes, expected: str) -> CorpusError:
        """Return the error for a line."""
        shown = given.decode("utf-8", "replace")[:60]
        return CorpusError(f"{self.path}, line {number}: expected {expected}; found '{shown}'")


def _parse(lines: _Lines) -> tuple[list[Section], Vocabulary]:
    """Read the sections of a file."""
    while (line := lines.next("\\data\\, with which an ARPA file begins")) != b"\\data\\":
        pass
    sizes: list[int] = []
    while (line := lines.next("'\\1-grams:'")).startswith(b"ngram "):
        order, _, size = line[len(b"ngram ") :].partition(b"=")
        if not size.strip().isdigit() or order.strip() != str(len(sizes) + 1).encode():
            raise lines.fail(lines.number, line, f"'ngram {len(sizes) + 1}=' and a number")
        if len(size.strip()) > 15:
            raise lines.fail(lines.number, line, "a number of n-grams of 15 digits or less")
        if len(sizes) == LARGEST_ORDER:
            raise lines.fail(lines.number, line, f"n-grams of order {LARGEST_ORDER} or less")
        sizes.append(int(size))
    if not sizes:
        raise lines.fail(lines.number, line, "'ngram 1=' and a number")
    ids: dict[bytes, int] = {}
    words: dict[str, None] = {}  # a set that keeps its order
    sections: list[Section] = []
    for order, size in enumerate(sizes, start=1):
        if line != f"\\{order}-grams:".encode():
            before = f" after {sizes[order - 2]} {order - 1}-grams" if order > 1 else ""
            raise lines.fail(lines.number, line, f"'\\{order}-grams:'{before}")
        blocks = [np.zeros((0, order + 2))]
        places = [np.zeros(0, np.int64)]
        for start in range(0, size, LINES_AT_ONCE):
            numbers, rows = lines.rows(min(LINES_AT_ONCE, size - start), f"{size} {order}-grams")
            if order == 1:
                _name_words(lines, numbers, rows, ids, words)
            places.append(numbers)
            blocks.append(_parse_rows(lines, numbers, rows, ids, order))
        if order == 1 and EOS not in words:
            words[EOS] = None
        sections.append(_make_section(np.concatenate(blocks), np.concatenate(places), len(words)))
        line = lines.next("\\end\\")
    if line != b"\\end\\":
        raise lines.fail(lines.number, line, f"'\\end\\' after {sizes[-1]} {len(sizes)}-grams")
    return sections, Vocabulary(tuple(words))


def _name_words(
    lines: _Lines, numbers: IntArray, rows: list[bytes], ids: dict[bytes, int], words: dict[str, None]
) -> None:
    """Number the words of 1-grams; the begin marker is -1 for now."""
    for number, row in zip(numbers.tolist(), map(bytes.split, rows), strict=True):
        if len(row) not in (2, 3) or row[1] in ids:
            raise lines.fail(number, b" ".join(row), "a logarithm, a word not yet named, perhaps a back-off")
        try:
            word = row[1].decode("utf-8")
        except UnicodeDecodeError:
            wanted = "UTF-8 (for example: iconv -f latin1 -t utf-8)"
            raise lines.fail(number, b" ".join(row), wanted) from None
        if word.split() != [word]:
            raise lines.fail(number, b" ".join(row), f"a word without white space, which {word!r} has")
        ids[row[1]] = -1 if word == BEGIN else len(words)
        if word == BEGIN:
            continue
        name = {END: EOS, "<UNK>": UNK}.get(word, word)
        if name in words:
            wanted = f"a word not yet named: {END} and {EOS} are one word, and so are <UNK> and {UNK}"
            raise lines.fail(number, b" ".join(row), wanted)
        words[name] = None


def _parse_rows(
    lines: _Lines, numbers: IntArray, rows: list[bytes], ids: dict[bytes, int], order: int
) -> FloatArray:
    """Turn lines into numbers: logarithm, words, back-off."""

    def parse(row: list[bytes]) -> list[float]:
        """Turn one line into numbers, or say what is wrong."""
        if len(row) not in (order + 1, order + 2):
            raise ValueError(f"a logarithm, {order} words and perhaps a back-off")
        if unknown := [word for word in row[1 : order + 1] if word not in ids]:
            raise ValueError(f"words of the 1-grams, which {unknown[0].decode('utf-8', 'replace')!r} is not")
        try:
            value, weight = float(row[0]), float(row[order + 1]) if len(row) == order + 2 else 0.0
        except ValueError:
            raise ValueError("a number before the words, and perhaps one after them") from None
        if not value <= 0 or not weight <= LARGEST_WEIGHT:
            raise ValueError(f"a logarithm of zero or less and a back-off of {LARGEST_WEIGHT:g} or less")
        return [value, *(float(ids[word]) for word in row[1 : order + 1]), weight]

    # All lines at once is many times as fast; what does not fit goes line by line, which also finds the error.
    with suppress(ValueError, KeyError):
        numbers_QF = _parse_columns(b"".join(rows), len(rows), ids, order)
        if (numbers_QF[:, 0] <= 0).all() and (numbers_QF[:, -1] <= LARGEST_WEIGHT).all():
            return numbers_QF
    parsed: list[list[float]] = []
    for number, row in zip(numbers.tolist(), map(bytes.split, rows), strict=True):
        try:
            parsed.append(parse(row))
        except ValueError as error:
            raise lines.fail(number, b" ".join(row), str(error)) from None
    return np.array(parsed)


def _parse_columns(text: bytes, count: int, ids: dict[bytes, int], order: int) -> FloatArray:
    """Turn ``count`` lines of equally many fields into numbers.

    Raises:
        ValueError: the lines do not all have that many fields, parted by one tab or space, or a number is none.
        KeyError: a word is not among the 1-grams.
    """
    letters = np.frombuffer(text, np.uint8)
    gaps = np.flatnonzero(letters <= ord(" "))
    width = len(gaps) // max(count, 1)
    if width not in (order + 1, order + 2) or len(gaps) != count * width:
        raise ValueError("lines of different length")
    signs_QF = letters[gaps].reshape(count, width)
    inner = (signs_QF[:, :-1] == ord(" ")) | (signs_QF[:, :-1] == ord("\t"))
    if not (inner.all() and (signs_QF[:, -1] == ord("\n")).all() and (np.diff(gaps, prepend=-1) > 1).all()):
        raise ValueError("white space of another kind")
    fields = text.split()
    columns = np.zeros((order + 2, count))
    for place in range(width):
        read = ids.__getitem__ if 0 < place <= order else float
        columns[place] = np.fromiter(map(read, fields[place::width]), np.float64, count)
    return columns.T


def _make_section(numbers_QF: FloatArray, places: IntArray, size: int) -> Section:
    """Put the begin marker in its place, and turn base ten into natural logarithms."""
    words = numbers_QF[:, 1:-1].astype(np.int64)
    words[words < 0] = size
    columns = (numbers_QF[:, 0], numbers_QF[:, -1])
    log_probability, log_weight = (np.where(c <= ZERO, -np.inf, c * math.log(10)) for c in columns)
    return Section(words, log_probability, log_weight, places)


def _is_packed(path: Path) -> bool:
    """Return whether a file is gzipped, whatever its name."""
    if not path.is_file() and path.exists():
        raise OSError(errno.EINVAL, "not a regular file")
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"
