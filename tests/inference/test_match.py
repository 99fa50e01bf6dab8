from __future__ import annotations

import json
import math

import numpy as np
import pytest

import tslm
from tslm.cli import main
from tslm.errors import CorpusError, NumberError, UnsupportedError
from tslm.inference.guiding import GuidedModel


def test_a_sentence_without_blanks_has_its_own_probability(runs) -> None:
    found = tslm.match(runs["probabilistic"], "the cat sat on the mat")
    scored = tslm.score(runs["probabilistic"], "the cat sat on the mat")
    assert found.log_probability == pytest.approx(scored[0].log_probability, rel=1e-5)
    assert found.length == pytest.approx(6)


def test_what_excludes_each_other_adds_up(runs) -> None:
    run = runs["probabilistic"]
    every = tslm.match(run)
    having = tslm.match(run, contain=["dog"])
    lacking = tslm.match(run, avoid=["dog"])
    assert having.probability + lacking.probability == pytest.approx(every.probability, rel=1e-5)
    assert every.probability + every.beyond == pytest.approx(1, rel=1e-5)
    assert sum(every.lengths) == pytest.approx(every.probability, rel=1e-5)
    one = tslm.match(run, "the ? ...")
    parts = sum(tslm.match(run, f"the {word} ...").probability for word in ("cat", "dog", "old"))
    assert parts < one.probability
    assert tslm.fill(run, "the ? sat", span="sentence").log_probability == pytest.approx(
        tslm.match(run, "the ? sat").log_probability, rel=1e-5
    )


def test_samples_are_like_what_was_asked_for(runs) -> None:
    found = tslm.match(runs["probabilistic"], "(the|a) ? ...", contain=["river"], longest=9, samples=20)
    assert len(found.samples) == 20
    for line in found.samples:
        words = line.split()
        assert words[0] in ("the", "a")
        assert "river" in words
        assert len(words) <= 9


def test_any_model_of_the_same_words_is_guided(runs) -> None:
    constraint = tslm.Constraint(contain=("river",), avoid=("dog",), shortest=4, longest=8)
    written = tslm.generate(
        runs["gated"], "the woman", number=12, constraint=constraint, guide=runs["probabilistic"]
    )
    for sample in written:
        words = sample.text.split()
        assert words[:2] == ["the", "woman"]
        assert "river" in words
        assert "dog" not in words
        assert 4 <= len(words) <= 8
        assert sample.reason == "stop"


def test_a_probabilistic_model_is_guided_exactly(runs) -> None:
    """The guided next-word distribution is p(word, constraint | prefix) / p(constraint | prefix), summed by itself."""
    run = runs["probabilistic"]
    model = tslm.load(run)
    guided = GuidedModel(model, tslm.Constraint(contain=("river",), longest=6), model)
    state = guided.start(1)
    predicted = guided.predict(state)[0]
    assert np.exp(predicted).sum() == pytest.approx(1, rel=1e-6)
    whole = tslm.match(run, contain=["river"], longest=6).log_probability
    for word in ("the", "a", "river"):
        part = tslm.match(run, f"{word} ...", contain=["river"], longest=6).log_probability
        assert predicted[model.vocabulary.encode([word])[0]] == pytest.approx(part - whole, abs=1e-4)
    assert predicted[model.vocabulary.eos_id] == -math.inf


def test_what_cannot_be_is_said(runs) -> None:
    with pytest.raises(UnsupportedError, match="kind 'recurrent' cannot sum over all sentences"):
        tslm.match(runs["gated"], "the ...")
    with pytest.raises(CorpusError, match="does not know the word 'zebra'"):
        tslm.match(runs["probabilistic"], "zebra")
    with pytest.raises(CorpusError, match="empty phrase"):
        tslm.match(runs["probabilistic"], contain=[" "])
    with pytest.raises(NumberError, match="shortest"):
        tslm.match(runs["probabilistic"], shortest=9, longest=3)
    with pytest.raises(UnsupportedError, match="kind 'recurrent' cannot tell"):
        tslm.generate(runs["gated"], constraint=tslm.Constraint(contain=("dog",)))
    with pytest.raises(CorpusError, match="no sentence meets"):
        tslm.generate(runs["probabilistic"], constraint=tslm.Constraint(contain=("dog",), avoid=("dog",)))
    with pytest.raises(NumberError, match="cannot meet the constraint any more"):
        tslm.generate(runs["probabilistic"], "the dog", constraint=tslm.Constraint(avoid=("dog",)))
    assert tslm.match(runs["probabilistic"], contain=["dog"], avoid=["dog"]).probability == 0


def test_the_commands(runs, capsys) -> None:
    run = str(runs["probabilistic"])
    assert main(["match", run, "the ? ...", "--must-contain", "mat", "--sample", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert 0 < told["probability"] < 1
    assert len(told["samples"]) == 2
    assert main(["match", run, "--avoid", "dog"]) == 0
    assert "ln p" in capsys.readouterr().out
    guide = ["--guide", run, "--must-contain", "the tree", "--longest", "8"]
    assert main(["generate", str(runs["lstm"]), "--number", "3", *guide]) == 0
    assert all("the tree" in line for line in capsys.readouterr().out.splitlines())
    assert main(["generate", run, "--pattern", "a man ...", "--longest", "8"]) == 0
    assert capsys.readouterr().out.startswith("a man")
    assert main(["generate", run, "--guide", run]) == 2
    assert main(["generate", run, "--go-on", "--longest", "8"]) == 2
