"""Eq. 14 where every history is possible: a blank or a word as passes over the whole tree.

Behind two neighbouring blanks nearly every history of the model carries some mass, and a list of them is as
long as the tree. But what a history does with its mass is low-rank plus sparse: one number goes to its suffix
for all words that do not follow it, and the words that do are its children, which stand side by side. So a
message is one number for each history, and a step is a few sums along the tree's own arrays (parent, suffix),
level by level, with nothing to search and nothing to sort: a blank costs as much as reading the model a few
times, however many stand beside it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tslm.models.ngram import contraction
from tslm.models.ngram.contraction import line_start, sum_failures, sum_rows
from tslm.models.ngram.messages import Dense, Message, Weighted, gather
from tslm.models.ngram.smoothing import BackoffTable, FloatArray
from tslm.models.ngram.trie import ROOT, add_up
from tslm.shapes import Bool, Int


class Sweep:
    """What all steps over the whole tree share."""

    def __init__(self, table: BackoffTable, eos_id: int, allowed_V: Bool[np.ndarray, "V"]) -> None:
        """Prepare a model of order two or more.

        Args:
            table: the model.
            eos_id: the word that ends a line.
            allowed_V: the words that may stand in a blank.
        """
        self.table = table
        self.trie = table.trie
        self.eos_id = eos_id
        self.allowed_V = allowed_V
        self.weight = np.exp(table.log_weight)
        # The begin marker has probability zero everywhere, and the root is no word.
        self.forbidden = np.flatnonzero(~np.append(allowed_V, [False, False])[self.trie.words])
        self.probability = np.exp(table.log_probability)
        self.probability[self.forbidden] = 0.0

    def suffixes(self, level: int) -> Int[np.ndarray, "here"]:
        """Return, for each n-gram of a level, the place of its suffix in the level below."""
        start = self.trie.levels[level - 1]
        return np.subtract(self.trie.suffixes[self.trie.nodes(level)], start, dtype=np.int64)

    def parents(self, level: int) -> Int[np.ndarray, "here"]:
        """Return, for each n-gram of a level, the place of its history in the level below."""
        start = self.trie.levels[level - 1]
        return np.subtract(self.trie.parents[self.trie.nodes(level)], start, dtype=np.int64)

    def by_level(self, values: NDArray[np.floating]) -> list[NDArray[np.floating]]:
        """Return a number for each history (or each n-gram) as one array for each level; nothing is copied."""
        levels = range(self.trie.order + (len(values) == self.trie.node_count))
        return [values[self.trie.nodes(level)] for level in levels]

    def spread(self, message: Message) -> FloatArray:
        """Return a message as one number for each history."""
        if isinstance(message, Weighted):
            values = np.zeros(self.trie.context_count)
            values[message.states] = message.values
            return values
        return message.values.astype(np.float64, copy=False)


class SweptBlank:
    """A blank after any history."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def forward(self, before: Message) -> Dense:
        """Return the probability of each history after the blank."""
        sweep, order = self.sweep, self.sweep.trie.order
        own = sweep.spread(before)
        mass = own.copy()
        after = np.zeros_like(own)
        masses, weights, afters, probability = map(
            sweep.by_level, (mass, sweep.weight, after, sweep.probability)
        )
        pushed = taken = np.zeros(0)
        for level in range(order, 0, -1):
            suffixes, owners = sweep.suffixes(level), sweep.parents(level)
            if level < order:
                # The histories of this level pass their mass on: from here on that of the level below is complete.
                masses[level - 1] += add_up(suffixes, pushed, len(masses[level - 1]))
            rest = masses[level - 1][owners]
            if level < order:
                whole = rest
                rest = whole - taken
                doubtful = rest < contraction.CANCELLATION * whole
                doubtful &= probability[level] > 0
                unsure = np.flatnonzero(doubtful)
                if len(unsure):
                    rest[unsure] = self._form_anew(level, unsure, own, pushed)
            rest *= probability[level]
            if level < order:
                afters[level] += rest
            else:
                afters[level - 1] += add_up(suffixes, rest, len(afters[level - 1]))
            if level > 1:
                pushed = masses[level - 1] * weights[level - 1]
                taken = add_up(suffixes, pushed[owners], len(masses[level - 1]))
        return Dense(after)

    def _form_anew(
        self, level: int, unsure: Int[np.ndarray, "Q"], own: FloatArray, pushed: FloatArray
    ) -> FloatArray:
        """Return the mass that is left for some edges, without a difference.

        Args:
            level: of the edges.
            unsure: their places in it.
            own: the mass that starts at each history.
            pushed: what the histories of this level pass on to those of the level below.
        """
        trie = self.sweep.trie
        edges = unsure + int(trie.levels[level])
        owners = trie.parents[edges]
        asked = np.zeros(trie.context_count, np.bool_)
        asked[owners] = True
        here = trie.nodes(level)
        passing = np.flatnonzero(asked[trie.suffixes[here]] & (pushed > 0))
        return own[owners] + sum_failures(
            trie, passing + here.start, pushed[passing], owners, trie.words[edges]
        )

    def backward(self, after: Message) -> Dense:
        """Return, for each history before the blank, the probability of what follows."""
        sweep, order = self.sweep, self.sweep.trie.order
        total = np.empty(sweep.trie.context_count)
        following = sweep.spread(after)
        totals, followings, weights, probability = map(
            sweep.by_level, (total, following, sweep.weight, sweep.probability)
        )
        values = probability[1] * followings[1]
        total[ROOT] = values.sum()
        for level in range(2, order + 1):
            suffixes, owners = sweep.suffixes(level), sweep.parents(level)
            # What each history itself gives its words, less what its suffix would have given them.
            gained = values[suffixes]
            gained *= weights[level - 1][owners]
            values = probability[level] * (followings[level] if level < order else followings[-1][suffixes])
            np.subtract(values, gained, out=gained)
            passed = weights[level - 1] * totals[level - 2][sweep.suffixes(level - 1)]
            np.add(passed, add_up(owners, gained, len(passed)), out=totals[level - 1])
            unsure = np.flatnonzero(totals[level - 1] < contraction.CANCELLATION * passed)
            if len(unsure):
                states = unsure + int(sweep.trie.levels[level - 1])
                totals[level - 1][unsure] = sum_rows(sweep.table, states, after, sweep.allowed_V)
        return Dense(total)

    def bound(self, after: Message) -> Dense:
        """Return, for each history before the blank, a bound on ln p of the best word and what follows."""
        sweep, trie = self.sweep, self.sweep.trie
        best = np.empty(trie.context_count, np.float32)
        bests, followings = sweep.by_level(best), sweep.by_level(after.values)
        for level in range(1, trie.order + 1):
            edges, here = trie.nodes(level), trie.nodes(level - 1)
            values = np.full(edges.stop - edges.start + 1, -np.inf, np.float32)
            following = followings[level] if level < trie.order else followings[-1][sweep.suffixes(level)]
            np.add(sweep.table.log_probability[edges], following, out=values[:-1], casting="unsafe")
            low, high = np.searchsorted(sweep.forbidden, [edges.start, edges.stop])
            values[sweep.forbidden[low:high] - edges.start] = -np.inf
            children = trie.first_children[here.start : here.stop + 1] - edges.start
            np.maximum.reduceat(values, children[:-1], out=bests[level - 1])
            bests[level - 1][children[1:] == children[:-1]] = -np.inf
            if level > 1:
                passed = bests[level - 2][sweep.suffixes(level - 1)]
                passed += sweep.table.log_weight[here]
                np.maximum(bests[level - 1], passed, out=bests[level - 1])
        return Dense(best)


