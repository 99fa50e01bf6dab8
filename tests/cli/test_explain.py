from __future__ import annotations

import json

import pytest

from tslm.cli import main


def test_json_of_a_tslm(runs, capsys) -> None:
    assert main(["explain", str(runs["tslm"]), "the cat sat", "--json", "--top", "3"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [word["word"] for word in report["words"]] == ["the", "cat", "sat", "<eos>"]
    assert report["effects"]["exact"]
    assert len(report["effects"]["matrix"]) == 4
    assert len(report["cuts"]["ranks"]) == len(report["state_norms"]) == 3
    assert report["log_probability"] == pytest.approx(
        sum(word["log_probability"] for word in report["words"])
    )


@pytest.mark.parametrize("name", ["kn", "tslm", "normalised", "lstm"])
def test_table_of_every_kind(runs, capsys, name, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["explain", str(runs[name]), "the [red]zebra[/red] sat", "--replace", "ones"]) == 0
    out = capsys.readouterr().out
    assert "⟨[red]zebra[/red]⟩" in out
    assert "alternatives" in out
    assert ("cut rank" in out) == (name in ("tslm", "normalised"))
    assert ("adds to the logit" in out and "(start)" in out) == (name == "tslm"), "only where it is a sum"


@pytest.mark.parametrize("name", ["kn", "tslm", "lstm"])
def test_nothing_is_lost_in_a_narrow_terminal(runs, capsys, name, monkeypatch) -> None:
    sentence = "the old man saw the river the zebra sat on the mat the woman"
    assert main(["explain", str(runs[name]), sentence, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["explain", str(runs[name]), sentence]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert "…" not in printed.out
    names = lines[0].split("  ")
    assert {"p", "rank", "bits", "expected", "alternatives"} <= {part.strip() for part in names}
    for line, word in zip(lines[1:], report["words"], strict=False):
        shown = line.split()
        assert shown[0].strip("⟨⟩") == word["word"]
        assert shown[1] == f"{word['probability']:.4f}"
        assert shown[2] == f"{word['rank']:,}"
        assert shown[3] == f"{word['surprise']:.2f}"
        assert shown[-2] in {entry["word"] for entry in word["alternatives"]}
    for row in report["effects"]["matrix"]:
        for effect in row:
            assert effect == 0 or f"{effect:+.2f}" in printed.out
    assert printed.err == "tslm: the sentence has a word that the model does not know, read as <unk>: zebra\n"


def test_heat_map_as_svg(runs, capsys, tmp_path) -> None:
    path = tmp_path / "effects.svg"
    assert main(["explain", str(runs["tslm"]), "the cat sat", "--svg", str(path)]) == 0
    assert path.read_text().startswith("<svg")


def test_errors_are_one_line(runs, capsys) -> None:
    assert main(["explain", str(runs["kn"]), ""]) == 2
    assert main(["explain", str(runs["kn"]), "the " * 300]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
