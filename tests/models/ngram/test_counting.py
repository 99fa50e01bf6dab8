"""Counting against a dictionary, in memory and on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from tslm.errors import CorpusError
from tslm.models.ngram import counting, spill
from tslm.models.ngram.counting import NgramCounts, count_ngrams
from tslm.models.ngram.trie import build_trie

V, EOS = 5, 2


def random_text(seed: int, tokens: int = 300) -> NDArray[np.int32]:
    words = np.random.default_rng(seed).choice(V, tokens, p=[0.4, 0.2, 0.2, 0.15, 0.05])
    words[-1] = EOS
    return words.astype(np.int32)


def count_slowly(ids: NDArray[np.int32], order: int) -> Counter[tuple[int, ...]]:
    """Every n-gram of every line behind its begin marker, by hand."""
    counts: Counter[tuple[int, ...]] = Counter()
    line = [V]
    for word in ids.tolist():
        line.append(word)
        if word == EOS:
            for length in range(1, order + 1):
                counts.update(tuple(line[i : i + length]) for i in range(len(line) - length + 1))
            line = [V]
    return counts


def as_dictionary(counts: NgramCounts) -> dict[tuple[int, ...], int]:
    trie = counts.trie
    found: dict[tuple[int, ...], int] = {}
    for level in range(1, trie.order + 1):
        nodes = np.arange(trie.levels[level], trie.levels[level + 1])
        for words, times in zip(
            trie.spell(nodes, level).tolist(), counts.counts[nodes].tolist(), strict=True
        ):
            found[tuple(words)] = times
    return found


@pytest.mark.parametrize("order", range(1, 8))
def test_counts_are_those_of_a_dictionary(order: int) -> None:
    ids = random_text(order)
    counts = count_ngrams(ids, order, V, EOS)
    found = as_dictionary(counts)
    assert {ngram: times for ngram, times in found.items() if times} == dict(count_slowly(ids, order))
    assert counts.counts[0] == len(ids)


@pytest.mark.parametrize("order", [2, 4, 7])
def test_tree_is_closed_and_linked(order: int) -> None:
    trie = count_ngrams(random_text(9), order, V, EOS).trie
    assert (np.diff(trie.keys) > 0).all()
    for level in range(2, order + 1):
        nodes = np.arange(trie.levels[level], trie.levels[level + 1])
        words = trie.spell(nodes, level)
        assert (trie.spell(trie.suffixes[nodes], level - 1) == words[:, 1:]).all()
        assert (trie.spell(trie.parents[nodes], level - 1) == words[:, :-1]).all()
        assert (trie.find(trie.parents[nodes], words[:, -1]) == nodes).all()
    contexts = np.arange(trie.context_count)
    edges, owners = trie.edges(contexts)
    assert (edges == np.arange(1, trie.node_count)).all()
    assert (trie.parents[edges] == owners).all()
    # The search that ARPA files need gives the same suffixes as the positions in the text.
    again = build_trie(vocabulary_size=V, level_keys=np.split(trie.keys, trie.levels[1:-1]))
    assert (again.suffixes == trie.suffixes).all()


def test_absent_ngrams_are_missing() -> None:
    trie = count_ngrams(np.array([0, 1, EOS], np.int32), 3, V, EOS).trie
    assert trie.find(np.array([1, -1, 2]), np.array([0, 0, 3])).tolist() == [-1, -1, -1]


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_cores_that_sort_a_range_each_give_the_same_arrays(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = random_text(3)
    alone = count_ngrams(ids, 5, V, EOS)
    monkeypatch.setattr(counting, "MANY", 1)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    together = count_ngrams(ids, 5, V, EOS)
    assert np.array_equal(alone.counts, together.counts)
    for name in ("levels", "keys", "suffixes", "first_children"):
        assert np.array_equal(getattr(alone.trie, name), getattr(together.trie, name)), name


def test_lines_shorter_than_the_order() -> None:
    counts = count_ngrams(np.array([0, EOS, EOS, 1, EOS], np.int32), 6, V, EOS)
    assert as_dictionary(counts)[(V, 0, EOS)] == 1
    assert counts.trie.order == 6
    assert np.diff(counts.trie.levels).tolist()[4:] == [0, 0, 0]


def sort_together(windows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no more windows than these be sorted at a time within half a GiB."""
    monkeypatch.setattr(spill, "SORTED_BYTES", 0.5 * 2**30 * spill.SHARE / spill.HELD / windows)


