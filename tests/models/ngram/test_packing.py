"""How tables stand in files: nothing is lost that was not asked for, and older files open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.models.ngram.test_smoothed import small_corpus

from tslm.errors import RunError
from tslm.evaluation.perplexity import evaluate
from tslm.models.arrays import map_arrays, save_arrays
from tslm.models.ngram.packing import VALUES, derive_weights, pack_table, round_table
from tslm.models.ngram.smoothed import NgramConfig, NgramModel
from tslm.models.ngram.smoothing import BackoffTable


def fit(**options) -> NgramModel:
    return NgramModel.fit(NgramConfig(**options), small_corpus())


def check_equal(one: BackoffTable, other: BackoffTable) -> None:
    for name in ("levels", "keys", "suffixes", "first_children"):
        np.testing.assert_array_equal(getattr(one.trie, name), getattr(other.trie, name))
    assert one.trie.vocabulary_size == other.trie.vocabulary_size
    np.testing.assert_array_equal(one.log_probability, other.log_probability)
    np.testing.assert_array_equal(one.log_weight, other.log_weight)


@pytest.mark.parametrize("bits", [8, 32, 64])
@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("smoothing", ["kneser-ney", "none"])
def test_what_is_saved_is_loaded_to_the_last_bit(tmp_path: Path, bits, order, smoothing) -> None:
    config = NgramConfig(order=order, bits=bits, smoothing=smoothing)
    model = NgramModel.fit(config, small_corpus())
    model.save(tmp_path)
    check_equal(NgramModel.load(tmp_path, config, model.vocabulary).table, model.table)


def test_fewer_bits_make_smaller_files(tmp_path: Path) -> None:
    sizes = []
    for bits in (8, 32, 64):
        fit(order=4, bits=bits).save(tmp_path)
        sizes.append((tmp_path / "model.safetensors").stat().st_size)
    trie = fit(order=4).table.trie
    assert sizes == sorted(sizes)
    # 8 bits: word and suffix, probability and back-off; the rest is the tables of values and single words
    assert sizes[0] < trie.node_count * (2 + 4 + 1 + 1 + 1) + 5 * 2 * 4 * VALUES + 4 * 600


def test_files_of_older_versions_open(tmp_path: Path) -> None:
    model = fit(order=3)
    trie = model.table.trie
    old = {name: getattr(trie, name) for name in ("levels", "keys", "suffixes", "first_children")}
    values = {name: getattr(model.table, name) for name in ("log_probability", "log_weight")}
    save_arrays(tmp_path, old | values)
    check_equal(NgramModel.load(tmp_path, NgramConfig(order=3), model.vocabulary).table, model.table)


def test_eight_bits_are_the_nearest_of_256_values_per_order() -> None:
    table = fit(order=3).table
    rounded = round_table(table, 8)
    for level in (2, 3):
        nodes = table.trie.nodes(level)
        given, got = table.log_probability[nodes], rounded.log_probability[nodes]
        centres = np.unique(got)
        assert len(centres) <= VALUES
        np.testing.assert_array_equal(got[given == 0], 0)
        nearest = np.array([min(abs(centres - value)) for value in given.tolist()])
        off = np.abs(got - given) > nearest + 1e-12
        # Only where a history would have too little left for other words, and only downwards.
        assert off.mean() < 0.05
        assert (got[off] < given[off]).all()
    single = table.trie.nodes(1)
    np.testing.assert_array_equal(
        rounded.log_probability[single], table.log_probability[single].astype(np.float32)
    )
    assert round_table(table, 64) is table


@pytest.mark.parametrize("options", [{}, {"prune": (0, 0, 1)}, {"smoothing": "add-k", "k": 0.1}])
def test_with_eight_bits_every_history_sums_to_one(options) -> None:
    model = fit(order=4, bits=8, **options)
    sums = np.exp(model.predict(np.arange(model.table.trie.context_count))).sum(1)
    np.testing.assert_allclose(sums, 1, atol=1e-5)


def test_weights_that_follow_from_exact_probabilities_are_those_of_the_estimate() -> None:
    table = fit(order=4).table
    np.testing.assert_allclose(
        np.exp(derive_weights(table.trie, table.log_probability)),
        np.exp(table.log_weight),
        rtol=1e-6,
        atol=1e-12,
    )


def test_perplexity_hardly_suffers() -> None:
    ids = small_corpus(seed=1).splits["train"]
    exact, short, rounded = (
        evaluate(fit(order=4, bits=bits), ids, reset=False).perplexity for bits in (64, 32, 8)
    )
    assert short == pytest.approx(exact, rel=1e-6)
    assert rounded == pytest.approx(exact, rel=5e-3)


def test_zero_and_impossible_stay_what_they_are() -> None:
    table = fit(order=3, smoothing="none").table
    rounded = round_table(table, 8)
    assert ((rounded.log_weight == -np.inf) == (table.log_weight == -np.inf)).all()
    assert ((rounded.log_weight == 0) == (table.log_weight == 0)).all()


@pytest.mark.parametrize(
    "change",
    [
        {"words": lambda words: words[:-1]},
        {"words": lambda words: np.full_like(words, 2**16 - 1)},
        {"child_counts": lambda counts: counts[:-1]},
        {"child_counts": lambda counts: counts * 3},
        {"log_probability_codes": lambda codes: codes[:-1]},
        {"log_probability_values": lambda values: values[:, :9]},
        {"suffixes": lambda suffixes: suffixes + 10**6},
        {"suffixes": lambda suffixes: suffixes[:-1]},
        {"levels": lambda levels: levels[::-1]},
        {"levels": lambda levels: levels[:2]},
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, change) -> None:
    model = fit(order=3, bits=8)
    arrays = pack_table(model.table)
    save_arrays(tmp_path, arrays | {name: alter(arrays[name]) for name, alter in change.items()})
    with pytest.raises(RunError, match=r"damaged|lacks"):
        NgramModel.load(tmp_path, NgramConfig(order=3), model.vocabulary)
    assert set(map_arrays(tmp_path)) == set(arrays)
