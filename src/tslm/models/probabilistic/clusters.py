"""Which words share their hidden states: clusters of words with alike neighbours."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from tslm.errors import UnsupportedError
from tslm.models.probabilistic.exchange import exchange_words

NEIGHBOURS = 1000
"""The most frequent words that count as neighbours."""

DIRECTIONS = 64
"""How many numbers describe a word to the clustering."""


def describe_words(
    ids: Int[np.ndarray, " N"], words: int, seed: int, directions: int = DIRECTIONS
) -> Float[np.ndarray, "V D"]:
    """Return a vector for each word from how often each frequent word stands right before and right behind it.

    The entries are positive pointwise mutual information, brought down to the directions of largest variance.
    """
    import torch

    frequent = min(NEIGHBOURS, words)
    counts_VX = np.zeros((words, 2 * frequent), np.float32)
    before_N, behind_N = ids[:-1], ids[1:]
    known_N = behind_N < frequent
    np.add.at(counts_VX, (before_N[known_N], behind_N[known_N]), 1)
    known_N = before_N < frequent
    np.add.at(counts_VX, (behind_N[known_N], frequent + before_N[known_N]), 1)
    rows_V1, columns_X = counts_VX.sum(1, keepdims=True), counts_VX.sum(0)
    # A little is added to the expected count: rare words would else be known by one accident each.
    expected_VX = (rows_V1 + 5) * columns_X / max(float(counts_VX.sum()), 1.0) + 1e-12
    information_VX = np.log1p(counts_VX / expected_VX)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        left_VD, size_D, _ = torch.svd_lowrank(torch.from_numpy(information_VX), q=min(directions, words))
    vectors_VD = (left_VD * size_D.sqrt()).numpy().astype(np.float64)
    return vectors_VD / np.maximum(np.linalg.norm(vectors_VD, axis=1, keepdims=True), 1e-12)


def largest_cluster(words: int, clusters: int) -> int:
    """Return how many words a cluster may have: twice as many as the mean."""
    return -(-words // clusters) * 2


def cluster_words(
    vectors_VD: Float[np.ndarray, "V D"],
    counts_V: Int[np.ndarray, " V"],
    clusters: int,
    alone: int,
    seed: int,
) -> Int[np.ndarray, " V"]:
    """Return the cluster of each word.

    Args:
        vectors_VD: what the words are like.
        counts_V: how often each occurs.
        clusters: how many clusters.
        alone: how many of the most frequent words have a cluster of their own.
        seed: for the start of k-means.

    Raises:
        UnsupportedError: SciPy is not installed.
    """
    words = len(counts_V)
    result_V = np.zeros(words, np.int64)
    order_V = np.argsort(-counts_V, kind="stable")
    result_V[order_V[:alone]] = np.arange(alone)
    rest, left = order_V[alone:], clusters - alone
    try:
        from scipy.cluster.vq import kmeans2
    except ImportError as error:
        raise UnsupportedError(
            "clusters of words are found with SciPy, which is not installed: pip install 'tslm[probabilistic]'"
        ) from error
    known = rest[: max(8 * left, 2000)]
    centres_CD, _ = kmeans2(vectors_VD[known], left, iter=20, minit="++", rng=np.random.default_rng(seed))
    # Of two clusters alike the larger one takes no more than its share: padding and time go with the largest.
    room_C = np.full(left, largest_cluster(len(rest), left))
    distance_NC = -2 * vectors_VD[rest] @ centres_CD.T + (centres_CD**2).sum(1)
    for word, near_C in zip(rest.tolist(), np.argsort(distance_NC, axis=1), strict=True):
        cluster = int(near_C[np.argmax(room_C[near_C] > 0)])
        room_C[cluster] -= 1
        result_V[word] = alone + cluster
    return result_V


def find_clusters(
    ids: Int[np.ndarray, " N"],
    counts_V: Int[np.ndarray, " V"],
    clusters: int,
    alone: int,
    *,
    exchange: bool,
    seed: int,
) -> Int[np.ndarray, " V"]:
    """Return the cluster of each word of a text: by k-means of the words' neighbours, and on request by exchange."""
    vectors_VD = describe_words(ids, len(counts_V), seed)
    found_V = cluster_words(vectors_VD, counts_V, clusters, alone, seed)
    if not exchange:
        return found_V
    fixed_V = np.argsort(-counts_V, kind="stable")[:alone]
    return exchange_words(ids, found_V, fixed_V, largest_cluster(len(counts_V) - alone, clusters - alone))
