"""A back-off table in few bytes: how it stands in ``model.safetensors``, and fewer bits for its numbers.

A file holds the last word of each n-gram and how many children each history has, in as few bytes as the numbers need;
the sorted 64-bit keys of the tree follow from the two when it is opened. Logarithms are written as they are, but where
32 bits hold them all, or 256 different values per order, in so many; weights that follow from the probabilities are not
written at all. So packing loses nothing; what ``round_table`` is asked to lose, it loses before.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tslm.models.ngram.smoothing import BackoffTable, FloatArray
from tslm.models.ngram.trie import BLOCK, ROOT, IntArray, NgramTrie, add_up

Bits = Literal[8, 32, 64]
"""How many bits a logarithm may have; with 8 there are 256 values for each order, and 32 bits for single words."""

VALUES = 256
"""How many different numbers 8 bits tell apart."""

ROUNDS = 30
"""How often the values are moved to the mean of what they stand for; they hardly move after ten."""


FOLLOWS = "log_weight_follows"
"""The array that stands in a file for the back-off weights where those follow from the probabilities."""

NOTHING = 1e-9
"""Less than this is left only by rounding."""


def round_table(table: BackoffTable, bits: Bits) -> BackoffTable:
    """Return the table with its logarithms rounded to what so many bits can hold.

    With 8 bits the 256 values of each order are those that the logarithms are nearest to in the mean square (Lloyd,
    1982). The back-off weights are then what makes the rounded probabilities after each history sum to one.
    """
    if bits == 64:
        return table
    levels = table.trie.levels
    log_probability = table.log_probability.astype(np.float32).astype(np.float64)
    if bits == 32:
        log_weight = table.log_weight.astype(np.float32).astype(np.float64)
    else:
        for level, nodes in enumerate(_long(levels, len(log_probability)), 2):
            log_probability[nodes] = _round_level(table, level)
        derived = derive_weights(table.trie, log_probability)
        log_weight = np.where(np.isneginf(table.log_weight), -np.inf, derived)
    return BackoffTable(trie=table.trie, log_probability=log_probability, log_weight=log_weight)


def derive_weights(trie: NgramTrie, log_probability: FloatArray) -> FloatArray:
    """Return the ln of the weight of each history with which the probabilities after it sum to one.

    What the known words leave of one, divided by what they leave of one after the suffix.
    """
    weight = np.ones(trie.context_count)
    for level in range(2, trie.order + 1):
        nodes, histories = trie.nodes(level), trie.nodes(level - 1)
        left = _leave(trie, level, log_probability[nodes])
        others = _leave(trie, level, log_probability[trie.suffixes[nodes]])
        # After a history that knows every word, or none, any weight will do.
        np.divide(left, others, out=weight[histories], where=(others > NOTHING) & (others < 1))
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(weight, 0.0))


def pack_table(table: BackoffTable) -> dict[str, NDArray[Any]]:
    """Return the arrays of a table's file."""
    trie = table.trie
    probabilities = _pack_values("log_probability", table.log_probability, trie.levels)
    # Probabilities that were rounded to few values; others would not be exact if their weights were to follow.
    rounded = "log_probability" not in probabilities
    if rounded and np.array_equal(table.log_weight, derive_weights(trie, table.log_probability)):
        weights: dict[str, NDArray[Any]] = {FOLLOWS: np.ones(1, np.uint8)}
    else:
        weights = _pack_values("log_weight", table.log_weight, trie.levels)
    return {
        "levels": trie.levels,
        "words": _pack_words(trie),
        "child_counts": _narrow(np.diff(trie.first_children)),
        "suffixes": trie.suffixes,
        **probabilities,
        **weights,
    }


