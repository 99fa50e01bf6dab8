"""``tslm arpa`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tslm.cli import main


def test_export_and_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("the cat sat\nthe dog sat\na dog ran\n" * 40, encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(
        f'[corpus]\npath = ["{tmp_path / "text.txt"}"]\nmin_count = 1\n'
        '[model]\nkind = "ngram"\norder = 3\ndiscount_fallback = [0.5]\n',
        encoding="utf-8",
    )
    assert main(["train", str(tmp_path / "recipe.toml"), "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    file = tmp_path / "model.arpa.gz"
    assert main(["arpa", "export", str(tmp_path / "run"), str(file), "--json"]) == 0
    exported = json.loads(capsys.readouterr().out)
    assert exported["order"] == 3
    assert main(["arpa", "import", str(file), "--out", str(tmp_path / "other"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ngrams"] == exported["ngrams"]
    reports = []
    for run in ("run", "other"):
        assert main(["fill", str(tmp_path / run), "the ? sat", "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert reports[0]["log_probability"] == pytest.approx(reports[1]["log_probability"], abs=1e-8)
    assert main(["arpa", "import", str(file), "--out", str(tmp_path / "other")]) == 2
    assert "holds a run already" in capsys.readouterr().err
    (tmp_path / "bad.arpa").write_text("nothing\n", encoding="utf-8")
    assert main(["arpa", "import", str(tmp_path / "bad.arpa"), "--out", str(tmp_path / "bad")]) == 2
    assert "line 1" in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()


def test_a_model_without_ngrams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("a b c\nb c a\n" * 30, encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(
        f'[corpus]\npath = ["{tmp_path / "text.txt"}"]\nmin_count = 1\n[model]\nkind = "unigram"\n',
        encoding="utf-8",
    )
    assert main(["train", str(tmp_path / "recipe.toml"), "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["arpa", "export", str(tmp_path / "run"), str(tmp_path / "x.arpa")]) == 2
    assert "has no n-grams to write" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["export", "import"])
def test_every_action_has_examples_in_its_help(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["arpa", action, "--help"])
    assert f"examples:\n  tslm arpa {action}" in capsys.readouterr().out


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "five.txt").write_text("5\n", encoding="utf-8")
    assert main(["arpa", "import", "none.arpa", "--out", str(tmp_path / "five.txt")]) == 2
    assert "five.txt is a file, not a folder" in capsys.readouterr().err
