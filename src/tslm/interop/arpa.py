r"""ARPA files, the common text format of back-off models.

Our begin marker is ``<s>`` there, and our ``<eos>`` is ``</s>``. Logarithms are to base ten, and -99 is that
of zero.
"""

from __future__ import annotations

import gzip
import io
import math
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tslm.cache import hash_file
from tslm.corpus.sources import CorpusConfig
from tslm.corpus.vocabulary import EOS, Vocabulary
from tslm.errors import CorpusError, RunError
from tslm.files import check_folder, whole
from tslm.interop.arpa_checks import Normalisation, measure_normalisation
from tslm.interop.arpa_reading import BEGIN, END, LINES_AT_ONCE, ZERO, Section, Tick, read_sections
from tslm.models.ngram.backoff import BackoffConfig, BackoffModel
from tslm.models.ngram.smoothing import BackoffTable
from tslm.models.ngram.trie import NgramTrie, build_trie, search_sorted
from tslm.runs.folder import locked_run, prepare_folder
from tslm.runs.recipe import Recipe
from tslm.runs.summary import SUMMARY, Source, summarise, write_summary
from tslm.training.position import STATE


def export_arpa(model: BackoffModel, path: Path, tick: Tick | None = None) -> None:
    """Write a back-off model as an ARPA file, compressed where the name ends with ``.gz``.

    Args:
        model: the model.
        path: the file, written whole or not at all.
        tick: told how many more n-grams are written.

    Raises:
        CorpusError: the vocabulary holds ``<s>`` or ``</s>`` as words of their own.
    """
    trie, table = model.table.trie, model.table
    for word in (BEGIN, END):
        if word in model.vocabulary.ids:
            raise CorpusError(
                f"the word {word!r} of the vocabulary is the line marker of ARPA files; rename it"
            )
    names = _name_words(model.vocabulary)
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
                ngrams = _spell(trie, names, some, level)
                values = log_probability[some].tolist()
                if level < trie.order:
                    columns = zip(values, ngrams, log_weight[some].tolist(), strict=True)
                    lines = [f"{value:.10g}\t{ngram}\t{weight:.10g}\n" for value, ngram, weight in columns]
                else:
                    columns = zip(values, ngrams, strict=True)
                    lines = [f"{value:.10g}\t{ngram}\n" for value, ngram in columns]
                file.write("".join(lines))
                if tick is not None:
                    tick(len(lines))
        file.write("\n\\end\\\n")


def import_arpa(path: Path, tick: Tick | None = None) -> BackoffModel:
    r"""Read an ARPA file, plain or gzipped, whoever wrote it.

    Columns may be parted by tabs or spaces, back-off weights may be missing (then they are 1), and so may the
    histories or suffixes of an n-gram, which are put in without changing any probability. ``<UNK>`` is read
    as ``<unk>``. Without ``</s>``, ``<eos>`` has probability zero.

    Args:
        path: the file.
        tick: told how many more bytes of the file are read.

    Raises:
        CorpusError: the file cannot be read, or is malformed; the message names the line.
    """
    sections, vocabulary = read_sections(path, tick)
    # Most files are closed. What is not is sorted and completed first, which also finds what stands there twice.
    numbered = _number(sections, len(vocabulary))
    numbered = numbered or _number(_close(sections, vocabulary, path), len(vocabulary))
    assert numbered is not None  # noqa: S101
    return BackoffModel(_build_table(*numbered), vocabulary)


def import_run(
    path: Path, folder: Path, tick: Tick | None = None, *, check: bool = False
) -> tuple[BackoffModel, Normalisation]:
    """Read an ARPA file into a new run folder, which ``tslm.load`` opens.

    Args:
        path: the file.
        folder: the run folder to write.
        tick: told how many more bytes of the file are read.
        check: sum the probabilities after every history, not only after a sample of them.

    Returns:
        The model, and whether its probabilities sum to one.

    Raises:
        CorpusError: the file is malformed, or its probabilities sum to what is no number.
        RunError: the folder holds a run already.
        TslmError: it is no folder.
    """
    # An import that was killed leaves no summary, and is simply done once more.
    if any((folder / name).exists() for name in (SUMMARY, STATE)):
        raise RunError(f"{folder} holds a run already; choose another folder with --out, or delete it")
    check_folder(folder)
    model = import_arpa(path, tick)
    normalisation = measure_normalisation(model, everywhere=check)
    if not normalisation.finite:
        raise CorpusError(f"{path} is no language model: {normalisation}; give a file with smaller back-offs")
    recipe = Recipe(
        corpus=CorpusConfig(name=path.name), kind=model.kind, model=BackoffConfig(order=model.order)
    )
    source = Source(name=path.name, fingerprint=hash_file(path), vocabulary=len(model.vocabulary))
    with locked_run(folder):
        prepare_folder(folder, recipe, model.vocabulary)
        model.save(folder)
        # There is no text that it could be measured on.
        write_summary(folder, summarise(recipe, model, source, {}))
    return model, normalisation


