r"""ARPA files, the common text format of back-off models.

Our begin marker is ``<s>`` there, and our ``<eos>`` is ``</s>``. Logarithms are to base ten, and -99 is that
of zero.
"""

from __future__ import annotations

import gzip
import io
import math
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.sources import CorpusConfig
from tslm.corpus.vocabulary import EOS, UNK, Vocabulary
from tslm.errors import CorpusError, RunError
from tslm.files import whole
from tslm.models.backoff import BackoffConfig, BackoffModel
from tslm.models.smoothing import BackoffTable, FloatArray
from tslm.models.trie import IntArray, build_trie, search_sorted
from tslm.training.folder import RECIPE, VOCABULARY
from tslm.training.recipe import Recipe, write_recipe

BEGIN, END = "<s>", "</s>"
ZERO = -99.0
"""What stands for the logarithm of zero."""

LINES_AT_ONCE = 100_000

Tick = Callable[[int], None]


def export_arpa(model: BackoffModel, path: Path, tick: Tick | None = None) -> None:
    """Write a back-off model as an ARPA file, compressed where the name ends with ``.gz``.

    Args:
        model: the model.
        path: the file, written whole or not at all.
        tick: told how many more bytes of text are written.

    Raises:
        CorpusError: the vocabulary holds ``<s>`` or ``</s>`` as words of their own.
    """
    trie, table = model.table.trie, model.table
    for word in (BEGIN, END):
        if word in model.vocabulary.ids:
            raise CorpusError(
                f"the word {word!r} of the vocabulary is the line marker of ARPA files; rename it"
            )
    names = np.array(
        [END if word == EOS else word for word in (*model.vocabulary.words, BEGIN)], dtype=object
    )
    with np.errstate(divide="ignore"):
        log_probability = np.maximum(table.log_probability / math.log(10), ZERO)
        log_weight = np.maximum(table.log_weight / math.log(10), ZERO)
    with whole(path) as temporary, _write_text(temporary, packed=path.suffix == ".gz") as file:
        file.write("\\data\\\n")
        for level in range(1, trie.order + 1):
            file.write(f"ngram {level}={trie.levels[level + 1] - trie.levels[level]}\n")
        for level in range(1, trie.order + 1):
            file.write(f"\n\\{level}-grams:\n")
            nodes = trie.nodes(level)
            for start in range(nodes.start, nodes.stop, LINES_AT_ONCE):
                some = slice(start, min(start + LINES_AT_ONCE, nodes.stop))
                words = names[trie.spell(np.arange(some.start, some.stop), level)].tolist()
                values = log_probability[some].tolist()
                if level < trie.order:
                    weights = log_weight[some].tolist()
                    lines = [
                        f"{value:.10g}\t{' '.join(ngram)}\t{weight:.10g}\n"
                        for value, ngram, weight in zip(values, words, weights, strict=True)
                    ]
                else:
                    lines = [
                        f"{value:.10g}\t{' '.join(ngram)}\n"
                        for value, ngram in zip(values, words, strict=True)
                    ]
                text = "".join(lines)
                file.write(text)
                if tick is not None:
                    tick(len(text))
        file.write("\n\\end\\\n")


def import_arpa(path: Path, tick: Tick | None = None) -> BackoffModel:
    r"""Read an ARPA file, plain or gzipped, whoever wrote it.

    Columns may be parted by tabs or spaces, back-off weights may be missing (then they are 1), and so may the
    histories or suffixes of an n-gram, which are put in without changing any probability. ``<UNK>`` is read
    as ``<unk>``. Without ``</s>``, ``<eos>`` has probability zero.

    Args:
        path: the file.
        tick: told how many more bytes of text are read.

    Raises:
        CorpusError: the file cannot be read, or is malformed; the message names the line.
    """
    try:
        with gzip.open(path) if _is_packed(path) else path.open("rb") as file:
            sections, vocabulary = _parse(_Lines(path, iter(file), tick))
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CorpusError(f"cannot read {path}: {reason}; give an ARPA file, plain or gzipped") from error
    return BackoffModel(_build_table(_close(sections), len(vocabulary)), vocabulary)


def import_run(path: Path, folder: Path, tick: Tick | None = None) -> BackoffModel:
    """Read an ARPA file into a new run folder, which ``tslm.load`` opens.

    Raises:
        CorpusError: the file is malformed.
        RunError: the folder holds a run already.
    """
    if (folder / RECIPE).exists():
        raise RunError(f"{folder} holds a run already; choose another folder with --out, or delete it")
    model = import_arpa(path, tick)
    model.save(folder)
    model.vocabulary.save(folder / VOCABULARY)
    recipe = Recipe(
        corpus=CorpusConfig(name=path.name), kind=model.kind, model=BackoffConfig(order=model.order)
    )
    write_recipe(folder / RECIPE, recipe)
    return model


