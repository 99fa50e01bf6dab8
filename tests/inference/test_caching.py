from __future__ import annotations

import json

import numpy as np
import pytest
from fastapi.testclient import TestClient

import tslm
from tslm.cli import main
from tslm.inference import caching
from tslm.inference.caching import SHARPNESS, list_trials, tune_cache
from tslm.inference.interpolate import as_part
from tslm.models.cached import CachedConfig, CachedModel
from tslm.models.interpolation import Interpolation
from tslm.serve.app import create_app
from tslm.serve.models import open_models


@pytest.mark.parametrize("name", ["kn", "tslm"])
def test_the_tuned_cache_is_no_worse_than_its_neighbours(runs, name) -> None:
    run = tslm.open_run(runs[name])
    ids = run.open_corpus().splits["valid"]
    tuned = tune_cache(as_part(run), ids, list_trials(run.model, 50), window=64)
    best = tslm.evaluate(tuned, ids, reset=False).perplexity
    assert best <= tslm.evaluate(run.model, ids, reset=False).perplexity * (1 + 1e-9)
    for weight in (0.8 * tuned.config.weight, 1.2 * tuned.config.weight):
        config = CachedConfig(size=50, weight=weight, sharpness=tuned.config.sharpness)
        assert tslm.evaluate(CachedModel(config, tuned.part), ids, reset=False).perplexity >= best * (
            1 - 1e-6
        )


@pytest.mark.parametrize("name", ["kn", "tslm"])
def test_the_size_is_chosen_too_and_one_pass_says_what_many_would(runs, name, monkeypatch) -> None:
    monkeypatch.setattr(caching, "SIZES", (3, 20, 90))
    run = tslm.open_run(runs[name])
    ids, part = run.open_corpus().splits["valid"][:200], as_part(run)
    tried = list_trials(run.model, "auto")
    assert len(tried) == 3 * len(SHARPNESS if name == "tslm" else SHARPNESS[:1])
    model = CachedModel(CachedConfig(weight=0.0), part)
    whole, _ = model.read(ids[None], model.start(1), tried)
    for place, trial in enumerate(tried):
        single, _ = model.read(ids[None], model.start(1), (trial,))
        np.testing.assert_allclose(whole.recalled_SBT[place], single.recalled_SBT[0], rtol=1e-6)
        np.testing.assert_allclose(whole.likeness_SBT[place], single.likeness_SBT[0], rtol=1e-6, atol=1e-9)
    best = min(
        tslm.evaluate(tune_cache(part, ids, list_trials(run.model, size)), ids, reset=False).perplexity
        for size in (3, 20, 90)
    )
    auto = tune_cache(part, ids, tried, window=64)
    assert tslm.evaluate(auto, ids, reset=False).perplexity == pytest.approx(best, rel=1e-6)


