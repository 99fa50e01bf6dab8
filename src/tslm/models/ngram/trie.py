"""All n-grams up to an order as one tree in a few sorted integer arrays.

A *node* is an n-gram; node 0 is the empty one. Nodes are numbered level by level, and within a level in the
order of (number of the history, last word), so a node is its own rank: ``keys`` is sorted as a whole, the
children of a node stand side by side, and an n-gram of any order is one 64-bit key. The words of level one
are all present, word ``w`` as node ``w + 1``, and after them the begin marker of a line (word ``V``), which
is never predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tslm.shapes import Bool, Float, Int, Shaped

IntArray = NDArray[np.int64]

ROOT = 0
"""The node of the empty history."""

MISSING = -1
"""What ``find`` gives for an n-gram that is not in the tree."""

BLOCK = 1 << 19
"""How many n-grams are worked on together: few enough for their memory to be used again and again."""


@dataclass(frozen=True, kw_only=True)
class NgramTrie:
    """A set of n-grams that holds, with each n-gram, its history and its suffix.

    Both closures together make the tree an automaton: the longest known suffix of ``history + word`` is found
    by walking up the suffixes of the history.
    """

    vocabulary_size: int
    """V, the words that can be predicted; word ``V`` is the begin marker."""

    levels: IntArray
    """Level k holds the nodes ``levels[k]`` to ``levels[k + 1]``; level 0 is the root alone."""

    keys: IntArray
    """For each node, history × (V + 1) + last word; -1 for the root. Ascending."""

    suffixes: NDArray[np.integer]
    """For each node, the node of the n-gram without its first word."""

    first_children: IntArray
    """For each node below the last level, its first child; one more entry closes the last range."""

    @property
    def order(self) -> int:
        """N, the length of the longest n-grams."""
        return len(self.levels) - 2

    @property
    def node_count(self) -> int:
        """How many n-grams there are, the empty one included."""
        return len(self.keys)

    @property
    def context_count(self) -> int:
        """How many nodes are short enough to be a history."""
        return int(self.levels[-2])

    @property
    def begin(self) -> int:
        """The node of the begin marker: the history of the first word of a line."""
        return self.vocabulary_size + 1

    @property
    def byte_count(self) -> int:
        """How much memory (or mapped file) the arrays take."""
        return self.keys.nbytes + self.suffixes.nbytes + self.first_children.nbytes

    @cached_property
    def words(self) -> NDArray[np.int32]:
        """The last word of every node; the root has none and says -1."""
        words = np.empty(self.node_count, np.int32)
        np.remainder(self.keys, self.vocabulary_size + 1, out=words, casting="unsafe")
        words[ROOT] = -1
        return words

    @cached_property
    def parents(self) -> NDArray[np.integer]:
        """The history of every node; the root says -1."""
        parents = np.empty(self.node_count, self.suffixes.dtype)
        np.floor_divide(self.keys, self.vocabulary_size + 1, out=parents, casting="unsafe")
        return parents

    def nodes(self, level: int) -> slice:
        """Return the range of nodes of one level."""
        return slice(int(self.levels[level]), int(self.levels[level + 1]))

    def blocks(self, level: int) -> Iterator[tuple[slice, slice]]:
        """Yield histories in a row and their children, which are of length ``level``: about ``BLOCK`` of these each."""
        cuts = cut_histories(self.first_children, self.nodes(level - 1), self.nodes(level))
        for start, stop in pairwise(cuts):
            yield slice(start, stop), slice(int(self.first_children[start]), int(self.first_children[stop]))

    def owners(self, histories: slice) -> Int[np.ndarray, "E"]:
        """Return, for each child of histories in a row, the place of its history among them."""
        sizes = np.diff(self.first_children[histories.start : histories.stop + 1])
        return np.repeat(np.arange(len(sizes)), sizes)

    def last_words(self, nodes: Int[np.ndarray, "Q"] | slice) -> Int[np.ndarray, "Q"]:
        """Return the last word of each n-gram; unlike ``words`` this reads only the nodes asked for."""
        return self.keys[nodes] % (self.vocabulary_size + 1)

    def order_of(self, nodes: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
        """Return the length of each n-gram."""
        return np.searchsorted(self.levels, nodes, side="right") - 1

    def marked(self) -> list[tuple[int, int]]:
        """Return, for each level from 1, the range of the n-grams that start with the begin marker."""
        ranges = [(self.begin, self.begin + 1)]
        for _ in range(self.order - 1):
            low, high = ranges[-1]
            ranges.append((int(self.first_children[low]), int(self.first_children[high])))
        return ranges

    def find(
        self, parents: Int[np.ndarray, "Q"], words: Int[np.ndarray, "Q"], level: int | None = None
    ) -> Int[np.ndarray, "Q"]:
        """Return the node of each history extended by a word, ``MISSING`` where there is none.

        Args:
            parents: histories; ``MISSING`` is allowed and stays missing.
            words: the words after them.
            level: the level of the answers where it is the same for all: the search is shorter.
        """
        low, high = (
            (0, self.node_count) if level is None else (int(self.levels[level]), int(self.levels[level + 1]))
        )
        wanted = parents.astype(np.int64) * (self.vocabulary_size + 1) + words
        keys = self.keys[low:high]
        if not len(keys):
            return np.full(len(wanted), MISSING, np.int64)
        places = search_sorted(keys, wanted)
        np.minimum(places, len(keys) - 1, out=places)
        found = (keys[places] == wanted) & (parents >= 0)
        return np.where(found, places + low, MISSING)

    def chain(self, nodes: Int[np.ndarray, "B"]) -> Int[np.ndarray, "N B"]:
        """Return the suffix of each length 0 … N−1 of each history, ``MISSING`` where it is shorter."""
        chain = np.full((max(self.order, 1), len(nodes)), MISSING, np.int64)
        current = nodes.astype(np.int64)
        columns = np.arange(len(nodes))
        for _ in range(len(chain)):
            chain[self.order_of(current), columns] = current
            current = self.suffixes[current].astype(np.int64)
        chain[0] = ROOT
        return chain

    def edges(self, contexts: Int[np.ndarray, "C"]) -> tuple[Int[np.ndarray, "E"], Int[np.ndarray, "E"]]:
        """Return all children of the given histories, and the place of each one's history in ``contexts``."""
        first = self.first_children[contexts]
        sizes = self.first_children[contexts + 1] - first
        owners = np.repeat(np.arange(len(contexts)), sizes)
        starts = np.cumsum(sizes) - sizes
        return np.arange(len(owners)) - starts[owners] + first[owners], owners

    def successors(self, edges: Int[np.ndarray, "E"]) -> Int[np.ndarray, "E"]:
        """Return the history that each n-gram leaves: itself, or its suffix where it is of full length."""
        return np.where(edges < self.context_count, edges, self.suffixes[edges])

    def spell(self, nodes: Int[np.ndarray, "Q"], level: int) -> Int[np.ndarray, "Q K"]:
        """Return the words of n-grams that are all of length ``level``."""
        words = np.empty((len(nodes), level), np.int64)
        current = np.asarray(nodes)
        for place in range(level - 1, -1, -1):
            words[:, place] = self.words[current]
            current = self.parents[current]
        return words

    def keep(self, kept: Bool[np.ndarray, "nodes"]) -> NgramTrie:
        """Return the tree of the kept nodes alone; the kept set must hold the history and suffix of each."""
        numbers = np.cumsum(kept, dtype=np.int64) - 1
        base = self.vocabulary_size + 1
        keys = numbers[self.parents[kept]] * base + self.words[kept]
        keys[ROOT] = -1
        ends = numbers[self.levels[1:] - 1] + 1
        return build_trie(
            vocabulary_size=self.vocabulary_size,
            level_keys=np.split(keys, ends[:-1]),
            suffixes=numbers[self.suffixes[kept]],
        )