@dataclass(frozen=True)
class _Section:
    """The n-grams of one order: words, ln p and ln(weight); NaN where the file does not have the n-gram."""

    words: IntArray
    log_probability: FloatArray
    log_weight: FloatArray


class _Lines:
    """The lines of a file that are not empty, with their numbers for error messages."""

    def __init__(self, path: Path, lines: Iterator[bytes], tick: Tick | None) -> None:
        self.path, self.lines, self.tick, self.number = path, lines, tick, 0

    def next(self, expected: str) -> bytes:
        """Return the next line."""
        for line in self.lines:
            self.number += 1
            if line.strip():
                return line.strip()
        raise self.fail(self.number, b"the end of the file", expected)

    def rows(self, count: int, expected: str) -> tuple[list[int], list[list[bytes]]]:
        """Return the fields of the next ``count`` lines, and the numbers of these lines."""
        numbers: list[int] = []
        rows: list[list[bytes]] = []
        while len(rows) < count:
            read = list(islice(self.lines, count - len(rows)))
            if not read:
                raise self.fail(self.number, b"the end of the file", expected)
            if self.tick is not None:
                self.tick(sum(map(len, read)))
            taken = [line.split() for line in read]
            numbers += [number for number, row in enumerate(taken, start=self.number + 1) if row]
            rows += [row for row in taken if row]
            self.number += len(taken)
        return numbers, rows

    def fail(self, number: int, given: bytes, expected: str) -> CorpusError:
        """Return the error for a line."""
        shown = given.decode("utf-8", "replace")[:60]
        return CorpusError(f"{self.path}, line {number}: expected {expected}; found '{shown}'")


def _parse(lines: _Lines) -> tuple[list[_Section], Vocabulary]:
    """Read the sections of a file."""
    while (line := lines.next("\\data\\, with which an ARPA file begins")) != b"\\data\\":
        pass
    sizes: list[int] = []
    while (line := lines.next("'\\1-grams:'")).startswith(b"ngram "):
        order, _, size = line[len(b"ngram ") :].partition(b"=")
        if not size.strip().isdigit() or order.strip() != str(len(sizes) + 1).encode():
            raise lines.fail(lines.number, line, f"'ngram {len(sizes) + 1}=' and a number")
        sizes.append(int(size))
    if not sizes:
        raise lines.fail(lines.number, line, "'ngram 1=' and a number")
    ids: dict[bytes, int] = {}
    words: list[str] = []
    sections: list[_Section] = []
    for order, size in enumerate(sizes, start=1):
        if line != f"\\{order}-grams:".encode():
            before = f" after {sizes[order - 2]} {order - 1}-grams" if order > 1 else ""
            raise lines.fail(lines.number, line, f"'\\{order}-grams:'{before}")
        blocks = [np.zeros((0, order + 2))]
        for start in range(0, size, LINES_AT_ONCE):
            numbers, rows = lines.rows(min(LINES_AT_ONCE, size - start), f"{size} {order}-grams")
            if order == 1:
                _name_words(lines, numbers, rows, ids, words)
            blocks.append(_parse_rows(lines, numbers, rows, ids, order))
        if order == 1 and EOS not in words:
            words.append(EOS)
        sections.append(_make_section(np.concatenate(blocks), len(words)))
        line = lines.next("\\end\\")
    if line != b"\\end\\":
        raise lines.fail(lines.number, line, f"'\\end\\' after {sizes[-1]} {len(sizes)}-grams")
    return sections, Vocabulary(tuple(words))


def _name_words(
    lines: _Lines, numbers: list[int], rows: list[list[bytes]], ids: dict[bytes, int], words: list[str]
) -> None:
    """Number the words of 1-grams; the begin marker is -1 for now."""
    for number, row in zip(numbers, rows, strict=True):
        if len(row) not in (2, 3) or row[1] in ids:
            raise lines.fail(number, b" ".join(row), "a logarithm, a word not yet named, perhaps a back-off")
        word = row[1].decode("utf-8", "replace")
        ids[row[1]] = -1 if word == BEGIN else len(words)
        if word != BEGIN:
            words.append({END: EOS, "<UNK>": UNK}.get(word, word))


