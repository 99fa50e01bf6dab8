"""Smoothing against a slow twin written from the definition, and the known perplexities of Penn Treebank."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from numpy.typing import NDArray

from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError, RecipeError, RunError, ShapeError
from tslm.evaluation.perplexity import evaluate
from tslm.models.ngram.counting import count_ngrams
from tslm.models.ngram.smoothed import NgramConfig, NgramModel, smooth
from tslm.models.ngram.smoothing import estimate_discounts

WORDS = ("a", "<eos>", "b", *(f"w{number}" for number in range(296)), "<unk>")
EOS, UNK = 1, 299


def small_corpus(seed: int = 0, words: tuple[str, ...] = WORDS, lines: int = 1000) -> Corpus:
    """Lines of words by a falling law, so that counts of 1 to 4 occur at every order."""
    generator = np.random.default_rng(seed)
    usable = [number for number, word in enumerate(words) if word not in ("<eos>", "<unk>")]
    shares = 1 / np.arange(1, len(usable) + 1) ** 1.4
    ids: list[int] = []
    for _ in range(lines):
        ids += [*generator.choice(usable, generator.integers(0, 7), p=shares / shares.sum()).tolist(), EOS]
    split = np.array(ids, np.int32)
    return Corpus("small", Vocabulary(words), MappingProxyType({"train": split}), "0")


class SlowKneserNey:
    """Chen & Goodman's interpolated Kneser–Ney, n-gram by n-gram."""

    def __init__(self, ids: NDArray[np.int32], order: int, size: int, single: bool) -> None:
        self.order, self.size = order, size
        counts: Counter[tuple[int, ...]] = Counter()
        line = [-1]
        for word in ids.tolist():
            line.append(word)
            if word == EOS:
                for length in range(1, order + 1):
                    counts.update(tuple(line[i : i + length]) for i in range(len(line) - length + 1))
                line = [-1]
        before: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for ngram in counts:
            before[ngram[1:]].add(ngram[0])
        self.adjusted = {
            ngram: times if len(ngram) == order or ngram[0] == -1 else len(before[ngram])
            for ngram, times in counts.items()
            if ngram != (-1,)
        }
        self.discounts: dict[int, list[float]] = {}
        for length in range(1, order + 1):
            of = Counter(times for ngram, times in self.adjusted.items() if len(ngram) == length)
            ratio = of[1] / (of[1] + 2 * of[2])
            self.discounts[length] = (
                [0, ratio, ratio, ratio]
                if single
                else [0.0] + [i - (i + 1) * ratio * of[i + 1] / of[i] for i in (1, 2, 3)]
            )
        self.followers: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
        for ngram in self.adjusted:
            self.followers[ngram[:-1]].append(ngram)

    def probability(self, history: tuple[int, ...], word: int) -> float:
        history = history[len(history) - min(len(history), self.order - 1) :]
        shorter = 1 / self.size if not history else self.probability(history[1:], word)
        followers = self.followers.get(history, [])
        if not followers:
            return shorter
        discounts = self.discounts[len(history) + 1]
        total = sum(self.adjusted[ngram] for ngram in followers)
        taken = sum(discounts[min(self.adjusted[ngram], 3)] for ngram in followers)
        times = self.adjusted.get((*history, word), 0)
        return (times - discounts[min(times, 3)]) / total + taken / total * shorter


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("smoothing", ["kneser-ney", "kneser-ney-single"])
def test_equals_the_slow_twin(order: int, smoothing: str) -> None:
    corpus = small_corpus(5)
    model = NgramModel.fit(NgramConfig(order=order, smoothing=smoothing), corpus)
    twin = SlowKneserNey(corpus.splits["train"], order, len(WORDS), smoothing == "kneser-ney-single")
    generator = np.random.default_rng(1)
    for _ in range(20):
        line = [*generator.choice([0, 0, 2, 3, 4, 5, 9, 30, UNK], 6).tolist(), EOS]
        expected = [math.log(twin.probability((-1, *line[:place]), word)) for place, word in enumerate(line)]
        found, state = model.score(np.array([line]), model.start(1))
        np.testing.assert_allclose(found[0], expected, rtol=1e-11)
        assert np.array_equal(state, model.start(1))
        _, state = model.score(np.array([line[:-1]]), model.start(1))
        expected = [math.log(twin.probability((-1, *line[:-1]), word)) for word in range(len(WORDS))]
        np.testing.assert_allclose(model.predict(state)[0], expected, rtol=1e-11)


def test_score_in_pieces_and_side_by_side() -> None:
    corpus = small_corpus(2)
    model = NgramModel.fit(NgramConfig(order=4), corpus)
    ids = corpus.splits["train"][:120]
    whole, end = model.score(ids[None], model.start(1))
    state, pieces = model.start(1), []
    for piece in np.split(ids, [1, 6, 56, 56]):
        log_probability, state = model.score(piece[None], state)
        pieces.append(log_probability)
    assert np.array_equal(np.concatenate(pieces, 1), whole)
    assert np.array_equal(state, end)
    rows, _ = model.score(ids.reshape(2, 60), model.start(2))
    first, _ = model.score(ids[None, :60], model.start(1))
    second, _ = model.score(ids[None, 60:], model.start(1))
    assert np.array_equal(rows, np.concatenate([first, second]))


