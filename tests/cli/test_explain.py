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


def test_heat_map_as_svg(runs, capsys, tmp_path) -> None:
    path = tmp_path / "effects.svg"
    assert main(["explain", str(runs["tslm"]), "the cat sat", "--svg", str(path)]) == 0
    assert path.read_text().startswith("<svg")


def test_errors_are_one_line(runs, capsys) -> None:
    assert main(["explain", str(runs["kn"]), ""]) == 2
    assert main(["explain", str(runs["kn"]), "the " * 300]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