def _parse_rows(
    lines: _Lines, numbers: list[int], rows: list[list[bytes]], ids: dict[bytes, int], order: int
) -> FloatArray:
    """Turn the fields of lines into numbers: logarithm, words, back-off."""

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
        if not value <= 0 or not weight < math.inf:
            raise ValueError("a logarithm of zero or less and a finite back-off")
        return [value, *(float(ids[word]) for word in row[1 : order + 1]), weight]

    # Column by column is five times as fast; what does not fit goes line by line, which also finds the error.
    if len({len(row) for row in rows}) == 1 and len(rows[0]) in (order + 1, order + 2):
        columns = list(zip(*rows, strict=True))
        with suppress(ValueError, KeyError):
            numbers_QF = np.zeros((len(rows), order + 2))
            numbers_QF[:, 0] = np.array(columns[0]).astype(np.float64)
            for place in range(1, order + 1):
                numbers_QF[:, place] = [ids[word] for word in columns[place]]
            if len(columns) == order + 2:
                numbers_QF[:, order + 1] = np.array(columns[order + 1]).astype(np.float64)
            if (numbers_QF[:, 0] <= 0).all() and (numbers_QF[:, order + 1] < math.inf).all():
                return numbers_QF
    parsed: list[list[float]] = []
    for number, row in zip(numbers, rows, strict=True):
        try:
            parsed.append(parse(row))
        except ValueError as error:
            raise lines.fail(number, b" ".join(row), str(error)) from None
    return np.array(parsed)


def _make_section(numbers_QF: FloatArray, size: int) -> _Section:
    """Put the begin marker in its place, and turn base ten into natural logarithms."""
    words = numbers_QF[:, 1:-1].astype(np.int64)
    words[words < 0] = size
    columns = (numbers_QF[:, 0], numbers_QF[:, -1])
    log_probability, log_weight = (np.where(c <= ZERO, -np.inf, c * math.log(10)) for c in columns)
    return _Section(words, log_probability, log_weight)


def _close(sections: list[_Section]) -> list[_Section]:
    """Sort each order, and put in the histories and suffixes that are missing from the order below."""
    closed: list[_Section] = []
    longer = np.zeros((0, len(sections) + 1), np.int64)
    for section in reversed(sections):
        words = np.concatenate([section.words, longer[:, :-1], longer[:, 1:]])
        unknown = np.full(len(words) - len(section.words), np.nan)
        # The place in the file is the last key, so the n-gram of the file comes before what is put in.
        ranks = np.lexsort([np.arange(len(words)), *words.T[::-1]])
        sorted_words = words[ranks]
        new = np.ones(len(words), np.bool_)
        new[1:] = (sorted_words[1:] != sorted_words[:-1]).any(axis=1)
        twice = ~new & (ranks < len(section.words))
        if twice.any():
            raise CorpusError(
                f"the ARPA file holds an n-gram of order {words.shape[1]} twice (word numbers "
                f"{sorted_words[twice][0].tolist()}); every n-gram may stand there once"
            )
        ranks, longer = ranks[new], sorted_words[new]
        log_probability = np.concatenate([section.log_probability, unknown])[ranks]
        log_weight = np.concatenate([section.log_weight, np.zeros(len(unknown))])[ranks]
        closed.append(_Section(longer, log_probability, log_weight))
    return closed[::-1]


def _build_table(sections: list[_Section], size: int) -> BackoffTable:
    """Number the n-grams and give those that were put in the probability they had by backing off."""
    base = size + 1
    level_keys = [np.array([-1], np.int64), np.arange(base, dtype=np.int64)]
    offsets = [0, 1]
    for section in sections[1:]:
        offsets.append(offsets[-1] + len(level_keys[-1]))
        nodes = section.words[:, 0] + 1
        for level in range(2, section.words.shape[1]):
            keys = nodes * base + section.words[:, level - 1]
            nodes = search_sorted(level_keys[level], keys) + offsets[level]
        level_keys.append(nodes * base + section.words[:, -1])
    trie = build_trie(vocabulary_size=size, level_keys=level_keys)
    log_probability = np.full(trie.node_count, -np.inf)
    log_weight = np.zeros(trie.context_count)
    for level, section in enumerate(sections, start=1):
        nodes: slice | NDArray[np.int64] = trie.nodes(level)
        if level == 1:
            # A file may lack words; those keep probability zero.
            nodes = section.words[:, 0] + 1
            log_probability[nodes] = np.nan_to_num(section.log_probability, nan=-np.inf, neginf=-np.inf)
            log_probability[trie.begin] = -np.inf
        else:
            backed_off = log_weight[trie.parents[nodes]] + log_probability[trie.suffixes[nodes]]
            given = section.log_probability
            log_probability[nodes] = np.where(np.isnan(given), backed_off, given)
        if level < trie.order:
            log_weight[nodes] = section.log_weight
    return BackoffTable(trie=trie, log_probability=log_probability, log_weight=log_weight)


def _is_packed(path: Path) -> bool:
    """Return whether a file is gzipped, whatever its name."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


@contextmanager
def _write_text(path: Path, packed: bool) -> Generator[IO[str]]:
    """Open a file for writing text, through gzip where it shall be packed."""
    with ExitStack() as stack:
        file: Any = stack.enter_context(path.open("wb"))
        if packed:
            # No name and no time in the header: the same model gives the same bytes.
            file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline="\n"))
