from __future__ import annotations

import numpy as np
import pytest

import tslm
from tslm.errors import CorpusError, NumberError
from tslm.inference.compare import bootstrap, compare, find_differences, read_words

LINES_N = np.repeat(np.arange(50), 4)


def test_bootstrap_knows_a_sure_difference_from_none() -> None:
    random = np.random.default_rng(0)
    first_N = random.normal(-5, 2, 200)
    sure = bootstrap(first_N, first_N + 0.1, LINES_N, resamples=300)
    assert (sure.low, sure.high) == pytest.approx((0.1, 0.1))
    assert sure.better == 1
    assert sure.perplexity_ratio == pytest.approx(np.exp(-0.1))
    unsure = bootstrap(first_N, first_N + random.normal(0, 1, 200), LINES_N, resamples=300)
    assert unsure.low < unsure.nats_per_token < unsure.high
    assert unsure.low < 0 < unsure.high
    assert unsure.ratio_low < unsure.perplexity_ratio < unsure.ratio_high


def test_bootstrap_interval_is_that_of_the_normal_theory_for_lines() -> None:
    random = np.random.default_rng(1)
    by_line = random.normal(0.2, 1, 400)
    difference = bootstrap(np.zeros(400), by_line, np.arange(400), resamples=4000)
    error = by_line.std(ddof=1) / np.sqrt(400)
    assert difference.low == pytest.approx(by_line.mean() - 1.96 * error, abs=0.15 * error * 2)
    assert difference.high == pytest.approx(by_line.mean() + 1.96 * error, abs=0.15 * error * 2)


def test_an_impossible_word_and_wrong_numbers_are_refused() -> None:
    with pytest.raises(NumberError, match="impossible"):
        bootstrap(np.array([0.0, -np.inf]), np.zeros(2), np.array([0, 1]))
    with pytest.raises(NumberError, match="resamples 0"):
        bootstrap(np.zeros(2), np.zeros(2), np.array([0, 1]), resamples=0)


def test_places_where_they_differ_most() -> None:
    words = ["a", "b", "<eos>", "c", "d", "<eos>"]
    lines = np.array([0, 0, 0, 1, 1, 1])
    found = find_differences(np.zeros(6), np.array([0, -3.0, 0, 1, 2, 0]), lines, words, top=2)
    assert [(place.word, place.line, place.context) for place in found["other"]] == [
        ("d", 2, "c"),
        ("c", 2, ""),
    ]
    assert [(place.word, place.context, place.log_probabilities) for place in found["first"]] == [
        ("b", "a", (0.0, -3.0))
    ]


def test_models_side_by_side(runs, tmp_path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat\na zebra saw the river\n")
    words = read_words(str(tmp_path / "text.txt"))
    assert words == [
        "the",
        "cat",
        "sat",
        "on",
        "the",
        "mat",
        "<eos>",
        "a",
        "zebra",
        "saw",
        "the",
        "river",
        "<eos>",
    ]
    models = [(name, tslm.load(runs[name])) for name in ("kn", "tslm", "lstm")]
    report = compare(models, words, resamples=50)
    assert report["same_vocabulary"]
    assert [entry["name"] for entry in report["differences"]] == ["tslm", "lstm"]
    for entry, (_, model) in zip(report["models"], models, strict=True):
        expected = tslm.evaluate(model, model.vocabulary.encode(words), reset=False)
        assert entry["perplexity"] == pytest.approx(expected.perplexity, rel=1e-6)
        assert entry["unk_share"] == pytest.approx(1 / 13)
    ratio = report["models"][1]["perplexity"] / report["models"][0]["perplexity"]
    assert report["differences"][0]["perplexity_ratio"] == pytest.approx(ratio)
    with pytest.raises(CorpusError, match="no token"):
        compare(models, [])