def unpack_table(arrays: Mapping[str, NDArray[Any]]) -> BackoffTable:
    """Return the table of a file, of one that an older version wrote too; nothing is checked but what is needed here.

    Raises:
        KeyError: an array is missing.
        IndexError: an array is too short.
        ValueError: arrays do not fit together.
    """
    levels: IntArray = arrays["levels"]
    trie = _old_trie(arrays) if "keys" in arrays else _unpack_trie(arrays, levels)
    log_probability = _unpack_values("log_probability", arrays, levels)
    if FOLLOWS in arrays:
        _check_places(trie, log_probability)
        log_weight = derive_weights(trie, log_probability)
    else:
        log_weight = _unpack_values("log_weight", arrays, levels)
    return BackoffTable(trie=trie, log_probability=log_probability, log_weight=log_weight)


def _check_places(trie: NgramTrie, log_probability: FloatArray) -> None:
    """Raise a ValueError where an array points beyond another: weights are computed before anything else is checked."""
    suffixes, levels = trie.suffixes, trie.levels
    ascending = len(levels) >= 3 and int(levels[0]) == 0 and bool((np.diff(levels) >= 0).all())
    if not (ascending and len(trie.keys) == len(suffixes) == len(log_probability) == int(levels[-1])):
        raise ValueError("n-grams and probabilities do not fit together")
    if int(suffixes.min()) < 0 or int(suffixes.max()) >= len(suffixes):
        raise ValueError("suffixes are no n-grams")
    for level in range(2, trie.order + 1):
        parents = trie.parents[trie.nodes(level)]
        histories = trie.nodes(level - 1)
        if len(parents) and not (
            histories.start <= int(parents.min()) and int(parents.max()) < histories.stop
        ):
            raise ValueError("histories are no n-grams")


def _old_trie(arrays: Mapping[str, NDArray[Any]]) -> NgramTrie:
    return NgramTrie(
        vocabulary_size=int(arrays["first_children"][1]) - 2,
        levels=arrays["levels"],
        keys=arrays["keys"],
        suffixes=arrays["suffixes"],
        first_children=arrays["first_children"],
    )


def _unpack_trie(arrays: Mapping[str, NDArray[Any]], levels: IntArray) -> NgramTrie:
    words, child_counts = arrays["words"], arrays["child_counts"]
    first_children = np.ones(len(child_counts) + 1, np.int64)
    np.cumsum(child_counts, dtype=np.int64, out=first_children[1:])
    first_children[1:] += 1
    base = int(child_counts[ROOT])
    # Before anything is made of the numbers: a stranger's file may hold any.
    if int(first_children[-1]) != len(words) + 1 or (len(words) and int(words.max()) >= base):
        raise ValueError("words and histories do not fit together")
    keys = np.full(len(words) + 1, -1, np.int64)
    keys[1:] = np.repeat(np.arange(len(child_counts)) * base, child_counts)
    keys[1:] += words
    return NgramTrie(
        vocabulary_size=base - 1,
        levels=levels,
        keys=keys,
        suffixes=arrays["suffixes"],
        first_children=first_children,
    )


def _pack_values(name: str, values: FloatArray, levels: IntArray) -> dict[str, NDArray[Any]]:
    """Return logarithms as one array, or, where each order has at most 256 different ones, as their numbers."""
    for start in range(0, len(values), BLOCK):
        some = values[start : start + BLOCK]
        if not np.array_equal(some.astype(np.float32), some):
            return {name: values}
    short = values.astype(np.float32)
    centres: list[NDArray[np.float32]] = []
    codes: list[NDArray[np.uint8]] = []
    for nodes in _long(levels, len(values)):
        different, numbers = np.unique(short[nodes], return_inverse=True)
        if len(different) > VALUES:
            return {name: short}
        centres.append(np.resize(different, VALUES) if len(different) else np.zeros(VALUES, np.float32))
        codes.append(numbers.astype(np.uint8))
    if not codes:
        return {name: short}
    return {
        f"{name}_words": short[: int(levels[2])],
        f"{name}_codes": np.concatenate(codes),
        f"{name}_values": np.stack(centres),
    }


