from __future__ import annotations

import json

import numpy as np
import pytest
from fastapi.testclient import TestClient

import tslm
from tslm.cli import main
from tslm.inference.gating import observe
from tslm.serve.app import create_app
from tslm.serve.models import open_models


@pytest.mark.parametrize("sees", ["counts", "state", "both"])
def test_on_what_it_has_learnt_from_it_is_no_worse_than_one_weight(runs, sees) -> None:
    found = tslm.gate([runs["kn"], runs["tslm"]], sees=sees, hidden=8)
    ids = tslm.open_run(runs["kn"]).open_corpus().splits["valid"]
    assert found.fitted <= found.fixed * 1.001  # a part of no weight keeps a little
    assert found.halves <= found.fixed * 1.02
    assert tslm.evaluate(found.model, ids, reset=False).perplexity == pytest.approx(found.fitted, rel=1e-5)
    mixed = tslm.mix([runs["kn"], runs["tslm"]])
    assert tslm.evaluate(mixed, ids, reset=False).perplexity == pytest.approx(found.fixed, rel=1e-5)


def test_what_it_sees_does_not_depend_on_the_word_that_comes(runs) -> None:
    model = tslm.gate([runs["kn"], runs["tslm"]], sees="both", hidden=4).model
    ids = tslm.open_run(runs["kn"]).open_corpus().splits["valid"][:30].copy()
    known, _ = observe(model, ids)
    ids[-1] = (ids[-1] + 1) % len(model.vocabulary)
    changed, _ = observe(model, ids)
    np.testing.assert_array_equal(known, changed)


def test_the_command_makes_a_run_that_everything_opens(runs, tmp_path, capsys) -> None:
    out, parts = tmp_path / "both", [str(runs["kn"]), str(runs["tslm"])]
    command = ["compare", *parts, "--mix", "gated", "--out", str(out), "--resamples", "100"]
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["mix"]
    assert report["form"] == "gated"
    assert report["sees"] == "counts"
    assert report["summary"]["valid"]["perplexity"] == pytest.approx(report["fitted"], rel=1e-5)
    assert tslm.load(out).kind == "gated-mixture"
    for others in (["generate", str(out)], ["explain", str(out), "the cat sat"], ["eval", str(out)]):
        assert main(others) == 0
    assert len(tslm.generate(out, "the", number=3, length=6)) == 3
    with TestClient(create_app(open_models([out])), base_url="http://127.0.0.1") as client:
        scored = client.post("/v1/score", json={"text": "the cat sat"}).json()
        assert scored["perplexity"] == pytest.approx(tslm.score(out, "the cat sat").perplexity)
    assert main(["train", str(out / "recipe.toml"), "--out", str(out)]) == 0
    assert main(["train", str(out / "recipe.toml"), "--out", str(tmp_path / "none")]) == 2
    assert "--mix gated" in capsys.readouterr().err
    assert main(["compare", *parts, "--mix", "linear", "--sees", "both"]) == 2
    assert "--mix gated" in capsys.readouterr().err
    assert main(["compare", *parts, "--mix", "gated", "--sees", "both", "--resamples", "100"]) == 0
    assert "gate that sees both" in capsys.readouterr().out


def test_a_cached_run_is_gated_too(runs, tmp_path) -> None:
    tslm.with_cache(runs["gated"], tmp_path / "cached", size=30)
    found = tslm.gate([runs["kn"], tmp_path / "cached"], tmp_path / "all")
    assert tslm.open_run(tmp_path / "all").summary.valid.perplexity == pytest.approx(found.fitted, rel=1e-5)