def _spell(trie: NgramTrie, names: list[str], nodes: slice, level: int) -> list[str]:
    """Return the words of n-grams in a row as text: that of their histories, which stand in a row too, and one word."""
    words = [names[word] for word in trie.words[nodes].tolist()]
    if level == 1:
        return words
    parents = trie.parents[nodes]
    first = int(parents[0])
    before = _spell(trie, names, slice(first, int(parents[-1]) + 1), level - 1)
    return [
        f"{before[parent]} {word}" for parent, word in zip((parents - first).tolist(), words, strict=True)
    ]


def _name_words(vocabulary: Vocabulary) -> list[str]:
    """Return the words of a vocabulary as they stand in an ARPA file, and the begin marker after them."""
    return [END if word == EOS else word for word in (*vocabulary.words, BEGIN)]


def _close(sections: list[Section], vocabulary: Vocabulary, path: Path) -> list[Section]:
    """Sort each order, and put in the histories and suffixes that are missing from the order below.

    Raises:
        CorpusError: an n-gram stands in the file twice.
    """
    closed: list[Section] = []
    longer = np.zeros((0, len(sections) + 1), np.int64)
    for section in reversed(sections):
        words = np.concatenate([section.words, longer[:, :-1], longer[:, 1:]])
        unknown = np.full(len(words) - len(section.words), np.nan)
        # The place in the file is the last key, so the n-gram of the file comes before what is put in.
        ranks = np.lexsort([np.arange(len(words)), *words.T[::-1]])
        sorted_words = words[ranks]
        new = np.ones(len(words), np.bool_)
        new[1:] = (sorted_words[1:] != sorted_words[:-1]).any(axis=1)
        twice = np.flatnonzero(~new & (ranks < len(section.words)))
        if len(twice):
            place = twice[0]
            first, again = section.lines[ranks[place - 1 : place + 1]].tolist()
            names = _name_words(vocabulary)
            ngram = " ".join(names[word] for word in sorted_words[place])
            raise CorpusError(
                f"{path}, line {again}: expected each {words.shape[1]}-gram once; "
                f"found '{ngram}', which stands in line {first} too"
            )
        ranks, longer = ranks[new], sorted_words[new]
        log_probability = np.concatenate([section.log_probability, unknown])[ranks]
        log_weight = np.concatenate([section.log_weight, np.zeros(len(unknown))])[ranks]
        lines = np.concatenate([section.lines, np.zeros(len(unknown), np.int64)])[ranks]
        closed.append(Section(longer, log_probability, log_weight, lines))
    return closed[::-1]


def _number(sections: list[Section], size: int) -> tuple[NgramTrie, list[Section]] | None:
    """Return the tree of all n-grams, and the sections in its order; None where one is missing or comes twice."""
    base = size + 1
    level_keys = [np.array([-1], np.int64), np.arange(base, dtype=np.int64)]
    offsets = [0, 1]
    ordered = sections[:1]
    for section in sections[1:]:
        offsets.append(offsets[-1] + len(level_keys[-1]))
        nodes = section.words[:, 0] + 1
        for level in range(2, section.words.shape[1]):
            keys = nodes * base + section.words[:, level - 1]
            places = search_sorted(level_keys[level], keys)
            if not np.array_equal(level_keys[level][np.minimum(places, len(level_keys[level]) - 1)], keys):
                return None
            nodes = places + offsets[level]
        keys = nodes * base + section.words[:, -1]
        if not (keys[1:] > keys[:-1]).all():
            ranks = np.argsort(keys)
            keys = keys[ranks]
            if (keys[1:] == keys[:-1]).any():
                return None
            section = Section(
                section.words[ranks],
                section.log_probability[ranks],
                section.log_weight[ranks],
                section.lines[ranks],
            )
        level_keys.append(keys)
        ordered.append(section)
    trie = build_trie(vocabulary_size=size, level_keys=level_keys)
    long = slice(int(trie.levels[2]), None)
    wanted = trie.suffixes[trie.parents[long]].astype(np.int64) * base + trie.words[long]
    return (trie, ordered) if np.array_equal(trie.keys[trie.suffixes[long]], wanted) else None


def _build_table(trie: NgramTrie, sections: list[Section]) -> BackoffTable:
    """Give the n-grams that were put in the probability they had by backing off."""
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


@contextmanager
def _write_text(path: Path, packed: bool) -> Generator[IO[str]]:
    """Open a file for writing text, through gzip where it shall be packed."""
    with ExitStack() as stack:
        file: Any = stack.enter_context(path.open("wb"))
        if packed:
            # No name and no time in the header: the same model gives the same bytes. The lowest level takes a third
            # of the usual one's time for a file a seventh larger.
            file = stack.enter_context(gzip.GzipFile("", "wb", 1, file, mtime=0))
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline="\n"))
