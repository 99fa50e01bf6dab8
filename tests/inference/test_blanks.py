from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

import tslm
from tslm.cli import main
from tslm.errors import CorpusError, NumberError, UnsupportedError
from tslm.inference.blanks import fill_by_scoring


def written_out(model, pattern, span="sentence", exclude=()) -> dict[tuple[int, ...], float]:
    eos = model.vocabulary.eos_id
    allowed = [word for word in range(len(model.vocabulary)) if word != eos and word not in exclude]
    found = {}
    for filling in itertools.product(allowed, repeat=sum(word is None for word in pattern)):
        rest = iter(filling)
        line = [next(rest) if word is None else word for word in pattern]
        scores, _ = model.score(np.array([[*line, eos] if span == "sentence" else line]), model.start(1))
        found[filling] = math.exp(float(scores.astype(np.float64).sum()))
    return found


@pytest.mark.parametrize("span", ["sentence", "prefix"])
def test_one_blank_is_exact_for_every_model(runs, span) -> None:
    model = tslm.load(runs["gated"])
    pattern = [
        *model.vocabulary.encode(["the", "cat"]).tolist(),
        None,
        *model.vocabulary.encode(["the"]).tolist(),
    ]
    expected = written_out(model, pattern, span, exclude=(3,))
    filled = fill_by_scoring(model, pattern, span=span, exclude=(3,))
    assert filled.log_probability == pytest.approx(math.log(sum(expected.values())), rel=1e-5)
    for (word,), probability in expected.items():
        share = probability / sum(expected.values())
        assert filled.posteriors[0, word] == pytest.approx(share, rel=1e-3, abs=1e-9)
    assert filled.effective is None
    assert filled.posteriors[0, 3] == 0


@pytest.mark.parametrize("words", [[None], [None, "the", "cat"], ["the", None], ["the", "cat", None, "the"]])
def test_what_stands_before_a_blank_is_read_once(runs, words, monkeypatch) -> None:
    model = tslm.load(runs["gated"])
    pattern = [None if word is None else int(model.vocabulary.encode([word])[0]) for word in words]
    monkeypatch.setattr("tslm.inference.blanks.AT_ONCE", 7)
    read = list[int]()
    score = model.score

    def counted(tokens_BT, state):
        read.append(tokens_BT.size)
        return score(tokens_BT, state)

    for span in ("sentence", "prefix"):
        expected = math.log(sum(written_out(model, pattern, span).values()))
        monkeypatch.setattr(model, "score", counted)
        read.clear()
        found = fill_by_scoring(model, pattern, span=span)
        monkeypatch.setattr(model, "score", score)
        assert found.log_probability == pytest.approx(expected, rel=1e-5)
        before, behind = words.index(None), len(words) - words.index(None) - (span == "prefix")
        assert sum(read) == before + (len(model.vocabulary) - 1) * behind


def test_an_exact_model_says_the_same_in_both_ways(runs) -> None:
    model = tslm.load(runs["kn"])
    pattern = [*model.vocabulary.encode(["the"]).tolist(), None, *model.vocabulary.encode(["sat"]).tolist()]
    assert fill_by_scoring(model, pattern, span="sentence").log_probability == pytest.approx(
        model.fill(pattern).log_probability, rel=1e-9
    )


@pytest.mark.parametrize("proposal", ["kn", "probabilistic"])
def test_several_blanks_come_near_all_fillings_written_out(runs, proposal) -> None:
    model, other = tslm.load(runs["gated"]), tslm.load(runs[proposal])
    pattern = [
        None,
        *model.vocabulary.encode(["cat", "sat"]).tolist(),
        None,
        *model.vocabulary.encode(["the"]).tolist(),
    ]
    expected = written_out(model, pattern, "prefix")
    total = sum(expected.values())
    filled = fill_by_scoring(model, pattern, span="prefix", proposal=other, draws=40_000)
    assert filled.log_probability == pytest.approx(math.log(total), abs=0.2)
    posteriors = np.zeros((2, len(model.vocabulary)))
    for filling, probability in expected.items():
        for blank, word in enumerate(filling):
            posteriors[blank, word] += probability / total
    np.testing.assert_allclose(filled.posteriors, posteriors, atol=0.08)
    assert filled.effective is not None
    assert 10 < filled.effective <= 40_000
    lines = filled.sample_lines(5, 1)
    assert all(line[1] == pattern[1] for line in lines)