def test_the_command_reports_both_and_keeps_a_run_that_everything_opens(runs, tmp_path, capsys) -> None:
    out = tmp_path / "cached"
    assert main(["eval", str(runs["tslm"]), "--cache", "30", "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["settings"]["size"] == 30
    found = {(row["model"], row["split"]): row["perplexity"] for row in report["results"]}
    assert found["cache", "valid"] <= found["plain", "valid"] * (1 + 1e-9)
    model = tslm.load(out)
    assert model.kind == "cache"
    assert tslm.open_run(out).summary.test.perplexity == pytest.approx(found["cache", "test"], rel=1e-6)
    assert tslm.evaluate(out, reset=False).perplexity == pytest.approx(found["cache", "test"], rel=1e-6)
    for command in (["generate", str(out)], ["explain", str(out), "the cat sat"]):
        assert main(command) == 0
    assert len(tslm.generate(out, "the", number=3, length=6)) == 3
    with TestClient(create_app(open_models([out])), base_url="http://127.0.0.1") as client:
        scored = client.post("/v1/score", json={"text": "the cat sat"}).json()
        assert scored["perplexity"] == pytest.approx(tslm.score(out, "the cat sat").perplexity)
        assert client.post("/v1/generate", json={"prompt": "the", "length": 5}).status_code == 200
        _check_what_the_cache_changes(client, tslm.load(runs["tslm"]), model)
    # As for every made model, its recipe opens what is there and says how to make what is not.
    assert main(["train", str(out / "recipe.toml"), "--out", str(out)]) == 0
    assert main(["train", str(out / "recipe.toml"), "--out", str(tmp_path / "none")]) == 2
    assert "--cache auto" in capsys.readouterr().err


def _check_what_the_cache_changes(client: TestClient, plain, cached, name: str = "cached") -> None:
    """Each word has its surprise without the cache too; carried, the lines are one text."""
    text = "the cat sat on the mat\nthe cat sat on the mat"
    ids = np.concatenate([cached.vocabulary.encode_line(line) for line in text.split("\n")])
    answer = client.post("/v1/score", json={"model": name, "text": text, "carry": True}).json()
    words = [word for sentence in answer["sentences"] for word in sentence["words"]]
    for key, model in (("surprise", cached), ("uncached", plain)):
        expected, _ = model.score(ids[None], model.start(1))
        found = [word[key] for word in words]
        assert found == pytest.approx((-expected[0] / np.log(2)).tolist(), rel=1e-4)
    again = client.post("/v1/score", json={"model": name, "text": text}).json()["sentences"]
    assert again[0]["log_probability"] == pytest.approx(again[1]["log_probability"])


@pytest.mark.parametrize("mix", [tslm.mix, tslm.gate])
def test_the_server_knows_a_cache_inside_a_mix(runs, tmp_path, mix) -> None:
    tslm.with_cache(runs["gated"], tmp_path / "cached", size=50)
    mix([runs["kn"], tmp_path / "cached"], tmp_path / "mixed")
    model = tslm.load(tmp_path / "mixed")
    silent = model.without_cache()
    assert [part.config.weight for part in model.parts if part.model.kind == "cache"] != [0.0]
    assert [part.model.config.weight for part in silent.parts if part.model.kind == "cache"] == [0.0]
    with TestClient(
        create_app(open_models([tmp_path / "mixed", runs["kn"]])), base_url="http://127.0.0.1"
    ) as client:
        cards = {card["id"]: card for card in client.get("/v1/models").json()["data"]}
        assert [cards[name]["cache"] for name in ("mixed", "kn")] == [True, False]
        _check_what_the_cache_changes(client, silent, model, "mixed")


def test_without_its_cache_a_mix_is_that_of_the_models_alone(runs, tmp_path) -> None:
    tslm.with_cache(runs["gated"], tmp_path / "cached", size=50)
    cached = tslm.mix([runs["kn"], tmp_path / "cached"])
    parts = [as_part(tslm.open_run(runs[name])) for name in ("kn", "gated")]
    plain = Interpolation(cached.config, parts)
    assert plain.without_cache() is None
    ids = tslm.open_run(runs["kn"]).open_corpus().splits["valid"][None, :60]
    silent = cached.without_cache()
    np.testing.assert_allclose(
        silent.score(ids, silent.start(1))[0], plain.score(ids, plain.start(1))[0], rtol=1e-5
    )


def test_it_says_what_does_not_go_together(runs, tmp_path, capsys) -> None:
    assert main(["eval", str(runs["kn"]), "--out", str(tmp_path / "x")]) == 2
    assert "--cache" in capsys.readouterr().err
    assert main(["eval", str(runs["kn"]), "--cache", "auto", "--text", "a.txt"]) == 2
    assert main(["eval", str(runs["kn"]), "--cache", "auto", "--split", "valid"]) == 2
    assert "leave --split out" in capsys.readouterr().err
    assert main(["eval", str(runs["kn"]), "--cache", "auto", "--dynamic"]) == 2
    assert main(["eval", str(runs["kn"]), "--dynamic"]) == 2
    assert "cannot learn while it reads" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["eval", str(runs["kn"]), "--cache", "0"])
    assert "neither auto nor a number" in capsys.readouterr().err
