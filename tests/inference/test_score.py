from __future__ import annotations

import gzip
import io
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tslm
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError
from tslm.evaluation.scoring import group_by_length, score_each, score_text, split_lines
from tslm.inference import inputs, score
from tslm.inference.inputs import read_lines
from tslm.inference.score import score_blocks, score_lines
from tslm.inference.scores import Total, describe_sentence
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.model import RecurrentModel

LINES = ["the cat sat on the mat", "", "a zebra saw the river", "the dog", "   a man liked a dog ", "<eos>"]


def score_slowly(model, lines, carry=False):
    state = model.start(1)
    for line in lines:
        if not carry:
            state = model.start(1)
        scores = []
        for token in model.vocabulary.encode([*line.split(), "<eos>"]).tolist():
            scores.append(float(model.predict(state)[0, token]))
            _, state = model.score(np.array([[token]]), state)
        yield scores


@pytest.mark.parametrize("name", ["kn", "tslm", "lstm"])
@pytest.mark.parametrize("carry", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1), (7, 5), (10_000, 10_000)])
def test_equals_prediction_word_by_word_in_the_order_given(runs, name, carry, sizes) -> None:
    model = tslm.load(runs[name])
    scored = list(score_lines(model, LINES, carry=carry, buffer_tokens=sizes[0], batch_tokens=sizes[1]))
    assert [sentence.words[:-1] for sentence in scored] == [tuple(line.split()) for line in LINES]
    for sentence, expected in zip(scored, score_slowly(model, LINES, carry), strict=True):
        np.testing.assert_allclose(sentence.log_probabilities, expected, rtol=1e-4, atol=1e-5)
        assert sentence.log_probability == pytest.approx(sum(expected), rel=1e-4)


def test_unknown_words_are_marked_and_perplexity_is_that_of_evaluation(runs) -> None:
    model = tslm.load(runs["kn"])
    scored = list(score_lines(model, LINES))
    assert scored[2].known.tolist() == [True, False, True, True, True, True]
    assert scored[2].unknown == 1
    total = Total()
    for sentence in scored:
        total.add(sentence)
    ids = np.concatenate([model.vocabulary.encode_line(line) for line in LINES])
    expected = tslm.evaluate(model, ids)
    assert total.perplexity == pytest.approx(expected.perplexity_reset, rel=1e-12)
    assert (total.tokens, total.lines, total.unknown) == (len(ids), len(LINES), 1)


def test_text_without_end_is_scored_as_it_comes(runs) -> None:
    model = tslm.load(runs["kn"])
    taken = 0

    def endless():
        nonlocal taken
        for line in itertools.cycle(LINES[:1]):
            taken += 1
            yield line

    first = list(itertools.islice(score_lines(model, endless(), buffer_tokens=100), 20))
    assert len(first) == 20
    assert taken <= 30  # 100 tokens are 15 lines: two buffers' worth


def test_a_long_line_is_read_in_windows(runs) -> None:
    model = tslm.load(runs["tslm"])
    line = " ".join(["the cat sat on the mat"] * 50)
    widths = []
    original = model.score

    def watch(tokens_BT, state):
        widths.append(tokens_BT.size)
        return original(tokens_BT, state)

    model.score = watch  # type: ignore[method-assign]
    [windowed] = score_lines(model, [line], batch_tokens=32)
    assert max(widths) <= 32
    del model.score
    [whole] = score_lines(model, [line])
    np.testing.assert_allclose(windowed.log_probabilities, whole.log_probabilities, atol=1e-4)


def test_ids_of_running_text(runs) -> None:
    model = tslm.load(runs["tslm"])
    ids = np.concatenate([model.vocabulary.encode_line(line) for line in LINES])
    ticks: list[int] = []
    scores, _ = score_text(model, ids, window=5, tick=ticks.append)
    expected = np.concatenate([s.log_probabilities for s in score_lines(model, LINES, carry=True)])
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert sum(ticks) == len(ids)


def test_impossible_and_unknown_words(tmp_path) -> None:
    vocabulary = Vocabulary(("a", "<eos>", "b"))
    model = RecurrentModel(RecurrentConfig(rank=4, embedding=4), vocabulary).eval()
    with pytest.raises(CorpusError, match="line 2: the word 'zebra'"):
        list(score_lines(model, ["a b", "a zebra"]))
    with torch.no_grad():
        model.bias[2] = -math.inf
    [sentence] = score_lines(model, ["a b"])
    report = describe_sentence(sentence, tokens=True)
    assert report["log_probability"] is None
    assert report["perplexity"] is None
    assert report["words"][1] == {"word": "b", "log_probability": None, "unknown": False}


