from __future__ import annotations

import json

import numpy as np
import pytest

import tslm
from tslm.errors import CorpusError, InputError, NumberError
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
    with pytest.raises(NumberError, match="top = -1 must not be negative"):
        tslm.compare([runs["kn"], runs["tslm"]], top=-1)
    with pytest.raises(InputError, match="1 names for 2 models"):
        tslm.compare([runs["kn"], runs["tslm"]], names=["one"])


def write_own(folder, name, lines, tokeniser, extra="") -> None:
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    (folder / f"{name}.toml").write_text(
        f'[corpus]\nname = "own"\npath = ["{folder / "text.txt"}"]\ntokeniser = "{tokeniser}"\n{extra}'
        '[model]\nkind = "ngram"\norder = 2\ndiscount_fallback = [0.5]\n'
    )
    tslm.train(folder / f"{name}.toml", folder / name)


def test_models_of_different_words_are_compared_per_word_between_spaces(tmp_path) -> None:
    lines = [f"The {animal}'s bone, the {animal}." for animal in ("dog", "cat", "cow") for _ in range(40)]
    write_own(tmp_path, "words", lines, "words")
    write_own(tmp_path, "subwords", lines, "bpe", "max_vocabulary = 300\n")
    write_own(tmp_path, "spaces", lines, "spaces")
    folders = [tmp_path / "words", tmp_path / "subwords", tmp_path / "spaces"]
    text = "The dog's bone, the cow.\nThe cat's bone, the cat."
    comparison = tslm.compare(folders, text, resamples=50)
    assert not comparison.same_vocabulary
    assert (comparison.unit, comparison.share) == ("word", 1.0)
    assert "100.0%" in comparison.remark
    first = comparison.models[0]
    for model, folder in zip(comparison.models, folders, strict=True):
        expected = tslm.evaluate(folder, text, reset=False)
        assert model.perplexity_per_word == pytest.approx(expected.perplexity_per_word, rel=1e-12)
        assert model.bits_per_byte == pytest.approx(expected.bits_per_byte, rel=1e-12)
    for difference, model in zip(comparison.differences, comparison.models[1:], strict=True):
        ratio = model.perplexity_per_word / first.perplexity_per_word
        assert difference.perplexity_ratio == pytest.approx(ratio)
        assert difference.as_json()["nats_per_word"] == difference.nats
        shown = {place.word for places in difference.places.values() for place in places}
        assert shown <= {*text.split(), "<eos>"}
    assert "bits per byte" in repr(comparison)
    assert "perplexity  " not in repr(comparison)


def test_words_that_a_model_does_not_know_are_left_out_of_the_difference(tmp_path) -> None:
    lines = [f"The {animal}'s bone, the {animal}." for animal in ("dog", "cat", "cow") for _ in range(40)]
    write_own(tmp_path, "words", lines, "words")
    write_own(tmp_path, "subwords", lines, "bpe", "max_vocabulary = 300\n")
    both = [tmp_path / "words", tmp_path / "subwords"]
    comparison = tslm.compare(both, ["The zebra's bone, the cow."], resamples=50)
    assert comparison.share == pytest.approx(5 / 6)  # with the end of the line
    assert "83.3%" in comparison.remark
    assert [model.unk_share > 0 for model in comparison.models] == [True, False]
    [difference] = comparison.differences
    # The slow twin: token by token, those of zebra's left out.
    sums = []
    for folder, left_out in zip(both, (("zebra", "'s"), None), strict=True):
        model = tslm.load(folder)
        [sentence] = tslm.score(model, ["The zebra's bone, the cow."])
        left_out = left_out or tuple(model.rule.split("zebra's"))
        words = list(sentence.words)
        begin = words.index(left_out[0])
        assert tuple(words[begin : begin + len(left_out)]) == left_out
        scores = np.delete(sentence.log_probabilities, range(begin, begin + len(left_out)))
        sums.append(scores.sum())
    assert difference.nats == pytest.approx((sums[1] - sums[0]) / 5)
    assert "zebra's" not in {place.word for places in difference.places.values() for place in places}


def test_a_split_is_compared_as_it_stood_in_the_file(tmp_path) -> None:
    lines = [
        f"The {animal}’s bone,  the {animal} no {number}."
        for number, animal in enumerate(["dog", "cow"] * 60)
    ]
    write_own(tmp_path, "words", lines, "words")
    write_own(tmp_path, "subwords", lines, "bpe", "max_vocabulary = 300\n")
    comparison = tslm.compare([tmp_path / "words", tmp_path / "subwords"], split="valid", resamples=50)
    assert comparison.unit == "word"
    for model in comparison.models:
        summary = json.loads((tmp_path / model.name / "summary.json").read_text())["valid"]
        for key in ("bits_per_byte", "perplexity_per_word", "tokens"):
            assert getattr(model, key) == pytest.approx(summary[key], rel=1e-9)
