"""What the workers do with lines of text: count their words, and cut them into windows of ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.rule import TextRule
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError
from tslm.models.ngram.counting import mark_lines

PAD = -1
"""Stands before the begin marker in windows that are longer than the line so far."""

Batches = Iterator[Any]
"""Arrow's record batches."""

ArrowFunction = Callable[[Batches], Batches]


def word_counter(rule: TextRule) -> ArrowFunction:
    """Return the function that counts the words of lines, ``<eos>`` behind each, batch by batch."""

    def count(batches: Batches) -> Batches:
        arrow = import_module("pyarrow")
        for batch in batches:
            counts = Counter(rule.split_lines(join_lines(batch)))
            yield arrow.RecordBatch.from_pydict({"word": list(counts), "times": list(counts.values())})

    return count


def window_cutter(rule: TextRule, shared: Any, order: int) -> ArrowFunction:
    """Return the function that yields the window of ``order`` words that ends at each token; c1 is the last word.

    Args:
        rule: the text rule.
        shared: Spark's broadcast variable of the vocabulary.
        order: the length of the windows.
    """

    def cut(batches: Batches) -> Batches:
        arrow = import_module("pyarrow")
        vocabulary: Vocabulary = shared.value
        for batch in batches:
            ids = vocabulary.encode(rule.split_lines(join_lines(batch)))
            words_QN, times = cut_windows(ids, order, len(vocabulary), vocabulary.eos_id)
            columns = {f"c{place}": column for place, column in enumerate(words_QN.T, 1)}
            yield arrow.RecordBatch.from_pydict(
                {
                    **{name: arrow.array(column) for name, column in columns.items()},
                    "times": arrow.array(times),
                }
            )

    return cut


def cut_windows(
    ids: NDArray[np.int32], order: int, begin_id: int, eos_id: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the window that ends at each token, its last word first, and how often each comes.

    Windows that reach over the begin of the line (``PAD`` stands there) are few and come often: those come once, with
    their number.
    """
    stream, places = mark_lines(ids, begin_id, eos_id)
    ends = np.flatnonzero(places >= 1)
    words_QN = np.empty((len(ends), order), np.int32)
    for back in range(order):
        words_QN[:, back] = np.where(places[ends] >= back, stream[ends - back], PAD)
    reach = places[ends] < order - 1
    short_QN, numbers = np.unique(words_QN[reach], axis=0, return_counts=True)
    inside_QN = words_QN[~reach]
    return (
        np.concatenate([inside_QN, short_QN]),
        np.concatenate([np.ones(len(inside_QN), np.int64), numbers.astype(np.int64)]),
    )


def join_lines(batch: Any) -> str:
    """Return the lines of a batch as one text; each ends in a newline."""
    try:
        lines: list[str] = batch.column(0).to_pylist()
    except UnicodeDecodeError as error:
        raise CorpusError(
            "the text is not valid UTF-8; save it as UTF-8 (for example: iconv -f latin1 -t utf-8)"
        ) from error
    text = "\n".join(line.removeprefix("\ufeff") for line in lines) + "\n"
    if "\0" in text:
        raise CorpusError("the text has a NUL byte; give plain text saved as UTF-8")
    return text
