"""A sum of trained runs is a run like any other, and predicts what their log-linear mix does."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import tslm
from tslm.cli import main
from tslm.errors import InputError, NumberError, RunError, UnsupportedError
from tslm.evaluation.perplexity import evaluate
from tslm.inference.add import tune_weights
from tslm.models.recurrent.addition import add_models
from tslm.runs.folder import keep
from tslm.runs.train import train

SENTENCE = "the old man saw the river"


@pytest.fixture(scope="session")
def second(runs):
    """The gated model of another seed and another size."""
    folder = runs["gated"].parent / "gated-2"
    train(
        runs["gated"].parent / "gated.toml",
        folder,
        overrides=["train.seed=2", "model.rank=9"],
    )
    return folder


@pytest.fixture(scope="session")
def summed(runs, second, tmp_path_factory):
    return tslm.add([runs["gated"], second], tmp_path_factory.mktemp("add") / "sum")


def test_the_sum_is_as_good_as_the_mix_and_better_than_its_terms(runs, second, summed) -> None:
    weights = tuple(term.weight for term in summed.terms)
    mixed = tslm.mix([runs["gated"], second], form="log-linear")
    # The whole of valid is shorter than what is tuned on, so the weights are those of the mix.
    np.testing.assert_allclose(weights, mixed.config.weights, atol=1e-3)
    own, expected = (tslm.score(model, SENTENCE).log_probabilities for model in (summed.folder, mixed))
    np.testing.assert_allclose(own, expected, atol=1e-2)
    assert summed.valid < min(term.valid for term in summed.terms)
    summary = tslm.open_run(summed.folder).summary
    assert summary.valid.perplexity == summed.valid
    assert summary.test.perplexity == summed.test
    assert summary.parameters == summed.parameters
    assert summary.parts == ("recurrent", "recurrent")
    assert summary.training.epochs == 2 * tslm.open_run(second).summary.training.epochs


def test_the_sum_is_explained_exactly_compressed_and_adapted_like_any_exact_model(summed, tmp_path) -> None:
    explanation = tslm.explain(summed.folder, SENTENCE)
    assert explanation.effects.exact
    assert explanation.contributions.exact
    smaller = tslm.compress(summed.folder, tmp_path / "smaller", rank=12)
    assert smaller.before.rank == summed.rank == 21
    assert smaller.after.rank == 12
    tslm.adapt(summed.folder, [SENTENCE] * 200, tmp_path / "adapted", epochs=1)
    assert tslm.load(tmp_path / "adapted").config.rank == 21


def test_the_folder_tells_its_terms_and_what_is_kept_does_too(summed, runs, second, tmp_path) -> None:
    told = json.loads((summed.folder / "addition.json").read_text())
    # By their names alone: where they lay is nobody's business but the report's.
    assert told["folder"] == summed.folder.name
    assert [term["folder"] for term in told["terms"]] == [runs["gated"].name, second.name]
    assert [term.folder for term in summed.terms] == [str(runs["gated"]), str(second)]
    assert [term["weight"] for term in told["terms"]] == [term.weight for term in summed.terms]
    assert json.loads((keep(summed.folder, tmp_path) / "addition.json").read_text()) == told


def test_tuning_says_how_far_it_is_and_empty_texts_are_refused(runs, second) -> None:
    models, steps = [tslm.load(runs["gated"]), tslm.load(second)], []
    ids = tslm.open_run(second).open_corpus().splits["valid"]
    weights = tune_weights(models, ids, steps.append)
    assert sum(steps) % len(ids) == 0
    assert sum(steps) >= len(ids)
    assert min(weights) >= 0
    with pytest.raises(NumberError, match="empty"):
        tune_weights(models, ids[:0])


def test_no_weights_are_better_than_the_tuned_ones(runs, second) -> None:
    models = [tslm.load(runs["gated"]), tslm.load(second)]
    ids = tslm.open_run(second).open_corpus().splits["valid"]
    best = tune_weights(models, ids)

    def loss(weights: tuple[float, ...]) -> float:
        return evaluate(add_models(models, weights), ids, reset=False).nats

    for change in ((0.03, 0.0), (-0.03, 0.0), (0.0, 0.03), (0.0, -0.03), (0.03, -0.03)):
        assert loss(best) < loss(tuple(weight + more for weight, more in zip(best, change, strict=True)))
    # The same model twice has no one best pair of weights, but a best sum of them.
    twice = tune_weights([models[0], models[0]], ids)
    assert sum(twice) == pytest.approx(tune_weights(models[:1], ids)[0], abs=1e-3)


def test_a_term_that_does_not_help_is_left_out_and_spoils_nothing(runs, second, tmp_path) -> None:
    models = [tslm.load(runs["gated"]), tslm.load(second), tslm.load(second)]
    with torch.no_grad():  # what the third finds likely is unlikely
        weight_MR = models[2].head.projection.weight
        noise_MR = torch.randn(weight_MR.shape, generator=torch.Generator().manual_seed(1))
        weight_MR.neg_().add_(noise_MR, alpha=0.1 * float(weight_MR.std()))
    ids = tslm.open_run(second).open_corpus().splits["valid"]
    weights = tune_weights(models, ids)
    assert weights[2] == 0
    np.testing.assert_allclose(weights[:2], tune_weights(models[:2], ids), atol=1e-4)
    report = tslm.add([runs["gated"], second], tmp_path / "sum", weights=[0.0, 0.9])
    assert [term.weight for term in report.terms] == [0.0, 0.9]
    assert report.rank == tslm.load(report.folder).config.rank == 9


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_sum_of_a_trial_is_a_trial(runs, second, order, tmp_path) -> None:
    trial = tmp_path / "trial"
    overrides = ["train.seed=3", "train.test=false", "train.epochs=1"]
    train(runs["gated"].parent / "gated.toml", trial, overrides=overrides)
    terms = [(second, trial)[place] for place in order]
    report = tslm.add(terms, tmp_path / "sum", weights=[0.5, 0.5])
    assert report.test is None
    summary = tslm.open_run(report.folder).summary
    assert summary.test is None
    assert not summary.recipe.train.test


def test_without_the_corpus_it_says_what_the_corpus_is_for(runs, second, tmp_path, monkeypatch) -> None:
    def away(*_, **__):
        raise RunError("the corpus of run is not here")

    monkeypatch.setattr("tslm.runs.run.Run.open_corpus", away)
    with pytest.raises(RunError, match="measured on what its first term was measured on, but the corpus"):
        tslm.add([runs["gated"], second], tmp_path / "sum", weights=[0.5, 0.5])
    assert not (tmp_path / "sum").exists()


def test_given_weights_are_taken(runs, second, tmp_path) -> None:
    report = tslm.add([runs["gated"], second], tmp_path / "one", weights=[1.0, 0.0])
    alone = tslm.evaluate(runs["gated"], split="valid").perplexity
    assert report.valid == pytest.approx(alone, rel=1e-4)


def test_what_cannot_be_added_leaves_no_folder(runs, second, tmp_path) -> None:
    out = tmp_path / "sum"
    with pytest.raises(UnsupportedError, match="kind 'ngram' has no logits to add"):
        tslm.add([runs["kn"], second], out)
    with pytest.raises(UnsupportedError, match="built differently"):
        tslm.add([runs["gated"], runs["lstm"]], out)
    with pytest.raises(UnsupportedError, match="normalised"):
        tslm.add([runs["normalised"], runs["normalised"]], out)
    with pytest.raises(InputError, match="two or more"):
        tslm.add([runs["gated"]], out)
    with pytest.raises(NumberError, match="3 weights for 2 models"):
        tslm.add([runs["gated"], second], out, weights=[1.0, 1.0, 1.0])
    with pytest.raises(NumberError, match="one of them not zero"):
        tslm.add([runs["gated"], second], out, weights=[0.0, 0.0])
    with pytest.raises(NumberError, match="too large"):
        tslm.add([runs["gated"], second], out, weights=[1e39, 1.0])
    with pytest.raises(NumberError, match="finite"):
        tslm.add([runs["gated"], second], out, weights=[1.0, float("nan")])
    with pytest.raises(RunError, match="leave one of them out"):
        tslm.add([runs["gated"], second], out, weights=[1.0, 1.0], tune=SENTENCE)
    assert not out.exists()
    with pytest.raises(RunError, match="holds a run already"):
        tslm.add([runs["gated"], second], runs["lstm"])
    with pytest.raises(RunError, match="one of the models itself"):
        tslm.add([runs["gated"], second], second)


def test_the_command_prints_a_table_or_json(runs, second, tmp_path, capsys) -> None:
    command = ["add", str(runs["gated"]), str(second), "--out", str(tmp_path / "sum")]
    assert main([*command, "--weights", "0.5", "0.6"]) == 0
    shown = capsys.readouterr().out
    for word in ("weight", "0.600", "sum", "holds the sum"):
        assert word in shown
    assert main([*command[:-1], str(tmp_path / "other"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rank"] == 21
    assert len(report["terms"]) == 2
    assert main(["eval", str(tmp_path / "other"), "--split", "valid"]) == 0
    assert main([*command, "--weights", "0.5"]) == 2
    assert "1 weight for 2 models" in capsys.readouterr().err
