"""Decomposed n-gram tensors as language models."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch

from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RecipeError, RunError, SizeLimitError
from tslm.models.ngram.class_tensor import NgramTensor
from tslm.models.ngram.compressed import CompressedConfig, CompressedModel
from tslm.tensors import decompose


def make_corpus(seed: int = 0, size: int = 12, lines: int = 400) -> Corpus:
    """Random lines in which each word depends on the one before."""
    numbers = np.random.default_rng(seed)
    chances = numbers.dirichlet([0.3] * size, size)
    words = [f"w{k}" for k in range(size - 1)] + ["<eos>"]
    texts: dict[str, list[str]] = {}
    for split, count in (("train", lines), ("valid", lines // 4), ("test", lines // 4)):
        text: list[str] = []
        for _ in range(count):
            word = size - 1
            for _ in range(10):
                word = int(numbers.choice(size, p=chances[word]))
                if word == size - 1:
                    break
                text.append(words[word])
            text.append("<eos>")
        texts[split] = text
    counts = Counter(texts["train"]) | Counter(dict.fromkeys(words, 1))
    vocabulary = Vocabulary.from_counts(counts)
    splits = {split: vocabulary.encode(text) for split, text in texts.items()}
    return Corpus("chain", vocabulary, MappingProxyType(splits), "0" * 64)


CORPUS = make_corpus()


@pytest.mark.parametrize(
    ("order", "words", "rank"), [(2, 100, 3), (2, 5, 2), (3, 100, 4), (3, 5, 2), (4, 4, 3)]
)
@pytest.mark.parametrize("scaling", ["none", "margins"])
def test_every_distribution_sums_to_one_and_scores_agree(
    order: int, words: int, rank: int, scaling: str
) -> None:
    model = CompressedModel.fit(
        CompressedConfig(order=order, words=words, rank=rank, scaling=scaling), CORPUS
    )
    tokens = CORPUS.splits["test"][:60].reshape(2, 30)
    scores, last = model.score(tokens, model.start(2))
    state = model.start(2)
    for t in range(30):
        distribution = model.predict(state)
        np.testing.assert_allclose(np.exp(distribution).sum(1), 1, rtol=1e-7)
        np.testing.assert_allclose(distribution[np.arange(2), tokens[:, t]], scores[:, t], rtol=1e-7)
        _, state = model.score(tokens[:, t : t + 1], state)
    assert torch.equal(state, last)


def count_windows(ids: np.ndarray, order: int, eos: int) -> Counter[tuple[int, ...]]:
    """Windows counted word by word."""
    counts: Counter[tuple[int, ...]] = Counter()
    history = (eos,) * (order - 1)
    for word in ids.tolist():
        counts[(*history, word)] += 1
        history = (eos,) * (order - 1) if word == eos else (*history, word)[1:]
    return counts


@pytest.mark.parametrize("order", [2, 3])
def test_the_tensor_holds_the_shares_of_windows(order: int) -> None:
    ngrams = NgramTensor.count(CORPUS, order, 100, "none")
    counts = count_windows(CORPUS.splits["train"], order, CORPUS.vocabulary.eos_id)
    total = sum(counts.values())
    for window in itertools.product(range(len(CORPUS.vocabulary)), repeat=order):
        assert float(ngrams.scaled[window]) == pytest.approx(counts[window] / total, abs=1e-15)


def test_the_whole_tensor_is_the_maximum_likelihood_model() -> None:
    ngrams = NgramTensor.count(CORPUS, 2, 100, "none")
    exact = decompose(ngrams.scaled).form
    for form in (ngrams.scaled, exact):
        model = CompressedModel(CORPUS.vocabulary, form, ngrams.scale_C, ngrams.unigram_V, weight=1.0)
        rows = model.read_rows(torch.arange(len(CORPUS.vocabulary))[:, None])
        sums = ngrams.scaled.sum(1, keepdim=True)
        seen = sums[:, 0] > 0
        torch.testing.assert_close(rows[seen], (ngrams.scaled / sums)[seen], rtol=1e-9, atol=1e-12)
        assert model.clipped() < 1e-12


def test_margins_at_rank_one_are_the_unigram_model() -> None:
    config = CompressedConfig(order=2, words=100, rank=1, scaling="margins")
    model = CompressedModel.fit(config, CORPUS)
    rows = model.read_rows(torch.arange(len(CORPUS.vocabulary))[:, None])
    torch.testing.assert_close(rows, model.unigram_V.expand_as(rows), rtol=0.05, atol=0.01)


def test_rare_words_share_a_class_by_their_frequency() -> None:
    model = CompressedModel.fit(CompressedConfig(order=2, words=3, rank=2), CORPUS)
    assert len(model.scale_C) == 4
    rest = np.exp(model.predict(model.start(1))[0])[3:]
    expected = model.unigram_V[3:] / model.unigram_V[3:].sum()
    np.testing.assert_allclose(rest / rest.sum(), expected.numpy(), rtol=1e-7)


def test_the_weight_is_the_best_on_the_validation_split() -> None:
    model = CompressedModel.fit(CompressedConfig(order=2, words=100, rank=4), CORPUS)
    tokens = CORPUS.splits["valid"][None]
    best = float(model.score(tokens, model.start(1))[0].sum())
    found = model.weight
    for weight in (found - 0.01, found + 0.01):
        model.weight = weight
        assert float(model.score(tokens, model.start(1))[0].sum()) < best


@pytest.mark.parametrize("whole", [False, True])
def test_saved_and_loaded(tmp_path: Path, whole: bool) -> None:
    config = CompressedConfig(order=3, words=5, rank=3)
    model = CompressedModel.fit(config, CORPUS)
    if whole:
        ngrams = NgramTensor.count(CORPUS, 3, 5, "none")
        model = CompressedModel.wrap(ngrams, ngrams.scaled, CORPUS)
    model.save(tmp_path)
    again = CompressedModel.load(tmp_path, config, CORPUS.vocabulary)
    assert np.array_equal(again.predict(again.start(1)), model.predict(model.start(1)))
    assert again.parameter_count == model.parameter_count
    assert CompressedModel.kind == "compressed"


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    from tslm.models.weights import load_weights, save_weights

    CompressedModel.fit(CompressedConfig(order=2, words=5, rank=3), CORPUS).save(tmp_path)
    tensors = load_weights(tmp_path)
    del tensors["W.0"]
    save_weights(tmp_path, tensors)
    with pytest.raises(RunError, match="do not fit together"):
        CompressedModel.load(tmp_path, None, CORPUS.vocabulary)


def test_bad_input() -> None:
    for wrong in ({"order": 1}, {"order": 5}, {"words": 0}, {"rank": 0}):
        with pytest.raises(RecipeError, match=next(iter(wrong))):
            CompressedConfig(**wrong)
    large = Corpus("large", Vocabulary((*map(str, range(3000)), "<eos>")), CORPUS.splits, "0" * 64)
    with pytest.raises(
        SizeLimitError, match=r"3-gram tensor of 2000 words.*\(2001×2001×2001\) would take 59.7 GiB"
    ):
        NgramTensor.count(large, 3, 2000, "none")
