from __future__ import annotations

import json

from tslm.cli import main


def test_compress_reports_what_it_costs_and_gains(runs, tmp_path, capsys) -> None:
    folder = str(tmp_path / "smaller")
    assert main(["compress", str(runs["gated"]), "--rank", "6", "--out", folder]) == 0
    shown = capsys.readouterr().out
    for word in ("valid perplexity", "parameters", "words/s", "perplexity +", "not trained on"):
        assert word in shown
    assert main(["eval", folder, "--split", "valid"]) == 0
    capsys.readouterr()
    other = str(tmp_path / "other")
    assert main(["compress", str(runs["tslm"]), "--rank", "6", "--out", other, "--tune", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["after"]["rank"] == 6
    assert report["before"]["rank"] == 12
    assert report["tuned"] == 1
    assert report["after"]["recurrent_parameters"] < report["before"]["recurrent_parameters"]


def test_the_same_call_leaves_what_was_trained_on(runs, tmp_path, capsys) -> None:
    out = tmp_path / "smaller"
    command = ["compress", str(runs["gated"]), "--rank", "6", "--out", str(out), "--tune", "1", "--json"]
    assert main(command) == 0
    first, weights = json.loads(capsys.readouterr().out), (out / "model.safetensors").read_bytes()
    assert main(command) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["after"]["valid"] == first["after"]["valid"]
    assert (out / "model.safetensors").read_bytes() == weights


def test_what_cannot_be_compressed_is_one_line(runs, tmp_path, capsys) -> None:
    out = str(tmp_path / "x")
    assert main(["compress", str(runs["kn"]), "--rank", "6", "--out", out]) == 2
    assert "no chain of tensors" in capsys.readouterr().err
    assert main(["compress", str(runs["gated"]), "--rank", "12", "--out", out]) == 2
    assert "expected 1 to 11" in capsys.readouterr().err
    assert main(["compress", str(runs["normalised"]), "--rank", "6", "--out", out]) == 2
    assert "normalised" in capsys.readouterr().err
