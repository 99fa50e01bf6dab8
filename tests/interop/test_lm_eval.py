"""The real lm-evaluation-harness scores our runs: its figures are those of ``tslm score`` and ``tslm eval``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tslm

if find_spec("lm_eval") is None:
    pytest.skip("lm-eval is not installed: pip install 'tslm[lm-eval]'", allow_module_level=True)

# The harness and what it brings warn of their own affairs.
pytestmark = pytest.mark.filterwarnings("ignore")

ROOT = Path(__file__).parents[2]
VERSES = [json.loads(line) for line in (ROOT / "examples/lm-eval/verses.jsonl").read_text().splitlines()]
TEXTS = [verse["text"] for verse in VERSES]
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@pytest.fixture(scope="module")
def model_class():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tslm.interop.lm_eval import TslmLM
    return TslmLM


def asked(*arguments):
    return SimpleNamespace(args=arguments)


@pytest.mark.parametrize("name", ["kn", "gated", "lstm"])
def test_the_three_questions(runs, name, model_class) -> None:
    model, ours = model_class(run=str(runs[name])), tslm.load(runs[name])
    lines = ["the old man saw the river", "a woman sat on the zebra"]
    rolled = model.loglikelihood_rolling([asked(f"{line}\n") for line in lines])
    scores = tslm.score(ours, lines)
    np.testing.assert_allclose(rolled, [line.log_probability for line in scores], rtol=1e-6)
    # A continuation and the words before it, together, are the text.
    begun = model.loglikelihood_rolling([asked("the old man")])[0]
    more, greedy = model.loglikelihood([asked("the old man", " saw the river\n")])[0]
    assert begun + more == pytest.approx(rolled[0], rel=1e-6)
    best = str(tslm.generate(ours, "the old man", length=3, temperature=0.0)[0])
    assert model.loglikelihood([asked("the old man", best.removeprefix("the old man"))])[0][1]
    assert greedy == (best == "the old man saw the river")
    # Nothing before; and a word that goes on.
    assert model.loglikelihood([asked("", "the")])[0][0] == pytest.approx(
        ours.predict(ours.start(1))[0][ours.vocabulary.ids["the"]]
    )
    assert model.loglikelihood([asked("the do", "g")]) == model.loglikelihood([asked("the", " dog")])
    written = model.generate_until([asked("the old man", {"until": ["\n"], "max_gen_toks": 3})])
    assert "the old man" + written[0] == best
    drawn = {"until": [], "max_gen_toks": 5, "do_sample": True, "temperature": 0.8, "top_k": 5}
    assert model.generate_until([asked("a", drawn)]) == model.generate_until([asked("a", drawn)])


def test_the_harness_itself(runs, model_class) -> None:
    import lm_eval
    from lm_eval.tasks import TaskManager

    names = ["verses_perplexity", "verses_choice", "verses_ending"]
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        found = lm_eval.simple_evaluate(
            model="tslm",
            model_args={"run": str(runs["gated"])},
            tasks=names,
            task_manager=TaskManager(include_path="examples/lm-eval", include_defaults=False),
            bootstrap_iters=0,
        )["results"]
    finally:
        os.chdir(before)
    scores = tslm.score(runs["gated"], [text.removesuffix("\n") for text in TEXTS])
    nats = -scores.log_probabilities.sum()
    measured = found["verses_perplexity"]
    # Our words are those between spaces here, and a line's end is one for both: it is our perplexity.
    assert measured["word_perplexity,none"] == pytest.approx(scores.perplexity, rel=1e-6)
    bytes_ = sum(len(text.encode()) for text in TEXTS)
    assert measured["bits_per_byte,none"] == pytest.approx(nats / bytes_ / np.log(2), rel=1e-6)
    assert 0 <= found["verses_choice"]["acc,none"] <= 1
    assert 0 <= found["verses_ending"]["exact_match,none"] <= 1


def test_the_command_line_with_an_n_gram_model(runs, tmp_path) -> None:
    command = [sys.executable, "-m", "tslm.interop.lm_eval", "run", "--model", "tslm"]
    command += ["--model_args", f"run={runs['kn']}", "--tasks", "verses_perplexity"]
    command += ["--include_path", "examples/lm-eval", "--output_path", str(tmp_path)]
    environment = {**os.environ, **OFFLINE}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.rglob("results*.json")
    found = json.loads(path.read_text())["results"]["verses_perplexity"]
    evaluation = tslm.evaluate(runs["kn"], [text.removesuffix("\n") for text in TEXTS])
    assert evaluation.perplexity_reset is not None
    assert found["word_perplexity,none"] == pytest.approx(evaluation.perplexity_reset, rel=1e-6)


def test_the_command_line_says_in_a_line_what_is_wrong(tmp_path) -> None:
    command = [sys.executable, "-m", "tslm.interop.lm_eval", "run", "--model", "tslm"]
    command += ["--model_args", f"run={tmp_path / 'nowhere'}", "--tasks", "verses_perplexity"]
    command += ["--include_path", "examples/lm-eval"]
    environment = {**os.environ, **OFFLINE}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "tslm: no run folder" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
