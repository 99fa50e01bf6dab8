"""The sweep over ranks."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import NumberError
from tslm.reports.saturation import save_sweep, sweep_ranks


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Two alternating classes of words: rank 2 is nearly all there is to know."""
    numbers = np.random.default_rng(1)

    def text(lines: int) -> list[str]:
        return [
            word
            for _ in range(lines)
            for word in (*(f"{'ab'[k % 2]}{numbers.integers(5)}" for k in range(8)), "<eos>")
        ]

    texts = {"train": text(600), "valid": text(100), "test": text(100)}
    vocabulary = Vocabulary.from_counts(Counter(texts["train"]))
    splits = {split: vocabulary.encode(words) for split, words in texts.items()}
    return Corpus("alternating", vocabulary, MappingProxyType(splits), "0" * 64)


def test_saturation_is_visible(corpus: Corpus) -> None:
    told: list[str] = []
    sweep = sweep_ranks(corpus, order=2, words=100, ranks=[4, 1, 2, 11], progress=told.append)
    assert [result.rank for result in sweep.ranks] == [1, 2, 4, 11]
    for small, large in itertools.pairwise(sweep.ranks):
        assert large.relative_error < small.relative_error
        assert large.parameters > small.parameters
    for result in sweep.ranks:
        assert result.relative_error <= result.bound + 1e-12
    one, _, four, full = sweep.ranks
    assert sweep.unigram_test > one.test > 1.2 * four.test
    assert four.test < 0.65 * sweep.unigram_test
    assert four.test == pytest.approx(full.test, rel=0.03)  # the rest is noise: saturated
    assert full.test == pytest.approx(sweep.exact.test, rel=1e-6)
    assert sweep.exact.parameters == sweep.classes**2
    assert any("rank 4" in line for line in told)


def test_trigrams(corpus: Corpus) -> None:
    sweep = sweep_ranks(corpus, order=3, words=6, ranks=[1, 7, 49], scaling="margins")
    assert sweep.classes == 7
    assert sweep.ranks[-1].relative_error < 1e-9
    assert sweep.ranks[-1].test == pytest.approx(sweep.exact.test, rel=1e-6)


def test_files(corpus: Corpus, tmp_path: Path) -> None:
    sweep = sweep_ranks(corpus, order=2, words=100, ranks=[1, 2])
    paths = save_sweep(sweep, tmp_path)
    assert json.loads(paths[0].read_text(encoding="utf-8"))["ranks"][1]["test"] == sweep.ranks[1].test
    assert "<svg" in paths[1].read_text(encoding="utf-8")
    assert paths[2].read_bytes().startswith(b"\x89PNG")
    again = save_sweep(sweep, tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


@pytest.mark.parametrize("rank", [0, 12])
def test_rank_out_of_range(corpus: Corpus, rank: int) -> None:
    with pytest.raises(NumberError, match=f"rank {rank} for a tensor of 11 classes; expected 1 to 11"):
        sweep_ranks(corpus, order=2, words=100, ranks=[1, rank])