def cut_histories(first_children: IntArray, histories: slice, children: slice) -> list[int]:
    """Return where to cut the histories of a level so that those between two cuts have about ``BLOCK`` children."""
    starts = np.arange(children.start, children.stop, BLOCK)
    cuts = np.searchsorted(first_children[histories], starts, side="right") - 1 + histories.start
    return np.unique([histories.start, *cuts, histories.stop]).tolist()


def link_children(
    keys: IntArray,
    first_children: IntArray,
    suffixes: NDArray[np.integer],
    first: int,
    shorter: slice,
    base: int,
) -> IntArray:
    """Return the suffixes of all children of some histories in a row, given those of the histories.

    They are children of the histories' suffixes. Where a suffix has no more children than the history, they are the
    same words in the same order; only the others are searched for.

    Args:
        keys: of all n-grams.
        first_children: of all histories.
        suffixes: of these histories.
        first: the first of these histories.
        shorter: where the suffixes of the children stand.
        base: V + 1.
    """
    begins = first_children[first : first + len(suffixes) + 1]
    sizes = np.diff(begins)
    theirs = first_children[suffixes]
    alike = first_children[suffixes.astype(np.int64) + 1] - theirs == sizes
    found = np.repeat(theirs - begins[:-1], sizes)
    found += np.arange(int(begins[0]), int(begins[-1]))
    if not alike.all():
        other = np.flatnonzero(np.repeat(~alike, sizes))
        owners = np.repeat(suffixes[~alike].astype(np.int64) * base, sizes[~alike])
        wanted = owners + keys[other + int(begins[0])] % base
        found[other] = search_sorted(keys[shorter], wanted) + shorter.start
    return found


