"""The mixed states of corpora and models: shares of windows, probabilities of models."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tslm
from tslm.errors import CorpusError, NumberError, SizeLimitError
from tslm.inference import quantum
from tslm.inference.quantum import markov_train, read_corpus, read_model, sample_model
from tslm.tensors import norm

TEXT = np.array([1, 2, 0, 1, 3, 0, 1, 2, 0, 2, 2, 0], np.int32)


def test_a_corpus_is_the_shares_of_its_windows() -> None:
    state = read_corpus(TEXT, 2, size=4)
    assert state.probability(torch.tensor([1, 2])) == pytest.approx(2 / 11)
    assert state.probability(torch.tensor([3, 3])) == 0
    beginnings = read_corpus(TEXT, 2, size=4, begin_id=0)
    assert beginnings.probability(torch.tensor([1, 3])) == pytest.approx(1 / 3)
    assert beginnings.probability(torch.tensor([1, 2])) == pytest.approx(1 / 3)
    merged = read_corpus(TEXT, 1, size=4, frequent=2)
    assert merged.size == 3
    assert merged.probability(torch.tensor([2])) == pytest.approx(5 / 12)
    assert read_corpus(TEXT, 2, size=4, words_VM=torch.eye(4)).entropy() == pytest.approx(state.entropy())
    with pytest.raises(CorpusError, match="no window of 20"):
        read_corpus(TEXT, 20, size=4)


@pytest.mark.parametrize("name", ["kn", "tslm"])
def test_a_model_is_asked_about_every_window(runs, name: str) -> None:
    model = tslm.load(runs[name])
    state = read_model(model, 2)
    for words in (["the", "cat"], ["a", "man"], ["mat", "mat"]):
        ids = model.vocabulary.encode(words)
        scores, _ = model.score(ids[None], model.start(1))
        expected = math.exp(scores.sum())
        assert state.probability(torch.from_numpy(ids.astype(np.int64))) == pytest.approx(expected, rel=1e-4)
    first = np.exp(model.predict(model.start(1))[0].astype(np.float64))
    assert state.entropy([0]) == pytest.approx(-(first * np.log(first)).sum(), rel=1e-4)
    drawn = sample_model(model, 2, count=5000, seed=1)
    assert state.fidelity(drawn) > 0.97
    assert drawn.entropy() < state.entropy()
    assert (
        sample_model(model, 2, count=50, seed=1).entropy()
        == sample_model(model, 2, count=50, seed=1).entropy()
    )
    with pytest.raises(NumberError, match="count 0"):
        sample_model(model, 2, count=0)


def test_windows_beyond_counting_are_refused(runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantum, "MOST_WINDOWS", 100)
    with pytest.raises(SizeLimitError, match="use sample_model"):
        read_model(tslm.load(runs["kn"]), 2)


@pytest.mark.parametrize("amplitudes", [False, True])
def test_the_bigram_model_is_a_train(amplitudes: bool) -> None:
    train = markov_train(TEXT, 4, size=3, rank=4, amplitudes=amplitudes)
    counts = np.zeros((4, 4))
    np.add.at(counts, (TEXT[:-1], TEXT[1:]), 1)
    start, step = counts.sum(1) / counts.sum(), counts / counts.sum(1, keepdims=True)
    expected = np.einsum("a,ab,bc,cd->abcd", start, step, step, step)
    tensor = train.to_tensor().numpy()
    np.testing.assert_allclose(tensor**2 if amplitudes else tensor, expected, atol=1e-12)
    if amplitudes:
        assert norm(train) == pytest.approx(1)
    cut = markov_train(TEXT, 4, size=3, rank=2, amplitudes=amplitudes)
    assert cut.ranks == (2, 2, 2)
    with pytest.raises(NumberError, match="rank 5"):
        markov_train(TEXT, 4, size=3, rank=5)
