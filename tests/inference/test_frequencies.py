from __future__ import annotations

import json
import math

import numpy as np
import pytest

import tslm
from tslm.cli import main
from tslm.errors import TslmError
from tslm.inference.frequencies import EDGES


@pytest.mark.parametrize("name", ["kn", "tslm"])
def test_bands_are_the_tokens_by_their_count_in_train(runs, name) -> None:
    found = tslm.evaluate_frequencies(runs[name], split="valid")
    run = tslm.open_run(runs[name])
    corpus = run.open_corpus()
    counts = np.bincount(corpus.splits["train"], minlength=len(corpus.vocabulary))
    state, scored = run.model.start(1), []
    for token in corpus.splits["valid"].tolist():  # one by one, straight from the definition
        values, state = run.model.score(np.array([[token]]), state)
        scored.append((int(counts[token]), token, -float(values[0, 0])))
    assert sum(band.tokens for band in found.bands) == len(scored)
    for band in found.bands:
        own = [
            (token, nats) for count, token, nats in scored if band.least <= count <= (band.most or math.inf)
        ]
        nats = sum(nats for _, nats in own)
        assert band.tokens == len(own)
        assert band.words == len({token for token, _ in own})
        assert band.perplexity == pytest.approx(math.exp(nats / len(own)), rel=1e-5)
        assert band.bits == pytest.approx(nats / len(own) / math.log(2), rel=1e-5)
        assert band.part == pytest.approx(nats / sum(nats for *_, nats in scored), rel=1e-5)
    assert found.perplexity == pytest.approx(
        tslm.evaluate(runs[name], split="valid", reset=False).perplexity, rel=1e-6
    )


def test_bands_are_shown(runs) -> None:
    found = tslm.evaluate_frequencies(runs["kn"])
    assert "times in train" in repr(found)
    assert "<table" in found._repr_html_()
    described = found.as_json()
    assert [band["least"] for band in described["bands"]] == [band.least for band in found.bands]
    assert {band.least for band in found.bands} <= set(EDGES)


def test_a_model_without_a_run_has_no_training_text(runs) -> None:
    with pytest.raises(TslmError, match="run folder"):
        tslm.evaluate_frequencies(tslm.load(runs["kn"]))


def test_the_command_shows_bands_and_refuses_what_does_not_go_with_them(runs, capsys) -> None:
    assert main(["eval", str(runs["kn"]), "--by-frequency", "--split", "valid", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described == json.loads(json.dumps(tslm.evaluate_frequencies(runs["kn"], split="valid").as_json()))
    assert main(["eval", str(runs["kn"]), "--by-frequency"]) == 0
    assert "of all bits" in capsys.readouterr().out
    assert main(["eval", str(runs["kn"]), "--by-frequency", "--cache", "auto"]) == 2
    assert "leave the other options out" in capsys.readouterr().err