def _unpack_values(name: str, arrays: Mapping[str, NDArray[Any]], levels: IntArray) -> FloatArray:
    if name in arrays:
        return arrays[name].astype(np.float64, copy=False)
    of_words, codes, centres = (arrays[f"{name}_{part}"] for part in ("words", "codes", "values"))
    values = np.empty(len(of_words) + len(codes))
    values[: len(of_words)] = of_words
    ranges = _long(levels, len(values))
    if len(of_words) != int(levels[2]) or centres.shape != (len(ranges), VALUES) or codes.dtype != np.uint8:
        raise ValueError(f"{name} does not fit the n-grams")
    for nodes, different in zip(ranges, centres, strict=True):
        values[nodes] = different[codes[nodes.start - len(of_words) : nodes.stop - len(of_words)]]
    return values


def _long(levels: IntArray, count: int) -> list[slice]:
    """Return the nodes of each order from two on that the first ``count`` nodes hold."""
    ends = levels[2:].tolist()
    return [slice(low, high) for low, high in pairwise(ends) if high <= count]


def _leave(trie: NgramTrie, level: int, log_probability: FloatArray) -> FloatArray:
    """Return what the words after each history, whose logarithms are given, leave of one."""
    nodes, histories = trie.nodes(level), trie.nodes(level - 1)
    owners = trie.parents[nodes] - histories.start
    return 1.0 - add_up(owners, np.exp(log_probability), histories.stop - histories.start)


def _round_level(table: BackoffTable, level: int) -> FloatArray:
    """Return the logarithms of one order, each as the nearest of 256 values.

    0 and -inf, which say 'always' and 'never', stay what they are. Where the words after a history are rounded up so
    far that they leave less than half of what they left to others, they are all rounded one value lower, and again.
    """
    trie = table.trie
    nodes, start = trie.nodes(level), trie.nodes(level - 1).start
    values = table.log_probability[nodes]
    result = values.copy()
    inner = np.flatnonzero(np.isfinite(values) & (values != 0))
    if not len(inner):
        return result
    centres = _choose_centres(values[inner])
    codes = np.searchsorted((centres[1:] + centres[:-1]) / 2, values[inner])
    result[inner] = centres[codes]
    owners = trie.parents[nodes][inner] - start
    least = _leave(trie, level, values) / 2
    for _ in range(VALUES):
        crowded = (_leave(trie, level, result) < least)[owners] & (codes > 0)
        if not crowded.any():
            break
        codes[crowded] -= 1
        result[inner] = centres[codes]
    return result


def _choose_centres(values: FloatArray) -> FloatArray:
    """Return the 254 numbers, or fewer, that the values are nearest to in the mean square; ascending."""
    ascending = np.sort(values)
    running = np.concatenate([[0.0], np.cumsum(ascending)])
    cuts = np.unique(np.linspace(0, len(ascending), VALUES - 1).astype(np.int64))
    centres = np.diff(running[cuts]) / np.diff(cuts)
    for _ in range(ROUNDS):
        middles = (centres[1:] + centres[:-1]) / 2
        cuts = np.unique([0, *np.searchsorted(ascending, middles), len(ascending)])
        centres = np.diff(running[cuts]) / np.diff(cuts)
    return centres.astype(np.float32).astype(np.float64)


def _pack_words(trie: NgramTrie) -> NDArray[np.integer[Any]]:
    """Return the last word of every node but the root in as few bytes as the largest needs."""
    words = np.empty(trie.node_count - 1, np.min_scalar_type(trie.vocabulary_size))
    for start in range(0, len(words), BLOCK):
        stop = min(start + BLOCK, len(words))
        words[start:stop] = trie.last_words(slice(start + 1, stop + 1))
    return words


def _narrow(numbers: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """Return numbers that are not negative in as few bytes as the largest needs."""
    largest = int(numbers.max()) if len(numbers) else 0
    return numbers.astype(np.min_scalar_type(largest))
