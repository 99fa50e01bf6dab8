"""Probabilities from counts: Kneser–Ney in two forms, add-k and none.

Each function gives a *back-off table* over the nodes of the tree: ln p(last word | history) of each n-gram
and ln(weight) of each history, such that for a word w that does not follow h in the tree p(w | h) = weight(h)
· p(w | h without its first word).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tslm.errors import CorpusError
from tslm.models.ngram.counting import NgramCounts
from tslm.models.ngram.trie import BLOCK, MISSING, ROOT, NgramTrie, add_up
from tslm.shapes import Float, Int

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class BackoffTable:
    """The n-grams of a model with their probabilities."""

    trie: NgramTrie
    """The n-grams."""

    log_probability: FloatArray
    """For each node, ln p(last word | words before it)."""

    log_weight: FloatArray
    """For each node short enough to be a history, the ln of its back-off weight."""

    def read(
        self, histories: Int[np.ndarray, "B"], words: Int[np.ndarray, "B"]
    ) -> tuple[Float[np.ndarray, "B"], Int[np.ndarray, "B"]]:
        """Return ln p(word | history), and the longest known n-gram that ends with the word."""
        used = histories.astype(np.int64)
        log_probability = np.zeros(len(used))
        edges = self.trie.find(used, words)
        while len(failed := np.flatnonzero(edges == MISSING)):
            log_probability[failed] += self.log_weight[used[failed]]
            used[failed] = self.trie.suffixes[used[failed]]
            edges[failed] = self.trie.find(used[failed], words[failed])
        return log_probability + self.log_probability[edges], edges


def estimate_kneser_ney(
    counts: NgramCounts,
    *,
    single_discount: bool = False,
    prune: tuple[int, ...] = (),
    fallback: tuple[float, ...] | None = None,
) -> BackoffTable:
    """Interpolated Kneser–Ney: discounted counts, mixed with the next shorter history down to the uniform.

    Below the highest order, and except after the begin marker, an n-gram counts once for each different word
    seen before it. Three discounts per order (for counts 1, 2 and more) come from the counts of counts, or
    one for plain Kneser–Ney.

    Args:
        counts: of all n-grams; nothing is left out before the discounts are known.
        single_discount: plain Kneser–Ney.
        prune: n-grams of order k that occur at most ``prune[k - 1]`` times are dropped, their mass left to
            shorter histories.
        fallback: discounts for orders whose own cannot be estimated.

    Raises:
        CorpusError: the corpus is too small for an order's discounts and no ``fallback`` is given.
    """
    trie = counts.trie
    adjusted = adjust_counts(counts)
    kept = _kept_nodes(counts, prune)
    probability = _make_room(counts, trie.node_count)
    weight = _make_room(counts, trie.context_count)
    weight[:] = 1.0
    for level in range(1, trie.order + 1):
        known = adjusted if trie.nodes(level).stop <= len(adjusted) else counts.counts
        values = known[trie.nodes(level)]
        discounts = estimate_discounts(values, level, single_discount=single_discount, fallback=fallback)
        for histories, nodes in trie.blocks(level):
            owners = trie.owners(histories)
            share, mass = discount_counts(
                values[nodes.start - trie.nodes(level).start :][: len(owners)],
                kept[nodes],
                discounts,
                owners,
                histories.stop - histories.start,
            )
            weight[histories] = mass
            if level == 1:
                shorter = np.full(len(owners), 1 / trie.vocabulary_size)
                shorter[-1] = 0.0  # the begin marker is never predicted
            else:
                shorter = probability[trie.suffixes[nodes]]
            probability[nodes] = share + mass[owners] * shorter
    if not kept.all():
        # Dropped histories come after kept ones nowhere: a level's nodes are filtered in place.
        weight, probability, trie = weight[kept[: trie.context_count]], probability[kept], trie.keep(kept)
    weight[ROOT] = 1.0  # the uniform part is inside the unigrams already
    return _to_logarithms(trie, probability, weight)


def _make_room(counts: NgramCounts, length: int) -> FloatArray:
    """Return an array of zeros: in memory, or in a temporary file where the counts are in one."""
    if not isinstance(counts.counts, np.memmap):
        return np.zeros(length)
    with tempfile.TemporaryFile(prefix="tslm-count-") as file:
        return np.memmap(file, np.float64, "w+", shape=(length,))


def discount_counts(
    values: NDArray[np.integer],
    kept: NDArray[np.bool_],
    discounts: FloatArray,
    owners: NDArray[np.integer],
    size: int,
) -> tuple[FloatArray, FloatArray]:
    """Return each n-gram's discounted share of its history, and what each of the histories leaves to its suffix.

    What is left is added up in whole numbers (how many n-grams lost each discount), so that it is the same to the
    last bit in whatever order, and on however many machines, it is added up.

    Args:
        values: the adjusted counts.
        kept: which of the n-grams are not dropped.
        discounts: what to subtract from counts 0, 1, 2 and more.
        owners: the history of each n-gram.
        size: the number of histories.
    """
    steps = np.minimum(values, 3)
    totals = add_up(owners, values, size)
    places = owners * np.int64(4) + steps
    lost = np.bincount(places if kept.all() else places[kept], minlength=4 * size).reshape(size, 4)
    left = discounts[1] * lost[:, 1] + discounts[2] * lost[:, 2] + discounts[3] * lost[:, 3]
    if not kept.all():
        left += add_up(owners[~kept], values[~kept], size)
    mass = np.ones(size)
    np.divide(left, totals, out=mass, where=totals > 0)
    share = values - discounts[steps]
    share /= totals[owners]
    share[~kept] = 0.0
    return share, mass


def adjust_counts(counts: NgramCounts) -> NDArray[np.integer]:
    """Return the number of different words before each n-gram; its count at a line's begin.

    Those of full length, whose counts are as they are, are left out; but single words are always there.
    """
    trie = counts.trie
    adjusted = np.zeros(max(trie.context_count, trie.begin + 1), counts.counts.dtype)
    if trie.order == 1:
        adjusted[:] = counts.counts
    for level in range(2, trie.order + 1):
        nodes = trie.nodes(level)
        for start in range(nodes.start, nodes.stop, BLOCK):
            np.add.at(adjusted, trie.suffixes[start : min(start + BLOCK, nodes.stop)], 1)
    # Nothing stands before a begin marker, so the n-grams that start with one keep their counts.
    for low, high in trie.marked()[:-1]:
        adjusted[low:high] = counts.counts[low:high]
    adjusted[trie.begin] = 0
    return adjusted


def estimate_discounts(
    values: NDArray[np.integer],
    level: int,
    *,
    single_discount: bool = False,
    fallback: tuple[float, ...] | None = None,
) -> FloatArray:
    """Return what to subtract from counts 0, 1, 2 and more (Chen & Goodman, 1999, Eq. 26).

    Args:
        values: the adjusted counts of one order.
        level: the order, for the error message.
        single_discount: one discount for all counts.
        fallback: one or three discounts to use where these cannot be estimated.

    Raises:
        CorpusError: a count of counts is zero, or a discount is not between 0 and its count.
    """
    counts_of_counts = np.zeros(6, np.int64)
    for start in range(0, len(values), BLOCK):
        counts_of_counts += np.bincount(np.minimum(values[start : start + BLOCK], 5), minlength=6)
    return derive_discounts(counts_of_counts, level, single_discount=single_discount, fallback=fallback)


def derive_discounts(
    counts_of_counts: NDArray[np.integer],
    level: int,
    *,
    single_discount: bool = False,
    fallback: tuple[float, ...] | None = None,
) -> FloatArray:
    """Do what ``estimate_discounts`` does, given how many n-grams have the adjusted count 0, 1, 2, 3 and 4."""
    ones, twos = int(counts_of_counts[1]), int(counts_of_counts[2])
    # As lmplz: where nothing has the count 4, the discount for 3 and more is 3 itself.
    needed = 2 if single_discount else 3
    missing = [count for count in range(1, needed + 1) if counts_of_counts[count] == 0]
    if not missing:
        ratio = ones / (ones + 2 * twos)
        if single_discount:
            return np.array([0.0, ratio, ratio, ratio])
        discounts = np.array(
            [0.0]
            + [
                count - (count + 1) * ratio * counts_of_counts[count + 1] / counts_of_counts[count]
                for count in (1, 2, 3)
            ]
        )
        wrong = [count for count in (1, 2, 3) if not 0 <= discounts[count] <= count]
        if not wrong:
            return discounts
        trouble = f"the discount for count {wrong[0]} would be {discounts[wrong[0]]:.3f}"
    else:
        trouble = f"no {level}-gram has the adjusted count {missing[0]}"
    if fallback is not None:
        return np.array([0.0, *fallback] if len(fallback) == 3 else [0.0, *fallback * 3])
    helps = (
        "" if single_discount else "smoothing = 'kneser-ney-single' (which needs only the counts 1 and 2), "
    )
    raise CorpusError(
        f"cannot estimate the Kneser–Ney discounts of order {level}: {trouble}; the corpus is too small or "
        f"too regular: give more text, a lower order, {helps}or discount_fallback = [0.5, 1.0, 1.5]"
    )


def estimate_add_k(counts: NgramCounts, k: float) -> BackoffTable:
    """Add ``k`` to the count of every word after every full history; an unseen history gives the uniform."""
    trie = counts.trie
    size = trie.vocabulary_size
    full = _full_histories(trie)
    totals = _continuations(counts)
    probability = np.full(trie.node_count, 1 / size)
    probability[trie.begin] = 0.0
    edges = np.flatnonzero(full[trie.parents[1:]]) + 1
    edges = edges[trie.words[edges] < size]
    probability[edges] = (counts.counts[edges] + k) / (totals[trie.parents[edges]] + k * size)
    weight = np.where(full, k * size / (totals + k * size), 1.0)
    if trie.order == 1:
        weight[ROOT] = 1.0
    return _to_logarithms(trie, probability, weight)


def estimate_maximum_likelihood(counts: NgramCounts) -> BackoffTable:
    """Eqs. 12, 13. p(w | h) = count(h w) / count(h); an unseen history gives way to its longest suffix."""
    trie = counts.trie
    totals = _continuations(counts)
    probability = np.zeros(trie.node_count)
    probability[1:] = counts.counts[1:] / totals[trie.parents[1:]]
    probability[trie.begin] = 0.0
    return _to_logarithms(trie, probability, np.where(totals > 0, 0.0, 1.0))


def _continuations(counts: NgramCounts) -> FloatArray:
    """Return for each history how many words follow it in the corpus."""
    trie = counts.trie
    totals = add_up(trie.parents[1:], counts.counts[1:], trie.context_count)
    totals[ROOT] = counts.counts[ROOT]  # without the begin markers
    return totals


def _full_histories(trie: NgramTrie) -> NDArray[np.bool_]:
    """Return which histories are complete: N − 1 words, or all words from the begin of the line."""
    full = np.zeros(trie.context_count, np.bool_)
    full[trie.nodes(trie.order - 1)] = True
    for low, high in trie.marked()[:-1]:
        full[low:high] = True
    return full


def _kept_nodes(counts: NgramCounts, prune: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which nodes occur more often than their order's threshold; a short list repeats its last."""
    trie = counts.trie
    kept = np.ones(trie.node_count, np.bool_)
    for level in range(2, trie.order + 1):
        if prune:
            kept[trie.nodes(level)] = counts.counts[trie.nodes(level)] > prune[min(level, len(prune)) - 1]
    return kept


def _to_logarithms(trie: NgramTrie, probability: FloatArray, weight: FloatArray) -> BackoffTable:
    """Take logarithms in place; zero becomes -inf."""
    with np.errstate(divide="ignore"):
        np.log(probability, out=probability)
        np.log(weight, out=weight)
    return BackoffTable(trie=trie, log_probability=probability, log_weight=weight)
