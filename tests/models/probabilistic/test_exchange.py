from __future__ import annotations

import itertools

import numpy as np

from tslm.models.probabilistic.exchange import Pairs, _gains, _take, exchange_words


def objective(ids: np.ndarray, cluster_V: np.ndarray, clusters: int) -> float:
    """Σ N(c, d) ln N(c, d) − Σ N(c, ·) ln N(c, ·) − Σ N(·, d) ln N(·, d), from the text itself."""
    N = np.zeros((clusters, clusters))
    for before, after in itertools.pairwise(ids.tolist()):
        N[cluster_V[before], cluster_V[after]] += 1

    def total(counts: np.ndarray) -> float:
        return float(sum(count * np.log(count) for count in counts.flatten() if count > 0))

    return total(N) - total(N.sum(1)) - total(N.sum(0))


def test_the_gain_of_each_move_is_the_difference_of_the_objective() -> None:
    numbers = np.random.default_rng(0)
    ids, clusters = numbers.integers(0, 9, 300), 4
    cluster_V = np.arange(9) % clusters
    pairs = Pairs(ids, 9)
    N = np.zeros((clusters, clusters))
    np.add.at(N, (cluster_V[ids[:-1]], cluster_V[ids[1:]]), 1)
    for word in range(9):
        after_C, before_C, twice = pairs.of_word(word, cluster_V, clusters)
        without = N.copy()
        _take(without, int(cluster_V[word]), after_C, before_C, twice, -1)
        gain_C = _gains(without, after_C, before_C, twice)
        expected = []
        for there in range(clusters):
            moved_V = cluster_V.copy()
            moved_V[word] = there
            expected.append(objective(ids, moved_V, clusters))
        np.testing.assert_allclose(gain_C - gain_C[0], np.array(expected) - expected[0], atol=1e-8)


def test_words_go_to_words_with_alike_neighbours_and_fixed_ones_stay() -> None:
    numbers = np.random.default_rng(1)
    # Words 2 to 5 stand behind 0, words 6 to 9 behind 1.
    pairs = np.stack([np.tile([0, 1], 300), numbers.integers(2, 6, 600)], 1)
    pairs[1::2, 1] += 4
    ids = pairs[numbers.permutation(600)].flatten()
    start_V = np.array([0, 1, 2, 2, 2, 3, 3, 3, 2, 3])
    found = exchange_words(ids, start_V, np.array([0, 1]), largest=8)
    assert found[:2].tolist() == [0, 1]
    assert len(set(found[2:6])) == len(set(found[6:10])) == 1
    assert objective(ids, found, 4) > objective(ids, start_V, 4)
    full = exchange_words(ids, np.array([0, 1, 2, 2, 2, 2, 2, 3, 3, 3]), np.array([0, 1]), largest=3)
    assert np.bincount(full)[3] == 3
