from __future__ import annotations

import numpy as np
import pytest

import tslm
from tslm.errors import CorpusError, NumberError
from tslm.inference.bootstrap import bootstrap, find_places


def test_bootstrap_knows_a_sure_difference_from_none() -> None:
    random = np.random.default_rng(0)
    sizes_L = random.integers(1, 9, 50).astype(float)
    sure = bootstrap(0.1 * sizes_L, sizes_L, resamples=300)
    assert (sure.low, sure.mean, sure.high) == pytest.approx((0.1, 0.1, 0.1))
    assert sure.better == 1
    unsure = bootstrap(random.normal(0, 1, 50), sizes_L, resamples=300)
    assert unsure.low < unsure.mean < unsure.high
    assert unsure.low < 0 < unsure.high


def test_bootstrap_interval_is_that_of_the_normal_theory_for_lines() -> None:
    random = np.random.default_rng(1)
    by_line = random.normal(0.2, 1, 400)
    difference = bootstrap(by_line, np.ones(400), resamples=4000)
    error = by_line.std(ddof=1) / np.sqrt(400)
    assert difference.low == pytest.approx(by_line.mean() - 1.96 * error, abs=0.15 * error * 2)
    assert difference.high == pytest.approx(by_line.mean() + 1.96 * error, abs=0.15 * error * 2)


def test_an_impossible_word_and_wrong_numbers_are_refused() -> None:
    with pytest.raises(NumberError, match="impossible"):
        bootstrap(np.array([0.0, -np.inf]), np.ones(2))
    with pytest.raises(NumberError, match="resamples 0"):
        bootstrap(np.zeros(2), np.ones(2), resamples=0)


def test_places_where_they_differ_most() -> None:
    words = ["a", "b", "<eos>", "c", "d", "<eos>"]
    lines = np.array([0, 0, 0, 1, 1, 1])
    found = find_places(np.zeros(6), np.array([0, -3.0, 0, 1, 2, 0]), lines, words, top=2)
    assert [(place.word, place.line, place.context) for place in found["other"]] == [
        ("d", 2, "c"),
        ("c", 2, ""),
    ]
    assert [(place.word, place.context, place.log_probabilities) for place in found["first"]] == [
        ("b", "a", (0.0, -3.0))
    ]


def test_models_side_by_side(runs, tmp_path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat\na zebra saw the river\n")
    names = ("kn", "tslm", "lstm")
    comparison = tslm.compare([runs[name] for name in names], tmp_path / "text.txt", resamples=50)
    assert comparison.same_vocabulary
    assert comparison.unit == "token"
    assert [entry.name for entry in comparison.differences] == [str(runs["tslm"]), str(runs["lstm"])]
    for entry, name in zip(comparison.models, names, strict=True):
        expected = tslm.evaluate(runs[name], tmp_path / "text.txt", reset=False)
        assert entry.perplexity == pytest.approx(expected.perplexity, rel=1e-6)
        assert entry.bits_per_byte == pytest.approx(expected.bits_per_byte, rel=1e-6)
        assert entry.unk_share == pytest.approx(1 / 13)
    ratio = comparison.models[1].perplexity / comparison.models[0].perplexity
    assert comparison.differences[0].perplexity_ratio == pytest.approx(ratio)
    assert comparison.differences[0].places["first"]
    assert comparison.remark == ""
    for text in (repr(comparison), comparison._repr_html_()):
        assert str(runs["lstm"]) in text
        assert "95% interval" in text
    with pytest.raises(CorpusError, match="no line"):
        tslm.compare([runs["kn"], runs["tslm"]], [])


def write_own(folder, name, lines, tokeniser, extra="") -> None:
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    (folder / f"{name}.toml").write_text(
        f'[corpus]\nname = "own"\npath = ["{folder / "text.txt"}"]\ntokeniser = "{tokeniser}"\n{extra}'
        '[model]\nkind = "ngram"\norder = 2\ndiscount_fallback = [0.5]\n'
    )
    tslm.train(folder / f"{name}.toml", folder / name)


def test_models_of_different_words_are_compared_by_bytes_or_not_at_all(tmp_path) -> None:
    lines = [f"The {animal}'s bone, the {animal}." for animal in ("dog", "cat", "cow") for _ in range(40)]
    write_own(tmp_path, "words", lines, "words")
    write_own(tmp_path, "subwords", lines, "bpe", "max_vocabulary = 300\n")
    write_own(tmp_path, "spaces", lines, "spaces")
    both = [tmp_path / "words", tmp_path / "subwords"]
    comparison = tslm.compare(both, "The dog's bone, the cow.\nThe cat's bone, the cat.", resamples=50)
    assert not comparison.same_vocabulary
    assert comparison.unit == "byte"
    assert "bits per byte can" in comparison.remark
    [difference] = comparison.differences
    first, second = (model.bits_per_byte for model in comparison.models)
    assert difference.nats == pytest.approx((first - second) * np.log(2))
    assert difference.places == {}
    assert difference.as_json()["nats_per_byte"] == difference.nats
    assert "bits per byte" in repr(comparison)
    # One that takes <unk> for an answer cannot be compared with one that spells the word.
    comparison = tslm.compare(both, ["The zebra's bone"], resamples=50)
    assert comparison.unit is None
    assert comparison.differences == ()
    lines = repr(comparison).splitlines()
    assert lines[1].startswith("these models cannot be compared on this text")
    assert "interval" not in repr(comparison)
    # Without a text it is the split of the first, as people write it.
    assert tslm.compare(both, split="valid", resamples=50).unit == "byte"
