from __future__ import annotations

import numpy as np
import pytest

import tslm
from tslm.errors import NumberError
from tslm.inference.interpolate import as_part, tune_linear, tune_mix
from tslm.models.interpolation import Interpolation, InterpolationConfig
from tslm.runs.made import save_model
from tslm.runs.run import open_run


@pytest.fixture(scope="module")
def corpus(runs):
    return open_run(runs["kn"]).open_corpus()


@pytest.fixture(scope="module")
def parts(runs):
    return [as_part(open_run(runs["kn"])), as_part(open_run(runs["tslm"]))]


def test_expectation_maximisation_finds_the_best_weights() -> None:
    random = np.random.default_rng(0)
    log_KN = np.log(random.dirichlet([1, 1, 1], 500)).T
    weights = tune_linear(log_KN)
    assert weights.sum() == pytest.approx(1)

    def gain(weights):
        return np.log(weights @ np.exp(log_KN)).mean()

    for _ in range(200):
        assert gain(random.dirichlet([1, 1, 1])) <= gain(weights) + 1e-9


def test_a_useless_part_gets_no_weight_and_an_impossible_text_is_refused() -> None:
    log_KN = np.log(np.array([[0.5] * 100, [0.1] * 100]))
    assert tune_linear(log_KN) == pytest.approx([1, 0], abs=1e-6)
    with pytest.raises(NumberError, match="impossible"):
        tune_linear(np.array([[-np.inf, 0.0], [-np.inf, -1.0]]))


@pytest.mark.parametrize("form", ["linear", "log-linear"])
def test_no_other_weights_are_better_on_the_text(form, parts, corpus) -> None:
    ids = corpus.splits["valid"]
    mix = tune_mix(form, parts, ids)
    best = tslm.evaluate(mix, ids, reset=False).nats
    for part in parts:
        assert best < tslm.evaluate(part.model, ids, reset=False).nats + 1e-6
    first, second = mix.config.weights
    # The log-linear weights are tuned on columns, whose first words see another history.
    slack = 0.0 if form == "linear" else 0.05
    for step in (-0.1, 0.1):
        moved = (first + step, second - step)
        if min(moved) >= 0:
            near = Interpolation(InterpolationConfig(form=form, weights=moved), parts)
            assert tslm.evaluate(near, ids, reset=False).nats > best - slack


def test_a_mix_is_a_run_of_its_own(tmp_path, runs, parts, corpus) -> None:
    mix = tune_mix("linear", parts, corpus.splits["valid"])
    folder = tmp_path / "mix"
    summary = save_model(mix, folder, open_run(runs["kn"]), corpus, parts=["ngram", "recurrent"])
    opened = tslm.load(folder)
    again = tslm.evaluate(opened, corpus.splits["test"])
    assert again.perplexity == pytest.approx(summary.test.perplexity, rel=1e-9)
    assert opened.kind == "interpolation"
