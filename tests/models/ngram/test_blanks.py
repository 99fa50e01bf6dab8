"""Exact blanks against brute force: every filling scored one by one."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError, UnsupportedError
from tslm.models.ngram import contraction
from tslm.models.ngram import filling as filling_module
from tslm.models.ngram.backoff import BackoffModel
from tslm.models.ngram.blanks import FillsBlanks, Pattern, parse_pattern, require_blanks
from tslm.models.ngram.counting import count_ngrams
from tslm.models.ngram.smoothed import NgramConfig, NgramModel, smooth
from tslm.models.ngram.smoothing import BackoffTable
from tslm.models.ngram.trie import ROOT
from tslm.stopping import Unwanted, wanted_until

WORDS = ("<eos>", "a", "b", "c", "d", "?")
V, EOS = 6, 0
SPANS = ("sentence", "prefix", "suffix", "fragment")


def small_model(order: int, smoothing: str = "kneser-ney", seed: int = 0) -> NgramModel:
    generator = np.random.default_rng(seed)
    ids: list[int] = []
    for _ in range(60):
        size = generator.integers(1, 6)
        ids += [*generator.choice([1, 2, 3, 4, 5], size, p=[0.5, 0.2, 0.15, 0.1, 0.05]).tolist(), EOS]
    config = NgramConfig(order=order, smoothing=smoothing, k=0.3, discount_fallback=(0.5, 1.0, 1.5))
    counts = count_ngrams(np.array(ids, np.int32), order, V, EOS)
    return NgramModel(smooth(counts, config), Vocabulary(WORDS))


def score_all(
    model: BackoffModel, pattern: Pattern, span: str, words: list[int]
) -> tuple[list[tuple[int, ...]], NDArray[np.float64]]:
    """Score every filling of the pattern's blanks as a sentence of its own."""
    count = sum(word is None for word in pattern)
    fillings = list(product(words, repeat=count))
    rows: list[list[int]] = []
    for filling in fillings:
        rest = iter(filling)
        row = [next(rest) if word is None else word for word in pattern]
        rows.append([*row, model.vocabulary.eos_id] if span in ("sentence", "suffix") else row)
    start = model.start(len(rows)) if span in ("sentence", "prefix") else np.full(len(rows), ROOT)
    log_probability, _ = model.score(np.array(rows), start)
    return fillings, log_probability.sum(1)


def check_against_brute_force(
    model: BackoffModel, pattern: Pattern, span: str, words: list[int], tolerance: float = 1e-10
) -> None:
    size = len(model.vocabulary)
    exclude = [word for word in range(size) if word not in words and word != model.vocabulary.eos_id]
    found = model.fill(pattern, span=span, exclude=exclude)
    fillings, scores = score_all(model, pattern, span, words)
    total = float(np.logaddexp.reduce(scores))
    if total == -math.inf:
        assert found.log_probability == -math.inf
        assert not found.posteriors.any()
        assert found.best(3) == []
        return
    assert found.log_probability == pytest.approx(total, abs=tolerance)
    shares = np.exp(scores - total)
    expected = np.zeros((len(fillings[0]), size))
    for words_of_filling, share in zip(fillings, shares, strict=True):
        for blank, word in enumerate(words_of_filling):
            expected[blank, word] += share
    if len(expected):
        np.testing.assert_allclose(found.posteriors, expected, rtol=1e-8, atol=tolerance)
    best = found.best(5)
    possible = sorted(shares[shares > 0], reverse=True)[:5]
    np.testing.assert_allclose([entry.probability for entry in best], possible, rtol=1e-8)
    by_filling = dict(zip(fillings, shares.tolist(), strict=True))
    for entry in best:
        assert entry.probability == pytest.approx(by_filling[entry.words], rel=1e-8)


PATTERNS: list[Pattern] = [
    [None],
    [None, None],
    [None, 1, None],
    [1, None, 2],
    [1, 2, None, None, 1],
    [None, 3, 1, None],
    [None, None, None, None],
    [None, None, None, 2, None, None, None],
    [3, None, None, None, None, None, 1],
    [2, 1, 3],
]