@pytest.mark.parametrize(
    "options",
    [
        {"smoothing": "kneser-ney"},
        {"smoothing": "kneser-ney-single"},
        {"smoothing": "add-k", "k": 0.1},
        {"smoothing": "none"},
        {"smoothing": "kneser-ney", "prune": (0, 0, 1)},
        {"smoothing": "kneser-ney", "prune": (0, 2)},
    ],
    ids=str,
)
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_every_distribution_sums_to_one(order: int, options: dict[str, object]) -> None:
    config = NgramConfig(order=order, discount_fallback=(0.5, 1.0, 1.5), **options)
    model = NgramModel.fit(config, small_corpus(3))
    states = np.arange(model.table.trie.context_count)
    total = np.exp(model.predict(states)).sum(1)
    # After an <eos> there is no history that ends with it: the state is the start of a line.
    np.testing.assert_allclose(total, 1, atol=1e-9)


def test_add_k_is_what_its_name_says() -> None:
    corpus = small_corpus(4)
    model = NgramModel.fit(NgramConfig(order=3, smoothing="add-k", k=0.5), corpus)
    counts: Counter[tuple[int, ...]] = Counter()
    window = (-1, -1, -1)
    for word in corpus.splits["train"].tolist():
        window = (*window[1:], word)
        counts[window] += 1
        window = (-1, -1, -1) if word == EOS else window
    for history, tokens in (((-1, -1), []), ((-1, 2), [2]), ((0, 2), [3, 0, 2])):
        _, state = model.score(np.array([tokens], np.int64), model.start(1))
        total = sum(times for ngram, times in counts.items() if ngram[:2] == history)
        seen = [counts[(*history, word)] for word in range(len(WORDS))]
        assert total > 0
        expected = [(times + 0.5) / (total + 0.5 * len(WORDS)) for times in seen]
        np.testing.assert_allclose(np.exp(model.predict(state)[0]), expected, rtol=1e-12)
    # A history never seen: every word is as likely as any other.
    _, state = model.score(np.array([[UNK, UNK, UNK]]), model.start(1))
    np.testing.assert_allclose(np.exp(model.predict(state)[0]), 1 / len(WORDS), rtol=1e-12)


def test_no_smoothing_makes_unseen_words_impossible() -> None:
    model = NgramModel.fit(NgramConfig(order=2, smoothing="none"), small_corpus(4))
    log_probability, _ = model.score(np.array([[UNK, 0]]), model.start(1))
    assert log_probability[0, 0] == -math.inf


def test_unknown_words_get_mass_where_the_corpus_has_none() -> None:
    corpus = small_corpus(1, WORDS[:-1])
    model = NgramModel.fit(NgramConfig(order=3), corpus)
    assert model.vocabulary.words == WORDS
    log_probability, _ = model.score(np.array([[0, UNK, 0]]), model.start(1))
    assert np.isfinite(log_probability).all()
    plain = NgramModel.fit(NgramConfig(order=3, unknown=False), corpus)
    assert plain.vocabulary is corpus.vocabulary


def test_run_folder(tmp_path: Path) -> None:
    corpus = small_corpus(1, WORDS[:-1])
    config = NgramConfig(order=3)
    model = NgramModel.fit(config, corpus)
    model.save(tmp_path)
    again = NgramModel.load(tmp_path, config, corpus.vocabulary)
    states = np.arange(model.table.trie.context_count)
    assert np.array_equal(again.predict(states), model.predict(states))
    assert again.parameter_count == model.parameter_count
    assert again.vocabulary == model.vocabulary
    with pytest.raises(RunError, match="holds a model of order 3, but its recipe says 4"):
        NgramModel.load(tmp_path, NgramConfig(order=4), corpus.vocabulary)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(RunError, match="damaged"):
        NgramModel.load(tmp_path, config, corpus.vocabulary)
    file.unlink()
    with pytest.raises(RunError, match="missing"):
        NgramModel.load(tmp_path, config, corpus.vocabulary)


def test_pruned_ngrams_are_gone_and_shorter_ones_unchanged() -> None:
    corpus = small_corpus(6)
    counts = count_ngrams(corpus.splits["train"], 3, len(WORDS), EOS)
    table = smooth(counts, NgramConfig(order=3, prune=(0, 0, 1)))
    often = int((counts.counts[counts.trie.nodes(3)] > 1).sum())
    assert table.trie.levels[4] - table.trie.levels[3] == often
    full = smooth(counts, NgramConfig(order=3))
    shorter = slice(0, int(counts.trie.levels[3]))
    np.testing.assert_array_equal(table.log_probability[shorter], full.log_probability[shorter])
    # What the dropped n-grams had goes to shorter histories, and through them to all words.
    kept = np.flatnonzero(counts.counts[counts.trie.nodes(3)] > 1) + counts.trie.levels[3]
    assert (table.log_probability[table.trie.nodes(3)] >= full.log_probability[kept]).all()