class SweptWord:
    """A given word after any history. Each history either emits it or passes all its mass on: no difference."""

    def __init__(self, sweep: Sweep, word: int) -> None:
        self.sweep = sweep
        trie = sweep.trie
        self.edges = np.flatnonzero(trie.words == word)
        self.owners = trie.parents[self.edges]
        self.log_probability = sweep.table.log_probability[self.edges]
        self.targets = trie.successors(self.edges)
        if word == sweep.eos_id:
            self.targets = np.full(len(self.edges), line_start(sweep.table))
        self.ranges = np.searchsorted(self.owners, trie.levels[: trie.order + 1])
        """Which of the edges belong to the histories of each level."""

    def forward(self, before: Message) -> Weighted:
        """Return the histories after the word with their probabilities."""
        sweep = self.sweep
        mass = sweep.spread(before).copy()
        masses, weights = sweep.by_level(mass), sweep.by_level(sweep.weight)
        flow = np.empty(len(self.edges))
        for level in range(sweep.trie.order - 1, -1, -1):
            some = slice(*self.ranges[level : level + 2])
            owners = self.owners[some]
            flow[some] = mass[owners]
            if level:
                mass[owners] = 0.0
                pushed = masses[level] * weights[level]
                masses[level - 1] += add_up(sweep.suffixes(level), pushed, len(masses[level - 1]))
        return gather(self.targets, flow * np.exp(self.log_probability))

    def backward(self, after: Message) -> Dense:
        """Return, for each history before the word, the probability of it and what follows."""
        sweep = self.sweep
        values = np.exp(self.log_probability) * after.at(self.targets)
        total = np.empty(sweep.trie.context_count)
        totals, weights = sweep.by_level(total), sweep.by_level(sweep.weight)
        for level in range(sweep.trie.order):
            if level:
                totals[level][:] = weights[level] * totals[level - 1][sweep.suffixes(level)]
            some = slice(*self.ranges[level : level + 2])
            total[self.owners[some]] = values[some]
        return Dense(total)

    def bound(self, after: Message) -> Dense:
        """Return, for each history before the word, ln p of it and a bound on the best that follows."""
        sweep = self.sweep
        values = self.log_probability + after.at(self.targets, -np.inf)
        best = np.empty(sweep.trie.context_count, np.float32)
        bests, log_weights = sweep.by_level(best), sweep.by_level(sweep.table.log_weight)
        for level in range(sweep.trie.order):
            if level:
                bests[level][:] = log_weights[level] + bests[level - 1][sweep.suffixes(level)]
            some = slice(*self.ranges[level : level + 2])
            best[self.owners[some]] = values[some]
        return Dense(best)