def search_sorted(keys: Int[np.ndarray, "K"], wanted: Int[np.ndarray, "Q"]) -> Int[np.ndarray, "Q"]:
    """Return where each number falls among sorted ones: ``np.searchsorted``, three times as fast for many.

    In ascending order, neighbours are found in the same pages of memory, which more than pays for the sorting.
    """
    ascending = np.argsort(wanted)
    places = np.empty(len(wanted), np.int64)
    places[ascending] = np.searchsorted(keys, wanted[ascending])
    return places


def add_up(
    places: Int[np.ndarray, "Q"], values: Shaped[np.ndarray, "Q"], size: int
) -> Float[np.ndarray, "size"]:
    """Return, for each place 0 … size − 1, the sum of its values."""
    return np.bincount(places, weights=values, minlength=size).astype(np.float64, copy=False)


def build_trie(
    *, vocabulary_size: int, level_keys: list[IntArray], suffixes: NDArray[np.integer] | None = None
) -> NgramTrie:
    """Put a tree together from the sorted keys of each level, the root's level ``[-1]`` first.

    Args:
        vocabulary_size: V.
        level_keys: for each level, history × (V + 1) + word, with histories numbered over the whole tree.
        suffixes: for each node, its suffix; found by search when not given.
    """
    levels = np.concatenate([[0], np.cumsum([len(keys) for keys in level_keys])]).astype(np.int64)
    keys = np.concatenate(level_keys)
    base = vocabulary_size + 1
    first_children = np.searchsorted(keys, np.arange(int(levels[-2]) + 1) * base).astype(np.int64)
    narrow = np.int32 if len(keys) < 2**31 else np.int64
    if suffixes is None:
        suffixes = np.zeros(len(keys), narrow)
        for level in range(2, len(levels) - 1):
            histories, children = (slice(*levels[place : place + 2].tolist()) for place in (level - 1, level))
            for start, stop in pairwise(cut_histories(first_children, histories, children)):
                own = slice(int(first_children[start]), int(first_children[stop]))
                known = suffixes[start:stop]
                suffixes[own] = link_children(keys, first_children, known, start, histories, base)
    return NgramTrie(
        vocabulary_size=vocabulary_size,
        levels=levels,
        keys=keys,
        suffixes=suffixes.astype(narrow, copy=False),
        first_children=first_children,
    )