def test_a_corpus_too_small_for_discounts_says_so() -> None:
    ids = np.array([0, 2, EOS], np.int32)
    counts = count_ngrams(ids, 2, len(WORDS), EOS)
    with pytest.raises(CorpusError, match=r"order 1: no 1-gram has the adjusted count 2.*discount_fallback"):
        smooth(counts, NgramConfig(order=2))
    with pytest.raises(CorpusError, match=r"order 1: no 1-gram has the adjusted count 2"):
        smooth(counts, NgramConfig(order=2, smoothing="kneser-ney-single"))
    table = smooth(counts, NgramConfig(order=2, discount_fallback=(0.5,)))
    assert np.isfinite(table.log_probability[1 : len(WORDS) + 1]).all()


def test_a_text_without_the_count_4_is_estimated_as_lmplz_does() -> None:
    """lmplz asks for the counts 1 to 3 alone: D3+ = 3 − 4 · Y · 0 / n3 = 3."""
    values = np.array([1] * 10 + [2] * 4 + [3] * 2 + [5] * 3)
    ratio = 10 / (10 + 2 * 4)
    expected = [0, 1 - 2 * ratio * 4 / 10, 2 - 3 * ratio * 2 / 4, 3]
    np.testing.assert_allclose(estimate_discounts(values, 1), expected)
    with pytest.raises(CorpusError, match="no 1-gram has the adjusted count 3"):
        estimate_discounts(values[values != 3], 1)


def test_a_corpus_of_one_word() -> None:
    corpus = Corpus(
        "one", Vocabulary(("a", "<eos>")), MappingProxyType({"train": np.array([0, 1], np.int32)}), "0"
    )
    with pytest.raises(CorpusError, match="too small"):
        NgramModel.fit(NgramConfig(order=2), corpus)
    model = NgramModel.fit(NgramConfig(order=2, smoothing="none", unknown=False), corpus)
    assert evaluate(model, corpus.splits["train"]).perplexity == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 0}, "model.order = 0 must be 1 to 7"),
        ({"order": 8}, "must be 1 to 7"),
        ({"prune": (0, 2, 1)}, "must not fall"),
        ({"prune": (1,)}, "must begin with 0"),
        ({"prune": (0, 1), "smoothing": "none"}, "does not go with"),
        ({"k": 0.0}, "must be positive"),
        ({"discount_fallback": (0.5, 3.0, 1.0)}, "one or three numbers"),
        ({"memory_gib": 0.1}, "0.5 or more"),
    ],
    ids=str,
)
def test_bad_configs(options: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        NgramConfig(**options)


def test_ids_outside_the_vocabulary() -> None:
    model = NgramModel.fit(NgramConfig(order=2), small_corpus(1))
    with pytest.raises(ShapeError, match="token id 300 is outside the vocabulary of 300 words"):
        model.score(np.array([[300]]), model.start(1))


@pytest.mark.ptb
@pytest.mark.parametrize(
    ("options", "valid", "test"),
    [
        ({"order": 5}, 148.01, 141.19),
        ({"order": 3}, None, 148.28),
        ({"order": 5, "smoothing": "kneser-ney-single"}, None, 143.51),
    ],
    ids=str,
)
def test_penn_treebank(ptb: Corpus, options: dict[str, object], valid: float | None, test: float) -> None:
    model = NgramModel.fit(NgramConfig(**options), ptb)
    assert evaluate(model, ptb.splits["test"], reset=False).perplexity == pytest.approx(test, abs=0.05)
    if valid is not None:
        report = evaluate(model, ptb.splits["valid"])
        assert report.perplexity == pytest.approx(valid, abs=0.05)
        assert report.perplexity_reset == pytest.approx(report.perplexity, rel=1e-9)
        # Two thousand histories of the model, and two thousand random ones that the corpus hardly ever has.
        generator = np.random.default_rng(0)
        seen = generator.integers(0, model.table.trie.context_count, 2000)
        _, unseen = model.score(generator.integers(0, 10_000, (2000, 4)), model.start(2000))
        contexts = np.concatenate([seen, unseen])
        sums = np.concatenate([np.exp(model.predict(some)).sum(1) for some in np.split(contexts, 8)])
        assert np.abs(sums - 1).max() < 1e-9


@pytest.mark.wikitext
def test_wikitext(wikitext: Corpus) -> None:
    model = NgramModel.fit(NgramConfig(order=3), wikitext)
    report = evaluate(model, wikitext.splits["valid"], reset=False)
    assert report.tokens == 217_646
    assert 200 < report.perplexity < 400
