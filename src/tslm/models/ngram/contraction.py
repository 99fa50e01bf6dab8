"""Eq. 14 at the scale of a corpus: a back-off model contracted with the all-ones vector for a word.

A blank sums over all words, in every history that the words before it leave possible. What makes the sum
exact and short is the *failure transition*: a history h passes weight(h) times its mass on to its suffix,
once for all the words that do not follow it, and only the words that do follow it are taken one by one. A
word that follows both h and its suffix must not be counted at the suffix for the mass that came from h, since
h emitted it already: that share is taken off again at each such word. Where taking off would lose digits, the
few sums concerned are formed anew term by term.

A *step* is a linear map from the histories before a place to those after it, prepared for the histories that are
possible there and applied in both directions. Here they are the few that some words leave possible; where nearly
all of them are, ``tslm.models.ngram.sweep`` takes over.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tslm.models.ngram.messages import Message, Weighted, gather
from tslm.models.ngram.smoothing import BackoffTable, FloatArray
from tslm.models.ngram.trie import ROOT, IntArray, NgramTrie, add_up
from tslm.shapes import Bool, Float, Int

CANCELLATION = 1e-4
"""A difference smaller than this share of its terms is formed anew; the rest keep eleven digits or more."""

CHUNK = 4_000_000
"""How many terms are formed at a time."""


class Word:
    """A given word, read after a list of histories."""

    def __init__(self, table: BackoffTable, states: IntArray, word: int, eos_id: int) -> None:
        """Read the word after each history."""
        self.states = states
        self.probability, self.targets = read_word(table, states, word, eos_id)

    def forward(self, before: Message) -> Weighted:
        """Return the histories after the word with their probabilities."""
        return gather(self.targets, before.values * self.probability)

    def backward(self, after: Message) -> Weighted:
        """Return, for each history before the word, the probability of it and what follows."""
        return Weighted(self.states, self.probability * after.at(self.targets))

    def bound(self, after: Message) -> Weighted:
        """Return, for each history before the word, a bound on ln p of it and the best that follows."""
        with np.errstate(divide="ignore"):
            return Weighted(self.states, np.log(self.probability) + after.at(self.targets, -np.inf))


class Blank:
    """A blank after a list of histories."""

    def __init__(
        self,
        table: BackoffTable,
        states: IntArray,
        contexts: Int[np.ndarray, "C"],
        allowed_V: Bool[np.ndarray, "V"],
    ) -> None:
        """Prepare the blank for the histories that can stand before it.

        Args:
            table: the model.
            states: the possible histories, ascending.
            contexts: the same, closed under suffixes (``close``).
            allowed_V: the words that may stand in the blank.
        """
        self.table = table
        self.states = states
        self.contexts = contexts
        self.allowed_V = allowed_V
        trie = table.trie
        self.edges, self.owners = trie.edges(contexts)
        # The begin marker has probability zero everywhere.
        words = trie.last_words(self.edges)
        self.possible = np.append(allowed_V, False)[words]
        self.probability = np.exp(table.log_probability[self.edges]) * self.possible
        self.words = words.astype(np.int32)
        self.targets = trie.successors(self.edges)
        self.weight = np.exp(table.log_weight[contexts])
        self.orders = trie.order_of(contexts)
        self.suffix = np.searchsorted(contexts, trie.suffixes[contexts])
        """For each context, the place of its suffix among the contexts."""

    @cached_property
    def suffix_edges(self) -> IntArray:
        """For each edge but those of the empty history, the place of the same word's edge one order down."""
        trie = self.table.trie
        first_long = int(np.searchsorted(self.owners, 1))  # the first context is the root
        suffix_owner = self.suffix[self.owners[first_long:]]
        starts = np.searchsorted(self.owners, np.arange(len(self.contexts)))
        inside = trie.suffixes[self.edges[first_long:]] - trie.first_children[self.contexts[suffix_owner]]
        return starts[suffix_owner] + inside

    def forward(self, before: Message) -> Weighted:
        """Return the histories after the blank with their probabilities."""
        own, mass, pushed, pushers = self._push_down(before)
        long = slice(len(self.edges) - len(self.suffix_edges), None)
        passed = pushed[self.owners[long]]
        taken = add_up(self.suffix_edges, passed, len(self.edges))
        takers = np.bincount(self.suffix_edges[passed > 0], minlength=len(self.edges))
        whole = mass[self.owners]
        rest = whole - taken
        nothing = (takers == pushers[self.owners]) & (own[self.owners] == 0)
        rest[nothing] = 0.0
        unsure = np.flatnonzero(
            (takers > 0) & ~nothing & (rest < CANCELLATION * whole) & (self.probability > 0)
        )
        if len(unsure):
            owners = self.owners[unsure]
            passing = np.flatnonzero(pushed[1:] > 0) + 1
            failed = sum_failures(
                self.table.trie,
                self.contexts[passing],
                pushed[passing],
                self.contexts[owners],
                self.words[unsure],
            )
            rest[unsure] = own[owners] + failed
        return gather(self.targets, rest * self.probability)

    def _push_down(self, before: Message) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
        """Pass the mass of each history on to its suffix, from the longest to the shortest.

        Returns:
            For each context: the mass that starts there; all that is there when all words fail above; what it passes
            on; and how many contexts pass something on to it.
        """
        own = np.zeros(len(self.contexts))
        own[np.searchsorted(self.contexts, self.states)] = before.values
        mass = own.copy()
        for level in range(int(self.orders[-1]), 0, -1):
            here = np.flatnonzero(self.orders == level)
            mass += add_up(self.suffix[here], mass[here] * self.weight[here], len(mass))
        pushed = mass * self.weight
        pushers = np.bincount(self.suffix[1:][pushed[1:] > 0], minlength=len(mass))
        return own, mass, pushed, pushers

    def backward(self, after: Message) -> Weighted:
        """Return, for each history before the blank, the probability of what follows."""
        values = self.probability * after.at(self.targets)
        explicit = add_up(self.owners, values, len(self.contexts))
        long = slice(len(self.edges) - len(self.suffix_edges), None)
        shadowed = add_up(self.owners[long], values[self.suffix_edges], len(self.contexts))
        totals = explicit.copy()
        for level in range(1, int(self.orders[-1]) + 1):
            here = np.flatnonzero(self.orders == level)
            passed = self.weight[here] * totals[self.suffix[here]]
            totals[here] += passed - self.weight[here] * shadowed[here]
            unsure = here[(totals[here] < CANCELLATION * passed) & (shadowed[here] > 0)]
            totals[unsure] = sum_rows(self.table, self.contexts[unsure], after, self.allowed_V)
        places = np.searchsorted(self.contexts, self.states)
        return Weighted(self.states, np.maximum(totals[places], 0.0))

    def bound(self, after: Message) -> Weighted:
        """Return, for each history before the blank, a bound on ln p of the best word and what follows.

        A bound and not the best itself: for words that do follow a history, its suffix is asked too.
        """
        log_values = self.table.log_probability[self.edges] + after.at(self.targets, -np.inf)
        log_values[~self.possible] = -np.inf
        best = np.full(len(self.contexts), -np.inf)
        owners, starts = np.unique(self.owners, return_index=True)
        best[owners] = np.maximum.reduceat(log_values, starts)
        for level in range(1, int(self.orders[-1]) + 1):
            here = np.flatnonzero(self.orders == level)
            passed = self.table.log_weight[self.contexts[here]] + best[self.suffix[here]]
            best[here] = np.maximum(best[here], passed)
        return Weighted(self.states, best[np.searchsorted(self.contexts, self.states)])


