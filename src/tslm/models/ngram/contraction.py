"""Eq. 14 at the scale of a corpus: a back-off model contracted with the all-ones vector for a word.

A blank sums over all words, in every history that the words before it leave possible. What makes the sum
exact and short is the *failure transition*: a history h passes weight(h) times its mass on to its suffix,
once for all the words that do not follow it, and only the words that do follow it are taken one by one. A
word that follows both h and its suffix must not be counted at the suffix for the mass that came from h, since
h emitted it already: that share is taken off again at each such word. Where taking off would lose digits, the
few sums concerned are formed anew term by term.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from tslm.models.ngram.smoothing import BackoffTable, FloatArray
from tslm.models.ngram.trie import ROOT, IntArray, add_up, search_sorted

CANCELLATION = 1e-4
"""A difference smaller than this share of its terms is formed anew; the rest keep eleven digits or more."""

CHUNK = 4_000_000
"""How many terms are formed at a time."""


@dataclass(frozen=True)
class Weighted:
    """Some histories, ascending, each with a number: a sparse vector over all histories."""

    states: IntArray
    values: FloatArray

    def at(self, states: Int[np.ndarray, "Q"]) -> Float[np.ndarray, "Q"]:
        """Return the number of each state, zero where there is none."""
        places = np.minimum(search_sorted(self.states, states), len(self.states) - 1)
        return np.where(self.states[places] == states, self.values[places], 0.0)


def gather(states: Int[np.ndarray, "Q"], values: Float[np.ndarray, "Q"]) -> Weighted:
    """Return the sum of the values of each state."""
    unique, places = np.unique(states, return_inverse=True)
    return Weighted(unique, add_up(places, values, len(unique)))


class Blank:
    """A blank: a linear map from the histories before it to those after it, applied in both directions."""

    def __init__(self, table: BackoffTable, before: Weighted, allowed_V: Bool[np.ndarray, "V"]) -> None:
        """Prepare the blank for the histories that can stand before it.

        Args:
            table: the model.
            before: the possible histories with their probabilities.
            allowed_V: the words that may stand in the blank.
        """
        self.table = table
        self.before = before
        self.allowed_V = allowed_V
        trie = table.trie
        self.contexts, self.mass, self.own, self.pushed, self.pushers = self._push_down()
        self.edges, self.owners = trie.edges(self.contexts)
        # The begin marker has probability zero everywhere.
        words = trie.last_words(self.edges)
        self.probability = np.exp(table.log_probability[self.edges]) * np.append(allowed_V, False)[words]
        self.words = words.astype(np.int32)
        self.targets = trie.successors(self.edges)

    def _push_down(self) -> tuple[IntArray, FloatArray, FloatArray, FloatArray, IntArray]:
        """Close the histories under suffixes.

        Returns:
            contexts, ascending; the mass at each when all words fail above it; the part of it that starts
            there; what each passes on; and how many histories pass something on to it.
        """
        trie = self.table.trie
        levels: list[tuple[IntArray, FloatArray, FloatArray, FloatArray, IntArray]] = []
        states = np.zeros(0, np.int64)
        flow = np.zeros(0)
        own_levels = trie.order_of(self.before.states)
        for level in range(max(trie.order - 1, 0), -1, -1):
            here = own_levels == level
            arrived = trie.suffixes[states].astype(np.int64)
            contexts, places = np.unique(
                np.concatenate([self.before.states[here], arrived]), return_inverse=True
            )
            count = int(here.sum())
            own = add_up(places[:count], self.before.values[here], len(contexts))
            passed = add_up(places[count:], flow, len(contexts))
            pushers = np.bincount(places[count:][flow > 0], minlength=len(contexts))
            mass = own + passed
            states, flow = contexts, mass * np.exp(self.table.log_weight[contexts])
            levels.append((contexts, mass, own, flow, pushers))
        contexts, mass, own, flow, pushers = (
            np.concatenate(column) for column in zip(*levels[::-1], strict=True)
        )
        return contexts, mass, own, flow, pushers

    @cached_property
    def suffix_edges(self) -> IntArray:
        """For each edge but those of the empty history, the place of the same word's edge one order down."""
        trie = self.table.trie
        first_long = int(np.searchsorted(self.owners, 1))  # the first context is the root
        suffix_owner = np.searchsorted(self.contexts, trie.suffixes[self.contexts])[self.owners[first_long:]]
        starts = np.searchsorted(self.owners, np.arange(len(self.contexts)))
        inside = trie.suffixes[self.edges[first_long:]] - trie.first_children[self.contexts[suffix_owner]]
        return starts[suffix_owner] + inside

    @cached_property
    def flow(self) -> FloatArray:
        """For each edge, the probability of coming to its history and emitting its word there."""
        long = slice(len(self.edges) - len(self.suffix_edges), None)
        pushed = self.pushed[self.owners[long]]
        taken = add_up(self.suffix_edges, pushed, len(self.edges))
        takers = np.bincount(self.suffix_edges[pushed > 0], minlength=len(self.edges))
        whole = self.mass[self.owners]
        rest = whole - taken
        nothing = (takers == self.pushers[self.owners]) & (self.own[self.owners] == 0)
        rest[nothing] = 0.0
        unsure = np.flatnonzero(
            (takers > 0) & ~nothing & (rest < CANCELLATION * whole) & (self.probability > 0)
        )
        if len(unsure):
            rest[unsure] = self._sum_failures(unsure)
        return rest * self.probability

    def _sum_failures(self, unsure: Int[np.ndarray, "Q"]) -> FloatArray:
        """Return the mass at the history of each edge from histories that the edge's word does not follow."""
        trie = self.table.trie
        long = np.arange(1, len(self.contexts))
        targets = np.searchsorted(self.contexts, trie.suffixes[self.contexts[1:]])
        by_target = np.argsort(targets, kind="stable")
        long, targets = long[by_target], targets[by_target]
        sums = self.own[self.owners[unsure]].copy()
        lows, highs = (np.searchsorted(targets, self.owners[unsure], side=side) for side in ("left", "right"))
        step = max(1, CHUNK // max(1, int((highs - lows).max())))
        for start in range(0, len(unsure), step):
            some = slice(start, start + step)
            sizes = highs[some] - lows[some]
            rows = np.repeat(np.arange(len(sizes)), sizes)
            inside = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            pushers = long[lows[some][rows] + inside]
            fails = trie.find(self.contexts[pushers], self.words[unsure[some]][rows]) < 0
            sums[some] += add_up(rows[fails], self.pushed[pushers[fails]], len(sizes))
        return sums

    def forward(self) -> Weighted:
        """Return the histories after the blank with their probabilities."""
        alive = self.flow > 0
        return gather(self.targets[alive], self.flow[alive])

    def posterior(self, after: Weighted) -> Float[np.ndarray, "V"]:
        """Return, for each word, the probability of all paths with this word in the blank.

        Args:
            after: for each history after the blank, the probability of what follows.
        """
        weights = self.flow * after.at(self.targets)
        return add_up(self.words, weights, self.table.trie.vocabulary_size + 1)[:-1]

    def backward(self, after: Weighted) -> Weighted:
        """Return, for each history before the blank, the probability of what follows."""
        trie = self.table.trie
        values = self.probability * after.at(self.targets)
        explicit = add_up(self.owners, values, len(self.contexts))
        long = slice(len(self.edges) - len(self.suffix_edges), None)
        shadowed = add_up(self.owners[long], values[self.suffix_edges], len(self.contexts))
        weight = np.exp(self.table.log_weight[self.contexts])
        suffix = np.searchsorted(self.contexts, trie.suffixes[self.contexts])
        totals = explicit.copy()
        orders = trie.order_of(self.contexts)
        for level in range(1, trie.order):
            here = np.flatnonzero(orders == level)
            passed = weight[here] * totals[suffix[here]]
            totals[here] += passed - weight[here] * shadowed[here]
            unsure = here[(totals[here] < CANCELLATION * passed) & (shadowed[here] > 0)]
            step = max(1, CHUNK // trie.vocabulary_size)
            for start in range(0, len(unsure), step):
                some = unsure[start : start + step]
                rows, _ = expand(self.table, self.contexts[some], after, self.allowed_V)
                totals[some] = rows.sum(axis=1)
        places = np.searchsorted(self.contexts, self.before.states)
        return Weighted(self.before.states, np.maximum(totals[places], 0.0))


def expand(
    table: BackoffTable,
    states_B: Int[np.ndarray, "B"],
    after: Weighted | None,
    allowed_V: Bool[np.ndarray, "V"],
) -> tuple[Float[np.ndarray, "B V"], Int[np.ndarray, "B V"]]:
    """Return p(word and what follows | history) for all words, and the history after each word.

    Args:
        table: the model.
        states_B: the histories.
        after: for each history after the word, the probability of what follows; None where nothing does.
        allowed_V: the words that may come.
    """
    trie = table.trie
    size = trie.vocabulary_size

    def value(edges: Int[np.ndarray, "E"], targets: Int[np.ndarray, "E"]) -> FloatArray:
        probability = np.exp(table.log_probability[edges])
        return probability if after is None else probability * after.at(targets)

    roots, _ = trie.edges(np.array([ROOT]))
    roots = roots[:size]
    targets = trie.successors(roots)
    values_BV = np.tile(value(roots, targets), (len(states_B), 1))
    targets_BV = np.tile(targets, (len(states_B), 1))
    for histories in trie.chain(states_B)[1:]:
        rows = np.flatnonzero(histories >= 0)
        values_BV[rows] *= np.exp(table.log_weight[histories[rows], None])
        edges, owners = trie.edges(histories[rows])
        places = rows[owners], trie.last_words(edges)
        edge_targets = trie.successors(edges)
        values_BV[places] = value(edges, edge_targets)
        targets_BV[places] = edge_targets
    return values_BV * allowed_V, targets_BV


def read_word(
    table: BackoffTable, states: NDArray[np.integer], word: int, eos_id: int
) -> tuple[FloatArray, IntArray]:
    """Return p(word | history) and the history after the word; ``<eos>`` leads to a new line."""
    log_probability, edges = table.read(states, np.full(len(states), word))
    after = table.trie.successors(edges) if word != eos_id else np.full(len(states), line_start(table))
    return np.exp(log_probability), after


def line_start(table: BackoffTable) -> int:
    """Return the history at the begin of a line."""
    return table.trie.begin if table.trie.order > 1 else ROOT
