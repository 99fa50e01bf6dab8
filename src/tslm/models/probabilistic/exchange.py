"""Clusters of words such that the cluster of a word says most about the cluster of the next one.

The exchange algorithm (Kneser & Ney 1993), with the objective of Brown et al. 1992: words go, one after the other, to
the cluster in which the bigram model of clusters gives the text the highest probability, until none wants to move.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from tslm.stopping import check_wanted

ROUNDS = 12
"""How often each word may move; a text of a million words comes to rest before."""

STILL = 0.001
"""So small a share of the words that moved in a round ends the search."""


def exchange_words(
    ids: Int[np.ndarray, " N"], start_V: Int[np.ndarray, " V"], fixed_V: Int[np.ndarray, " F"], largest: int
) -> Int[np.ndarray, " V"]:
    """Return the cluster of each word.

    Args:
        ids: the text.
        start_V: the clusters to begin with.
        fixed_V: words that stay where they are, and whose clusters take no others.
        largest: how many words a cluster may have.
    """
    cluster_V = start_V.copy()
    words, clusters = len(cluster_V), int(cluster_V.max()) + 1
    pairs = Pairs(ids, words)
    fixed = np.zeros(words, bool)
    fixed[fixed_V] = True
    open_C = np.ones(clusters, bool)
    open_C[cluster_V[fixed_V]] = False
    size_C = np.bincount(cluster_V, minlength=clusters)
    # N[c, d]: how often a word of cluster c stands before one of d.
    N_CC = np.zeros((clusters, clusters))
    np.add.at(N_CC, (cluster_V[ids[:-1]], cluster_V[ids[1:]]), 1)
    order_V = np.argsort(-pairs.counts_V, kind="stable")
    for _ in range(ROUNDS):
        moved = 0
        for word in order_V[~fixed[order_V]].tolist():
            check_wanted()
            here = int(cluster_V[word])
            if size_C[here] == 1:
                continue
            after_C, before_C, twice = pairs.of_word(word, cluster_V, clusters)
            _take(N_CC, here, after_C, before_C, twice, -1)
            gain_C = _gains(N_CC, after_C, before_C, twice)
            allowed_C = open_C & (size_C < largest)
            allowed_C[here] = True
            there = int(np.where(allowed_C, gain_C, -np.inf).argmax())
            # Of equals the old one: a word that would not gain stays.
            if gain_C[there] <= gain_C[here] + 1e-9:
                there = here
            _take(N_CC, there, after_C, before_C, twice, 1)
            size_C[here] -= 1
            size_C[there] += 1
            cluster_V[word] = there
            moved += there != here
        if moved <= STILL * words:
            break
    return cluster_V


class Pairs:
    """Who stands beside whom, word by word."""

    def __init__(self, ids: Int[np.ndarray, " N"], words: int) -> None:
        self.counts_V = np.bincount(ids, minlength=words)
        before_N, after_N = ids[:-1], ids[1:]
        by_before, by_after = np.argsort(before_N, kind="stable"), np.argsort(after_N, kind="stable")
        self._followers_N, self._leaders_N = after_N[by_before], before_N[by_after]
        self._followers_at = np.searchsorted(before_N[by_before], np.arange(words + 1))
        self._leaders_at = np.searchsorted(after_N[by_after], np.arange(words + 1))

    def of_word(
        self, word: int, cluster_V: Int[np.ndarray, " V"], clusters: int
    ) -> tuple[Float[np.ndarray, " C"], Float[np.ndarray, " C"], float]:
        """Return how often each cluster follows a word and leads to it, itself apart, and how often it is doubled."""
        followers = self._followers_N[self._followers_at[word] : self._followers_at[word + 1]]
        leaders = self._leaders_N[self._leaders_at[word] : self._leaders_at[word + 1]]
        twice = float((followers == word).sum())
        after_C = np.bincount(cluster_V[followers], minlength=clusters).astype(float)
        before_C = np.bincount(cluster_V[leaders], minlength=clusters).astype(float)
        after_C[cluster_V[word]] -= twice
        before_C[cluster_V[word]] -= twice
        return after_C, before_C, twice


def _take(
    N_CC: Float[np.ndarray, "C C"],
    cluster: int,
    after_C: Float[np.ndarray, " C"],
    before_C: Float[np.ndarray, " C"],
    twice: float,
    sign: int,
) -> None:
    """Put a word into a cluster, or take it out."""
    N_CC[cluster] += sign * after_C
    N_CC[:, cluster] += sign * before_C
    N_CC[cluster, cluster] += sign * twice


def _gains(
    N_CC: Float[np.ndarray, "C C"],
    after_C: Float[np.ndarray, " C"],
    before_C: Float[np.ndarray, " C"],
    twice: float,
) -> Float[np.ndarray, " C"]:
    """Return what Σ N ln N of pairs less that of single clusters gains for each cluster that a word could join."""
    # Whoever stands beside the word has it as a neighbour again, whichever cluster it joins.
    rows_C, columns_C = N_CC.sum(1) + before_C, N_CC.sum(0) + after_C
    some, others = np.flatnonzero(after_C), np.flatnonzero(before_C)
    right, left = N_CC[:, some], N_CC[others]
    gain_C = (_information(right + after_C[some]) - _information(right)).sum(1)
    gain_C += (_information(left + before_C[others, None]) - _information(left)).sum(0)
    # The entry of a cluster with itself was counted in both sums, each time with a part of what comes to it.
    own_C = np.diagonal(N_CC)
    gain_C += _information(own_C + after_C + before_C + twice) + _information(own_C)
    gain_C -= _information(own_C + after_C) + _information(own_C + before_C)
    gain_C -= _information(rows_C + after_C.sum() + twice) - _information(rows_C)
    return gain_C - _information(columns_C + before_C.sum() + twice) + _information(columns_C)


def _information(count: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return count * np.log(np.maximum(count, 1))
