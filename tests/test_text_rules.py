"""A model reads raw text by its own rule, whoever asks: every way to score it gives the same number."""

from __future__ import annotations

import json
import shutil

import pytest
from fastapi.testclient import TestClient

import tslm
from tslm.cli import main
from tslm.serve.app import create_app
from tslm.serve.models import open_models

RAW = ["In the Beginning, God created the Heavens and the Earth.", "And God said: “Let there be Light!”"]
OWN = [
    "In the beginning, God said: let there be light!",
    "And the earth was dark; and God saw the light.",
    "God created the heavens and the earth in the beginning.",
    "“Let there be,” said God, and there was.",
]


@pytest.fixture(scope="module", params=["asv", "lower", "words", "bpe"])
def run(request, tmp_path_factory):
    """A run folder for each rule."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "asv":
        tslm.train("asv/kn3", folder / "run")
        return folder / "run"
    options = {
        "lower": "lower = true\n",
        "words": 'tokeniser = "words"\n',
        "bpe": 'tokeniser = "bpe"\nmax_vocabulary = 300\n',
    }
    (folder / "own.txt").write_text("\n".join(OWN * 30) + "\n", encoding="utf-8")
    (folder / "recipe.toml").write_text(
        f'[corpus]\nname = "own"\npath = ["{folder / "own.txt"}"]\n{options[request.param]}'
        '[model]\nkind = "ngram"\norder = 3\ndiscount_fallback = [0.5]\n'
    )
    tslm.train(folder / "recipe.toml", folder / "run")
    return folder / "run"


def test_every_way_to_score_a_raw_text_agrees(run, tmp_path, capsys) -> None:
    path = tmp_path / "raw.txt"
    path.write_text("\n".join(RAW) + "\n", encoding="utf-8")
    expected = tslm.score(run, RAW).total
    assert expected.tokens > 18
    found = {"evaluate": tslm.evaluate(run, path).nats}
    for command in (["eval", str(run), "--text", str(path)], ["score", str(run), str(path)]):
        assert main([*command, "--json"]) == 0
        last = json.loads(capsys.readouterr().out.splitlines()[-1])
        found[command[0]] = last["nats"] if "nats" in last else last["total"]["nats"]
    assert main(["compare", str(run), str(run), str(path), "--resamples", "5", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["same_vocabulary"]
    found["compare"] = report["models"][0]["nats"]
    with TestClient(create_app(open_models([run])), base_url="http://127.0.0.1") as client:
        answer = client.post("/v1/score", json={"text": "\n".join(RAW)}).json()
    found["server"] = -sum(sentence["log_probability"] for sentence in answer["sentences"])
    found["explain"] = -sum(tslm.explain(run, line, effects=False).log_probability for line in RAW)
    assert found == pytest.approx(dict.fromkeys(found, expected.nats), rel=1e-12)


def test_what_the_server_writes_for_each_word_is_the_line(run) -> None:
    model = tslm.load(run)
    with TestClient(create_app(open_models([run])), base_url="http://127.0.0.1") as client:
        answer = client.post("/v1/score", json={"text": "\n".join(RAW), "alternatives": 2}).json()
        body = {"prompt": "In the beginning,", "number": 2, "length": 12, "seed": 3}
        samples = client.post("/v1/generate", json=body).json()["samples"]
    for sentence, line in zip(answer["sentences"], RAW, strict=True):
        written = "".join(word["text"] for word in sentence["words"])
        assert written == model.rule.join([*model.rule.split(line), "<eos>"])
        assert all(entry["text"] is not None for word in sentence["words"] for entry in word["alternatives"])
    direct = tslm.generate(run, "In the beginning,", number=2, length=12, seed=3)
    assert ["In the beginning," + sample["text"] for sample in samples] == [sample.text for sample in direct]


def test_subwords_leave_nothing_unknown_and_are_measured_per_byte(run) -> None:
    scores = tslm.score(run, ["Zyzzyva quux, naïve!"])
    if tslm.load(run).rule.kind == "bpe":
        assert scores.total.unknown == 0
        assert tslm.evaluate(run, "Zyzzyva").unk_share == 0
    else:
        assert scores.total.unknown > 0
    summary = tslm.open_run(run).summary
    own = bool(tslm.open_run(run).recipe.corpus.path)
    assert (summary.test.bits_per_byte is not None) == own
    assert ("bits_per_byte" in summary.as_json()["test"]) == own


def test_a_folder_of_an_older_version_has_the_rule_of_its_corpus(run, tmp_path) -> None:
    old = tmp_path / "old"
    shutil.copytree(run, old)
    for later in ("text.json", "checksums.json"):  # older versions wrote neither
        (old / later).unlink()
    if tslm.load(run).rule.kind == "bpe":
        with pytest.raises(tslm.TslmError, match=r"text.json"):
            tslm.load(old)
    else:
        assert tslm.load(old).rule == tslm.load(run).rule


def test_a_run_is_not_resumed_with_another_rule(run) -> None:
    recipe = tslm.open_run(run).recipe
    assert tslm.train(recipe, run) == tslm.open_run(run).summary
    rule = json.loads((run / "text.json").read_text(encoding="utf-8"))
    changed = run.parent / "changed"
    shutil.copytree(run, changed)
    (changed / "checksums.json").unlink()
    (changed / "text.json").write_text(json.dumps(rule | {"lower": not rule["lower"]}), encoding="utf-8")
    with pytest.raises(tslm.TslmError, match="cut into words in another way"):
        tslm.train(recipe, changed)