def test_lines_of_files_and_of_standard_input(tmp_path, monkeypatch) -> None:
    # Longer than the blocks that files are read in, so that lines are cut and joined; the last has no end.
    lines = [f"word{number} " * (number % 50) for number in range(4000)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\nlast one")
    with gzip.open(tmp_path / "b.gz", "wt") as handle:
        handle.write("zipped\n\n")
    found = list(read_lines([tmp_path / "a.txt", tmp_path / "b.gz"]))
    assert [line.split() for line in found] == [line.split() for line in [*lines, "last one", "zipped", ""]]
    monkeypatch.setattr(inputs.sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"x y\n\nz")))
    assert list(read_lines(["-"])) == ["x y", "", "z"]
    monkeypatch.setattr(inputs.sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"good\n\xff\n")))
    with pytest.raises(CorpusError, match="line 2 of standard input is not UTF-8"):
        list(read_lines(["-"]))
    with pytest.raises(CorpusError, match="cannot read"):
        list(read_lines([tmp_path / "missing"]))


def test_endless_lines_are_refused(tmp_path, monkeypatch, runs) -> None:
    monkeypatch.setattr(score, "LONGEST_LINE", 10)
    monkeypatch.setattr(inputs, "LONGEST_LINE", 10)
    with pytest.raises(CorpusError, match="line 2 has 11 words"):
        list(score_lines(tslm.load(runs["kn"]), ["a", "a " * 11]))
    with pytest.raises(CorpusError, match="line 1 has 11 words"):
        list(score_lines(tslm.load(runs["kn"]), ["a\t" * 11]))
    assert len(list(score_lines(tslm.load(runs["kn"]), ["a" + " " * 30 + "b"]))) == 1  # two words, far apart
    (tmp_path / "long.txt").write_text("word " * 1000)
    with pytest.raises(CorpusError, match="one sentence per line"):
        list(read_lines([tmp_path / "long.txt"]))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 60))
def test_groups_hold_every_line_once(lengths, batch_tokens) -> None:
    groups = list(group_by_length(np.array(lengths), batch_tokens))
    assert sorted(place for group in groups for place in group.tolist()) == list(range(len(lengths)))
    for group in groups:
        widest = max(lengths[place] for place in group.tolist())
        assert lengths[group[-1]] == widest
        assert len(group) == 1 or widest * len(group) <= batch_tokens


def test_lines_are_one_running_text_to_a_model_that_forgets_them(runs) -> None:
    model = tslm.load(runs["kn"])
    shapes = []
    original = model.score

    def watch(tokens_BT, state):
        shapes.append(tokens_BT.shape)
        return original(tokens_BT, state)

    model.score = watch  # type: ignore[method-assign]
    lines = [*LINES, "a zebra", "the\nriver"]  # a marker and a newline within a line do not part it
    [block] = score_blocks(model, lines)
    assert shapes == [(1, len(block.words))]
    assert block.lengths.tolist() == [len(line.split()) + 1 for line in lines]
    assert block.unknown.tolist() == [sentence.unknown for sentence in block.sentences()]
    expected = list(score_slowly(model, lines))
    np.testing.assert_allclose(block.log_probabilities, np.concatenate(expected), rtol=1e-12)
    np.testing.assert_allclose(block.line_log_probabilities, list(map(sum, expected)), rtol=1e-12)
    assert block.perplexities == [sentence.perplexity for sentence in block.sentences()]


def test_the_reset_perplexity_of_a_model_that_forgets_lines_is_what_its_lines_have(runs) -> None:
    model = tslm.load(runs["kn"])
    ids = np.concatenate([model.vocabulary.encode_line(line) for line in LINES])
    nats = -sum(
        scores.sum()
        for _, each in score_each(model, split_lines(ids, model.vocabulary.eos_id), batch_tokens=7)
        for scores in each
    )
    assert tslm.evaluate(model, ids).perplexity_reset == pytest.approx(math.exp(nats / len(ids)), rel=1e-12)
