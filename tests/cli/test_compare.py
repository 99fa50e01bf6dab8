from __future__ import annotations

import json
import shutil

import pytest

import tslm
from tslm.cli import main


def test_compares_on_the_test_split(runs, capsys) -> None:
    assert main(["compare", str(runs["kn"]), str(runs["lstm"]), "--json", "--resamples", "100"]) == 0
    report = json.loads(capsys.readouterr().out)
    for entry, name in zip(report["models"], ("kn", "lstm"), strict=True):
        summary = json.loads((runs[name] / "summary.json").read_text())
        assert entry["perplexity"] == pytest.approx(summary["test"]["perplexity"], rel=1e-5)
    assert report["differences"][0]["places"]["first"]


def test_models_that_come_trained_are_no_text_files(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "asv/kn5", "asv/kn5", "--json", "--resamples", "100", "--split", "valid"]) == 0
    first, second = json.loads(capsys.readouterr().out)["models"]
    assert first["perplexity"] == second["perplexity"]


@pytest.mark.parametrize("form", ["linear", "log-linear"])
def test_a_mix_is_tuned_saved_and_better(runs, tmp_path, capsys, form) -> None:
    out = tmp_path / "mix"
    command = [
        "compare",
        str(runs["kn"]),
        str(runs["tslm"]),
        "--mix",
        form,
        "--out",
        str(out),
        "--split",
        "valid",
    ]
    assert main([*command, "--json", "--resamples", "100"]) == 0
    report = json.loads(capsys.readouterr().out)
    first, second, mix = (entry["perplexity"] for entry in report["models"])
    assert mix <= min(first, second) + 1e-6
    assert report["mix"]["summary"]["valid"]["perplexity"] == pytest.approx(mix, rel=1e-6)
    assert tslm.load(out).kind == "interpolation"
    assert main(["eval", str(out), "--split", "valid", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["perplexity"] == pytest.approx(mix, rel=1e-6)


def test_table_on_a_text_with_a_text_to_tune_on(runs, tmp_path, capsys) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat\na [bold]zebra[/bold] saw the river\n")
    text = str(tmp_path / "text.txt")
    command = ["compare", str(runs["kn"]), str(runs["tslm"]), text, "--mix", "linear", "--tune", text]
    assert main([*command, "--resamples", "50"]) == 0
    out = capsys.readouterr().out
    assert "perplexity" in out
    assert "linear mix with weights" in out


def test_errors_are_one_line(runs, tmp_path, capsys) -> None:
    kn = str(runs["kn"])
    assert main(["compare", kn]) == 2
    assert main(["compare", kn, str(tmp_path / "nothing")]) == 2
    assert main(["compare", kn, kn, str(tmp_path / "nothing")]) == 2
    assert main(["compare", kn, kn, "--out", str(tmp_path / "x")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_names_are_whole_in_a_narrow_terminal(runs, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [str(tmp_path / f"a-name-that-is-longer-than-a-column-{run}") for run in ("kn", "lstm")]
    for name, run in zip(names, ("kn", "lstm"), strict=True):
        shutil.copytree(runs[run], name)
    assert main(["compare", *names, "--resamples", "10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(names[0])]
    assert [line for line in lines if line.endswith(names[1])]


def test_what_cannot_be_compared_is_said_before_what_can(runs, tmp_path, capsys) -> None:
    (tmp_path / "text.txt").write_text("the cat sat\n" * 30)
    (tmp_path / "recipe.toml").write_text(
        f'[corpus]\nname = "own"\npath = ["{tmp_path / "text.txt"}"]\n'
        '[model]\nkind = "ngram"\norder = 2\ndiscount_fallback = [0.5]\n'
    )
    assert main(["train", str(tmp_path / "recipe.toml"), "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["compare", str(runs["kn"]), str(tmp_path / "run"), "--resamples", "10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "cannot be compared" in lines[1]
    assert "over the" in lines[1]
    assert "perplexity" not in "".join(lines[2:])  # per word, on words that both know
    assert "bits per byte" in lines[2]