def close(trie: NgramTrie, states: IntArray) -> IntArray:
    """Return histories and all their suffixes, ascending; the empty one is the first."""
    chain = trie.chain(states)
    chain = chain[chain >= 0]
    if len(chain) * 16 < trie.context_count:
        return np.unique(chain)
    reached = np.zeros(trie.context_count, np.bool_)
    reached[chain] = True
    return np.flatnonzero(reached)


def sum_failures(
    trie: NgramTrie,
    passing: Int[np.ndarray, "P"],
    pushed: Float[np.ndarray, "P"],
    histories: Int[np.ndarray, "Q"],
    words: Int[np.ndarray, "Q"],
) -> FloatArray:
    """Return, for each history and word, the mass that comes from longer histories which the word does not follow.

    Args:
        trie: the n-grams.
        passing: the longer histories, all that pass something on to one of ``histories``.
        pushed: what each of them passes on.
        histories: where the mass arrives.
        words: the word that fails above.
    """
    targets = trie.suffixes[passing]
    by_target = np.argsort(targets, kind="stable")
    passing, pushed, targets = passing[by_target], pushed[by_target], targets[by_target]
    lows, highs = (np.searchsorted(targets, histories, side=side) for side in ("left", "right"))
    sums = np.zeros(len(histories))
    step = max(1, CHUNK // max(1, int((highs - lows).max())))
    for start in range(0, len(histories), step):
        some = slice(start, start + step)
        sizes = highs[some] - lows[some]
        rows = np.repeat(np.arange(len(sizes)), sizes)
        inside = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        places = lows[some][rows] + inside
        fails = trie.find(passing[places], words[some][rows]) < 0
        sums[some] += add_up(rows[fails], pushed[places[fails]], len(sizes))
    return sums


def sum_rows(
    table: BackoffTable, states: Int[np.ndarray, "Q"], after: Message, allowed_V: Bool[np.ndarray, "V"]
) -> FloatArray:
    """Return, for each history, the probability of any word and what follows, summed word by word."""
    sums = np.empty(len(states))
    step = max(1, CHUNK // table.trie.vocabulary_size)
    for start in range(0, len(states), step):
        some = slice(start, start + step)
        log_BV, targets_BV = expand(table, states[some])
        sums[some] = np.einsum("bv,bv,v->b", np.exp(log_BV), after.at(targets_BV), allowed_V.astype(float))
    return sums


def expand(
    table: BackoffTable, states_B: Int[np.ndarray, "B"]
) -> tuple[Float[np.ndarray, "B V"], Int[np.ndarray, "B V"]]:
    """Return ln p(word | history) for all words, and the history after each word."""
    trie = table.trie
    roots, _ = trie.edges(np.array([ROOT]))
    roots = roots[: trie.vocabulary_size]
    log_BV = np.tile(table.log_probability[roots], (len(states_B), 1))
    targets_BV = np.tile(trie.successors(roots), (len(states_B), 1))
    for histories in trie.chain(states_B)[1:]:
        rows = np.flatnonzero(histories >= 0)
        log_BV[rows] += table.log_weight[histories[rows], None]
        edges, owners = trie.edges(histories[rows])
        places = rows[owners], trie.last_words(edges)
        log_BV[places] = table.log_probability[edges]
        targets_BV[places] = trie.successors(edges)
    return log_BV, targets_BV


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