def test_draws_from_the_model_itself_are_worth_their_number(runs) -> None:
    model = tslm.load(runs["kn"])
    pattern = [None, None]
    filled = fill_by_scoring(model, pattern, span="prefix", proposal=model, draws=500)
    found = model.fill(pattern, span="prefix").log_probability
    # Nothing follows the blanks: a draw weighs one or the other way the same, but for its own ones that end the line.
    assert filled.log_probability == pytest.approx(found, abs=0.01)
    assert filled.effective is not None
    assert 450 < filled.effective <= 500


def test_a_proposal_that_is_too_sure_hides_nothing(runs, tmp_path) -> None:
    counts = ['model.smoothing="none"', "model.order=3"]
    tslm.train(runs["kn"] / "recipe.toml", tmp_path / "sure", overrides=counts)
    proposal = tslm.load(tmp_path / "sure")
    model = tslm.load(runs["gated"])
    pattern = [*model.vocabulary.encode(["the", "old"]).tolist(), None, None]
    # Bare counts know one word after "the old", so all their draws begin with it.
    assert np.count_nonzero(proposal.fill(pattern, span="prefix").posteriors[0]) == 1
    expected = written_out(model, pattern, "prefix")
    filled = fill_by_scoring(model, pattern, span="prefix", proposal=proposal, draws=5000)
    assert len(set(filled.words_NK[:, 0])) > 1
    assert filled.log_probability == pytest.approx(math.log(sum(expected.values())), abs=4 * filled.error)
    assert filled.error < 0.1


def test_words_that_are_left_out_are_not_drawn(runs) -> None:
    model, proposal = tslm.load(runs["gated"]), tslm.load(runs["kn"])
    pattern = [None, *model.vocabulary.encode(["sat"]).tolist(), None]
    expected = written_out(model, pattern, "prefix", exclude=(3,))
    filled = fill_by_scoring(model, pattern, span="prefix", exclude=(3,), proposal=proposal, draws=20_000)
    assert 0 < filled.error < 0.1
    assert filled.log_probability == pytest.approx(math.log(sum(expected.values())), abs=4 * filled.error)
    assert not (filled.words_NK == 3).any()
    one = fill_by_scoring(model, pattern, span="prefix", proposal=proposal, draws=1)
    assert len(one.words_NK) == 1


def test_what_cannot_be_is_said(runs) -> None:
    model = tslm.load(runs["gated"])
    for proposal in (None, model):
        with pytest.raises(UnsupportedError, match="2 blanks; give an n-gram or probabilistic run"):
            fill_by_scoring(model, [None, None], span="sentence", proposal=proposal)
    with pytest.raises(UnsupportedError, match="reads every line from its beginning"):
        fill_by_scoring(model, [None], span="suffix")
    with pytest.raises(NumberError, match="draws 0"):
        fill_by_scoring(model, [None], span="sentence", draws=0)
    filled = fill_by_scoring(model, [None], span="prefix")
    with pytest.raises(UnsupportedError, match="go on behind"):
        filled.sample_lines(1, 1, 5)
    with pytest.raises(NumberError, match="seed -1"):
        filled.sample(1, -1)
    with pytest.raises(CorpusError, match="no words"):
        tslm.fill(runs["gated"], " ")


def test_the_command(runs, capsys) -> None:
    arguments = [
        "fill",
        str(runs["gated"]),
        "the ? sat on the ?",
        "--proposal",
        str(runs["kn"]),
        "--draws",
        "200",
    ]
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["exact"] is False
    assert told["effective"] > 1
    assert main(arguments) == 0
    assert "worth" in capsys.readouterr().out
    assert main(["fill", str(runs["lstm"]), "the ? sat on the mat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exact"] is True