@pytest.fixture(params=[0.0, filling_module.SWEPT_SHARE, math.inf], ids=["swept", "chosen", "listed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All sums over the whole tree, as the model chooses, and all over lists of histories."""
    monkeypatch.setattr(filling_module, "SWEPT_SHARE", request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("smoothing", ["kneser-ney", "add-k", "none"])
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_small_models_against_brute_force(order: int, smoothing: str) -> None:
    model = small_model(order, smoothing, seed=order)
    for number, pattern in enumerate(PATTERNS):
        words = [1, 2, 3, 4, 5] if pattern.count(None) < 5 else [1, 3, 4]
        for span in (SPANS[number % 4], SPANS[(number + order) % 4]):
            check_against_brute_force(model, pattern, span, words)


@pytest.mark.usefixtures("way")
def test_an_end_of_line_inside_a_pattern() -> None:
    model = small_model(3)
    check_against_brute_force(model, [1, None, EOS, None, 2], "sentence", [1, 2, 3, 4, 5])
    check_against_brute_force(model, [None, None, None, EOS, None, None], "sentence", [1, 2, 3, 4, 5])


@pytest.mark.usefixtures("way")
def test_excluded_words_and_no_loss_of_digits() -> None:
    """Back-off weights and probabilities over many magnitudes: subtraction alone would lose all digits."""
    generator = np.random.default_rng(1)
    for seed in range(2):
        table = small_model(4, seed=seed).table
        wild = BackoffTable(
            trie=table.trie,
            log_probability=table.log_probability - generator.exponential(12, len(table.log_probability)),
            log_weight=table.log_weight - generator.exponential(12, len(table.log_weight)),
        )
        model = BackoffModel(wild, Vocabulary(WORDS))
        for pattern in PATTERNS:
            words = [1, 2, 3, 4, 5] if pattern.count(None) < 5 else [1, 3, 4]
            check_against_brute_force(model, pattern, "sentence", words, tolerance=1e-8)
            check_against_brute_force(model, pattern, "fragment", [2, 3], tolerance=1e-8)


@pytest.mark.usefixtures("way")
def test_the_exact_sums_are_really_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every difference formed anew, and with none, ordinary models give the same answer."""
    model = small_model(4)
    found = []
    for threshold in (0.0, contraction.CANCELLATION, 2.0):
        monkeypatch.setattr(contraction, "CANCELLATION", threshold)
        found.append(model.fill([None, 2, None, None]).posteriors)
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)
    np.testing.assert_allclose(found[2], found[1], atol=1e-12)


@pytest.mark.usefixtures("way")
def test_samples_follow_the_posterior() -> None:
    model = small_model(3)
    pattern = [None, 2, None, None]
    filling = model.fill(pattern)
    drawn = filling.sample(20_000, seed=3)
    assert np.array_equal(drawn, filling.sample(20_000, seed=3))
    fillings, scores = score_all(model, pattern, "sentence", [1, 2, 3, 4, 5])
    shares = np.exp(scores - filling.log_probability)
    codes = drawn @ np.array([36, 6, 1])
    expected = np.array(fillings) @ np.array([36, 6, 1])
    found = np.array([(codes == code).mean() for code in expected])
    # Five standard deviations for each of the 125 fillings.
    assert (np.abs(found - shares) < 5 * np.sqrt(shares / 20_000) + 1e-3).all()


def test_the_work_stops_between_two_places() -> None:
    model = small_model(3)
    asked = 0

    def unwanted() -> bool:
        nonlocal asked
        asked += 1
        return asked > 4

    with wanted_until(unwanted), pytest.raises(Unwanted, match="nobody waits"):
        model.fill([None] * 50)
    assert asked == 5
    found = model.fill([None] * 3)
    for work in (lambda: found.best(3), lambda: found.sample(3, seed=1)):
        with wanted_until(lambda: True), pytest.raises(Unwanted):
            work()


def test_the_best_of_many_blanks_are_found_without_straying() -> None:
    """Two hundred beginnings are enough for the ten best of 5⁶ fillings, and they are the right ones."""
    model = small_model(4)
    pattern = [None] * 6
    [*best] = model.fill(pattern).best(10, limit=200)
    fillings, scores = score_all(model, pattern, "sentence", [1, 2, 3, 4, 5])
    order = np.argsort(-scores, kind="stable")[:10]
    total = float(np.logaddexp.reduce(scores))
    np.testing.assert_allclose([entry.probability for entry in best], np.exp(scores[order] - total))
    assert {entry.words for entry in best} == {fillings[place] for place in order}


def test_samples_go_on_to_the_end_of_the_line() -> None:
    model = small_model(3)
    filling = model.fill([1, None], span="prefix")
    lines = filling.sample_lines(200, seed=5, limit=30)
    assert lines == filling.sample_lines(200, seed=5, limit=30)
    assert all(line[0] == 1 and EOS not in line[:-1] for line in lines)
    assert sum(line[-1] == EOS for line in lines) > 190
    assert len({len(line) for line in lines}) > 3
    assert all(len(line) == 2 for line in filling.sample_lines(5, seed=5, limit=0))
    # A whole sentence is closed already.
    assert all(line[-1] == EOS and len(line) == 3 for line in model.fill([1, None]).sample_lines(5, seed=1))


def test_samples_from_a_prefix_follow_the_model() -> None:
    model = small_model(3)
    lines = model.fill([1], span="prefix").sample_lines(20_000, seed=1, limit=1)
    _, state = model.score(np.array([[1]]), model.start(1))
    expected = np.exp(model.predict(state)[0])
    found = np.bincount([line[1] for line in lines], minlength=V) / len(lines)
    assert (np.abs(found - expected) < 5 * np.sqrt(expected / len(lines)) + 1e-4).all()


def test_patterns_are_read_from_text() -> None:
    vocabulary = Vocabulary(WORDS)
    assert parse_pattern("a ? b ?", vocabulary) == [1, None, 2, None]
    assert parse_pattern(r"a \? ?", vocabulary) == [1, 5, None]
    assert parse_pattern("a ? _", vocabulary, blank="_") == [1, 5, None]
    with pytest.raises(CorpusError, match="'zebra' is not in the vocabulary"):
        parse_pattern("a zebra ?", vocabulary)


def test_an_impossible_pattern_has_no_samples() -> None:
    impossible = small_model(5, "none").fill([5, 5, 5, 5, None])
    assert impossible.log_probability == -math.inf
    with pytest.raises(CorpusError, match="probability zero"):
        impossible.sample(1, seed=1)


def test_errors() -> None:
    model = small_model(2)
    with pytest.raises(CorpusError, match="no words and no blanks"):
        model.fill([])
    with pytest.raises(CorpusError, match="word id 6 is outside the vocabulary of 6 words"):
        model.fill([6, None])
    assert isinstance(model, FillsBlanks)
    assert require_blanks(model) is model

    class Recurrent:
        kind = "recurrent"

    with pytest.raises(UnsupportedError, match="kind 'recurrent' cannot fill blanks"):
        require_blanks(Recurrent())


@pytest.fixture(scope="module")
def ptb_trigram(ptb: Corpus) -> NgramModel:
    return NgramModel.fit(NgramConfig(order=3), ptb)


@pytest.mark.ptb
@pytest.mark.parametrize("text", ["the ? of the company", "? said", "the company said ?"])
def test_one_blank_on_penn_treebank(ptb_trigram: NgramModel, text: str) -> None:
    """Every word of the vocabulary tried in the blank."""
    pattern = parse_pattern(text, ptb_trigram.vocabulary)
    words = [word for word in range(len(ptb_trigram.vocabulary)) if word != ptb_trigram.vocabulary.eos_id]
    check_against_brute_force(ptb_trigram, pattern, "sentence", words)


@pytest.mark.ptb
def test_two_blanks_on_penn_treebank(ptb_trigram: NgramModel) -> None:
    """All hundred million pairs: p(v₁) from the left, p(v₂ | v₁ of) row by row, p(<eos> | of v₂) on the right."""
    model, vocabulary = ptb_trigram, ptb_trigram.vocabulary
    size, eos = len(vocabulary), vocabulary.eos_id
    the, of = vocabulary.encode(["the", "of"]).tolist()
    first = np.arange(size)
    left = np.stack([np.full(size, the), first, np.full(size, of)], axis=1)
    log_left, states = model.score(left, model.start(size))
    weight_left = np.exp(log_left.sum(1))
    weight_left[eos] = 0
    _, after_of = model.score(np.array([[the, of]]), model.start(1))
    log_right, _ = model.score(np.stack([first, np.full(size, eos)], axis=1), np.repeat(after_of, size))
    weight_right = np.exp(log_right[:, 1])
    weight_right[eos] = 0
    second, joint_left = np.zeros(size), np.zeros(size)
    for some in np.split(first, range(500, size, 500)):
        joint = np.exp(model.predict(states[some])) * weight_right * weight_left[some, None]
        second += joint.sum(0)
        joint_left[some] = joint.sum(1)
    filling = model.fill([the, None, of, None])
    assert filling.log_probability == pytest.approx(math.log(second.sum()), abs=1e-10)
    np.testing.assert_allclose(filling.posteriors[0], joint_left / joint_left.sum(), atol=1e-12)
    np.testing.assert_allclose(filling.posteriors[1], second / second.sum(), atol=1e-12)


@pytest.mark.ptb
def test_two_adjacent_blanks_on_penn_treebank(ptb_trigram: NgramModel) -> None:
    """All pairs of some hundred words, the others excluded."""
    words = [*range(60), *range(5000, 5030), 9998]
    words.remove(ptb_trigram.vocabulary.eos_id)
    for text in ("? ? said", "the ? ? of the company"):
        check_against_brute_force(ptb_trigram, parse_pattern(text, ptb_trigram.vocabulary), "sentence", words)


@pytest.mark.ptb
@pytest.mark.usefixtures("way")
def test_three_and_four_adjacent_blanks_on_penn_treebank(ptb_trigram: NgramModel) -> None:
    """All fillings with few words, the others excluded."""
    words = [*range(20), *range(5000, 5010), 9998]
    words.remove(ptb_trigram.vocabulary.eos_id)
    vocabulary = ptb_trigram.vocabulary
    check_against_brute_force(ptb_trigram, parse_pattern("the ? ? ? of", vocabulary), "sentence", words)
    check_against_brute_force(ptb_trigram, parse_pattern("? ? ? ?", vocabulary), "fragment", words[5:25])
