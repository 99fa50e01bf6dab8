"""A model from sorted shards: probabilities that a cluster has written, as one file of mapped arrays.

The shards of order k hold the k-grams (columns w1 … wk) sorted by their words, the first word first, each with its
probability and the back-off weight of its history. That is the order of the tree, so its arrays are written from
beginning to end, and memory holds a batch of n-grams at a time. The file has the sorted keys too, which other files
leave out: it is larger, but opening it takes no memory for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.rule import RULE_FILE, TextRule, load_rule
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RunError, TslmError
from tslm.files import read_regular
from tslm.models.arrays import create_arrays
from tslm.models.ngram.trie import IntArray, search_sorted

DESCRIPTION = "counts.json"
VOCABULARY = "vocabulary.txt"

FORMAT = 1
"""The number of the layout of a folder of shards."""

BATCH = 1 << 20
"""How many n-grams are held at a time."""

LARGEST_DESCRIPTION = 1 << 20

Tick = Callable[[int], None]


def shard_folder(folder: Path, level: int) -> Path:
    """Return the folder of the shards of one order."""
    return folder / f"order-{level}"


@dataclass(frozen=True)
class Shards:
    """A folder of shards that is complete."""

    folder: Path
    description: Mapping[str, Any]
    vocabulary: Vocabulary
    rule: TextRule
    files: tuple[tuple[Any, ...], ...]
    """For each order its Parquet files, opened, in their order."""

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self.files)

    @property
    def sizes(self) -> list[int]:
        """How many n-grams each order has."""
        return [sum(file.metadata.num_rows for file in files) for files in self.files]

    def read(self, level: int) -> Iterator[tuple[IntArray, NDArray[np.float64], NDArray[np.float64]]]:
        """Yield words, probabilities and weights of histories of one order, batch by batch."""
        for file in self.files[level - 1]:
            for batch in file.iter_batches(batch_size=BATCH):
                names = [f"w{place}" for place in range(1, level + 1)]
                words = np.stack([batch[name].to_numpy() for name in names], axis=1).astype(np.int64)
                yield words, batch["probability"].to_numpy(), batch["weight"].to_numpy()


def open_shards(folder: Path) -> Shards:
    """Open a folder that ``tslm count`` wrote.

    Raises:
        TslmError: pyarrow is not installed.
        RunError: the folder is missing, unfinished or damaged.
    """
    try:
        parquet = import_module("pyarrow.parquet")
        arrow = import_module("pyarrow")
    except ImportError as error:
        raise TslmError("reading shards needs pyarrow: pip install 'tslm[spark]'") from error
    try:
        description = json.loads(read_regular(folder / DESCRIPTION, LARGEST_DESCRIPTION))
        if description["format"] != FORMAT:
            raise ValueError(f"its format is {description['format']}, not {FORMAT}")
        files = tuple(
            tuple(parquet.ParquetFile(path) for path in sorted(shard_folder(folder, level).glob("*.parquet")))
            for level in range(1, int(description["order"]) + 1)
        )
    except FileNotFoundError as error:
        raise RunError(
            f"{folder} is no finished folder of counts: {error.filename} is missing; make one with: tslm count"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, arrow.ArrowException) as error:
        raise RunError(f"{folder} is damaged ({error}); make it anew with: tslm count") from error
    vocabulary, rule = Vocabulary.load(folder / VOCABULARY), load_rule(folder / RULE_FILE)
    shards = Shards(folder, description, vocabulary, rule, files)
    if not all(files) or shards.sizes[0] != len(vocabulary) + 1:
        raise RunError(f"{folder} is damaged: shards are missing; make it anew with: tslm count")
    return shards


def assemble_model(shards: Shards, path: Path, tick: Tick | None = None) -> None:
    """Write the model of shards as a file of mapped arrays.

    Args:
        shards: the shards.
        path: the file to write.
        tick: told how many more n-grams are written.

    Raises:
        RunError: the shards are not sorted, or the history or suffix of an n-gram is missing.
    """
    base = len(shards.vocabulary) + 1
    levels = np.concatenate([[0, 1], 1 + np.cumsum(shards.sizes)]).astype(np.int64)
    nodes, contexts = int(levels[-1]), int(levels[-2])
    narrow = np.dtype(np.int32 if nodes < 2**31 else np.int64)
    arrays = create_arrays(
        path,
        {
            "levels": (np.dtype(np.int64), len(levels)),
            "keys": (np.dtype(np.int64), nodes),
            "suffixes": (narrow, nodes),
            "first_children": (np.dtype(np.int64), contexts + 1),
            "log_probability": (np.dtype(np.float64), nodes),
            "log_weight": (np.dtype(np.float64), contexts),
        },
    )
    keys, suffixes, log_probability = arrays["keys"], arrays["suffixes"], arrays["log_probability"]
    arrays["levels"][:] = levels
    keys[0], suffixes[0], log_probability[0] = -1, 0, -np.inf
    # A history after which nothing is known leaves everything to its suffix: the logarithm of one, which is zero.
    for level in range(1, shards.order + 1):
        place = int(levels[level])
        last = -1
        for words_QK, probability, weight in shards.read(level):
            own = slice(place, place + len(words_QK))
            first, parents = _number_histories(words_QK, keys, levels, base)
            keys[own] = found = parents * base + words_QK[:, -1]
            if not (found[0] > last and (found[1:] > found[:-1]).all()):
                raise RunError(f"{shards.folder} is damaged: its {level}-grams are not in order")
            last = int(found[-1])
            with np.errstate(divide="ignore"):
                log_probability[own] = np.log(probability)
                arrays["log_weight"][parents[first]] = np.log(weight[first])
            if level > 1:
                wanted = suffixes[parents].astype(np.int64) * base + words_QK[:, -1]
                suffixes[own] = _find(keys, levels, level - 1, wanted, shards.folder)
            else:
                suffixes[own] = 0
            place = own.stop
            if tick is not None:
                tick(len(words_QK))
    _write_children(arrays["first_children"], keys, levels, base)


def _number_histories(
    words_QK: IntArray, keys: IntArray, levels: IntArray, base: int
) -> tuple[IntArray, IntArray]:
    """Return where a new history begins in sorted n-grams, and the node of the history of each n-gram."""
    length = words_QK.shape[1] - 1
    new = np.ones(len(words_QK), np.bool_)
    new[1:] = (words_QK[1:, :length] != words_QK[:-1, :length]).any(axis=1)
    first = np.flatnonzero(new)
    if not length:
        return first[:1], np.zeros(len(words_QK), np.int64)
    nodes = words_QK[first, 0] + 1
    for level in range(2, length + 1):
        nodes = _find(keys, levels, level, nodes * base + words_QK[first, level - 1])
    return first, nodes[np.cumsum(new) - 1]


def _find(
    keys: IntArray, levels: IntArray, level: int, wanted: IntArray, folder: Path | None = None
) -> IntArray:
    """Return the nodes of keys that stand in one level."""
    low, high = int(levels[level]), int(levels[level + 1])
    places = search_sorted(keys[low:high], wanted) + low
    if not len(places) or np.array_equal(keys[np.minimum(places, high - 1)], wanted):
        return places
    raise RunError(f"{folder or 'the folder'} is damaged: histories or suffixes of n-grams are missing")


def _write_children(children: IntArray, keys: IntArray, levels: IntArray, base: int) -> None:
    """Write where the children of each history begin: where its number times V + 1 falls among the keys."""
    children[0], children[-1] = 1, levels[-1]
    for level in range(1, len(levels) - 2):
        low, high = int(levels[level + 1]), int(levels[level + 2])
        for start in range(int(levels[level]), low, BATCH):
            stop = min(start + BATCH, low)
            children[start:stop] = np.searchsorted(keys[low:high], np.arange(start, stop) * base) + low