@pytest.mark.parametrize("together", [1, 13, 10_000])
@pytest.mark.parametrize(("order", "chunk"), [(1, 7), (2, 3), (3, 7), (5, 50), (7, 64), (5, 10_000)])
def test_counting_on_disk_gives_the_same_arrays(
    order: int, chunk: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "CHUNK", chunk)
    sort_together(together, monkeypatch)
    ids = random_text(3)
    within, on_disk = count_ngrams(ids, order, V, EOS), count_ngrams(ids, order, V, EOS, memory_gib=0.5)
    for name in ("levels", "keys", "suffixes", "first_children"):
        assert np.array_equal(getattr(within.trie, name), getattr(on_disk.trie, name)), name
    assert np.array_equal(within.counts, on_disk.counts)


def test_counting_on_disk_tells_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "CHUNK", 50)
    sort_together(100, monkeypatch)
    stages: dict[str, tuple[int, list[int]]] = {}

    @contextmanager
    def show(description: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        stages[description] = total, []
        yield stages[description][1].append

    ids = random_text(3)
    counts = spill.count_on_disk(ids, 4, V, EOS, 0.5, show)
    assert list(stages) == [
        "writing windows",
        "counting n-grams",
        "linking n-grams to histories",
        "linking n-grams to suffixes",
    ]
    for total, told in stages.values():
        assert sum(told) == total
        assert min(told) >= 0
        assert len(told) > 1
    assert stages["writing windows"][0] == len(ids)
    assert stages["linking n-grams to suffixes"][0] == counts.trie.node_count - 1 - (V + 1)


@pytest.mark.parametrize("size", [200, 70_000])
def test_large_vocabulary_on_disk_takes_several_columns(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sort_together(20, monkeypatch)
    ids = np.random.default_rng(0).integers(0, min(size, 70_000), 200, dtype=np.int32)
    ids[::9] = EOS
    ids[-1] = EOS
    within, on_disk = count_ngrams(ids, 7, size, EOS), count_ngrams(ids, 7, size, EOS, memory_gib=0.5)
    assert np.array_equal(within.trie.keys, on_disk.trie.keys)
    assert np.array_equal(within.counts, on_disk.counts)


def test_counting_on_disk_a_line_repeated_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """All windows begin with one of few words, so that no ranges part them into small files."""
    sort_together(10, monkeypatch)
    ids = np.tile(np.array([0, 0, 0, 1, EOS], np.int32), 200)
    within, on_disk = count_ngrams(ids, 5, V, EOS), count_ngrams(ids, 5, V, EOS, memory_gib=0.5)
    assert np.array_equal(within.trie.keys, on_disk.trie.keys)
    assert np.array_equal(within.counts, on_disk.counts)


@pytest.mark.parametrize(
    ("ids", "order", "message"),
    [
        ([0, EOS], 0, "order 0 is out of range: give 1 to 7"),
        ([0, EOS], 8, "order 8 is out of range"),
        ([], 3, "has no tokens"),
        ([0, V, EOS], 3, f"token id {V} is outside the vocabulary of {V} words"),
        ([0, -1, EOS], 3, "token id -1 is outside"),
    ],
)
def test_bad_input(ids: list[int], order: int, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        count_ngrams(np.array(ids, np.int32), order, V, EOS)


def test_work_goes_on_while_a_result_is_used() -> None:
    started: list[int] = []

    def work(item: int) -> int:
        started.append(item)
        return item * item

    results = spill._map_in_order(work, range(20))
    for item, result in enumerate(results):
        assert result == item * item
        assert len(started) <= item + 1 + spill.CORES, "no more are held than fit in the memory"
    assert sorted(started) == list(range(20))
