from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tslm.corpus.streams import Columns
from tslm.corpus.text import TextSize
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError
from tslm.evaluation.perplexity import evaluate, evaluate_windows
from tslm.evaluation.scoring import split_lines
from tslm.models.ngram.unigram import Unigram, UnigramConfig
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.model import RecurrentModel, RecurrentState

VOCABULARY = Vocabulary(("a", "<eos>", "b", "c"))
EOS = VOCABULARY.eos_id


@pytest.fixture(scope="module")
def model() -> RecurrentModel:
    torch.manual_seed(0)
    return RecurrentModel(RecurrentConfig(rank=6, embedding=6), VOCABULARY).double().eval()


@pytest.fixture(scope="module")
def ids() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 4, 301).astype(np.int32)


def nats_word_by_word(model, ids, reset: bool) -> float:
    state, nats = model.start(1), 0.0
    for token in ids.tolist():
        nats -= float(model.predict(state)[0, token])
        _, state = model.score(np.array([[token]]), state)
        if reset and token == EOS:
            state = model.start(1)
    return nats


def test_equals_the_sum_over_words_one_by_one(model, ids) -> None:
    report = evaluate(model, ids)
    assert report.nats == pytest.approx(nats_word_by_word(model, ids, reset=False), rel=1e-12)
    assert report.perplexity == pytest.approx(math.exp(report.nats / 301), rel=1e-12)
    expected_reset = math.exp(nats_word_by_word(model, ids, reset=True) / 301)
    assert report.perplexity_reset == pytest.approx(expected_reset, rel=1e-12)
    assert report.perplexity != pytest.approx(report.perplexity_reset, rel=1e-4)
    assert report.bits_per_word == pytest.approx(math.log2(report.perplexity), rel=1e-12)
    assert report.tokens == 301
    assert report.lines == int((ids == EOS).sum())


@pytest.mark.parametrize("window", [1, 7, 300, 301, 10_000])
@pytest.mark.parametrize("batch_tokens", [1, 50, 10_000])
def test_depends_on_no_window_and_no_batch(model, ids, window, batch_tokens) -> None:
    expected = evaluate(model, ids)
    report = evaluate(model, ids, window=window, batch_tokens=batch_tokens)
    assert report.perplexity == pytest.approx(expected.perplexity, rel=1e-12)
    assert report.perplexity_reset == pytest.approx(expected.perplexity_reset, rel=1e-12)


def test_every_token_is_ticked_once_per_reading(model, ids) -> None:
    ticks: list[int] = []
    evaluate(model, ids, reset=False, window=64, tick=ticks.append)
    assert sum(ticks) == 301


def test_impossible_words_make_it_infinite(synthetic) -> None:
    model = Unigram.fit(UnigramConfig(), synthetic)
    model.log_probability_V = model.log_probability_V.copy()
    model.log_probability_V[0] = -math.inf
    assert evaluate(model, synthetic.splits["test"]).perplexity == math.inf


def test_wrong_texts_are_refused(model) -> None:
    with pytest.raises(CorpusError, match="no token"):
        evaluate(model, np.array([], np.int32))
    with pytest.raises(CorpusError, match="vocabulary has 4 words"):
        evaluate(model, np.array([4], np.int32))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_a_text_is_split_into_its_lines(tokens) -> None:
    ids = np.array(tokens, np.int32)
    lines = split_lines(ids, EOS)
    assert np.concatenate(lines).tolist() == tokens
    for line in lines[:-1]:
        assert line.tolist().index(EOS) == len(line) - 1
    assert EOS not in lines[-1][:-1]
    assert len(lines[-1])


def test_per_byte_and_per_word_between_spaces(model, ids) -> None:
    report = evaluate(model, ids, reset=False, size=TextSize(bytes=1000, words=150, lines=50))
    assert report.bits_per_byte == pytest.approx(report.nats / 1000 / math.log(2))
    assert report.perplexity_per_word == pytest.approx(math.exp(report.nats / 200))
    assert evaluate(model, ids, reset=False).bits_per_byte is None


@pytest.mark.parametrize("length", [1, 10, 43, 301, 500])
def test_windows_start_anew_as_those_of_training_do(model, ids, length) -> None:
    nats = 0.0
    for inputs_BT, targets_BT in Columns(ids, batch=1, window=length, eos_id=EOS).windows():
        states_TBR, _ = model.read(inputs_BT.t(), model.begin(1))
        for state_BR, target in zip(states_TBR, targets_BT[0].tolist(), strict=True):
            nats -= float(model.predict(RecurrentState((), state_BR))[0, target])
    for batch_tokens in (1, 100, 10_000):
        measured = evaluate_windows(model, ids, length, batch_tokens)
        assert measured == pytest.approx(math.exp(nats / 301), rel=1e-12)


WITHOUT_PYTORCH = """
import sys
from pathlib import Path
from tslm.corpus.vocabulary import Vocabulary
from tslm.evaluation.perplexity import evaluate
from tslm.models.ngram.smoothed import NgramModel, NgramConfig

folder = Path(sys.argv[1])
vocabulary = Vocabulary.load(folder / "vocabulary.txt")
model = NgramModel.load(folder, NgramConfig(order=3), vocabulary)
ids = model.vocabulary.encode_line("the cat sat on the mat")
scores, state = model.score(ids[None], model.start(1))
model.predict(state)
print(evaluate(model, ids).perplexity, -scores.mean(), "torch" in sys.modules)
"""


def test_an_ngram_run_is_loaded_and_measured_without_pytorch(runs) -> None:
    command = [sys.executable, "-c", WITHOUT_PYTORCH, str(runs["kn"])]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    measured, mean, loaded = printed.split()
    assert loaded == "False"
    assert 1 < float(measured) < 20
    assert float(measured) == pytest.approx(math.exp(float(mean)), rel=1e-12)
