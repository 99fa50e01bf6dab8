"""``tslm fill`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tslm.cli import main


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of a text of a few sentences."""
    folder = tmp_path_factory.mktemp("fill")
    lines = [
        f"the {a} of the {b}"
        for a in ("end", "rest", "name")
        for b in ("year", "day", "game")
        for _ in range(3)
    ]
    lines += [f"a {a} and a {b}" for a in ("dog", "cat") for b in ("cow", "hen", "dog")]
    (folder / "text.txt").write_text("\n".join(lines * 4) + "\n", encoding="utf-8")
    (folder / "recipe.toml").write_text(
        f'[corpus]\npath = ["{folder / "text.txt"}"]\nmin_count = 1\n'
        '[model]\nkind = "ngram"\norder = 3\ndiscount_fallback = [0.5, 1.0, 1.5]\n',
        encoding="utf-8",
    )
    assert main(["train", str(folder / "recipe.toml"), "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_json(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "fill",
        str(run_folder),
        "the ? of the ?",
        "--top",
        "3",
        "--json",
        "--sample",
        "4",
        "--seed",
        "7",
    ]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    report = json.loads(output)
    assert report["log_probability"] < 0
    first, second = report["blanks"]
    assert {entry["word"] for entry in first["best"]} == {"end", "rest", "name"}
    assert {entry["word"] for entry in second["best"]} == {"year", "day", "game"}
    assert (first["place"], second["place"]) == (1, 4)
    assert len(report["fillings"]) == 3
    assert len(report["samples"]) == 4
    assert main(arguments) == 0
    assert capsys.readouterr().out == output


def test_tables(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", str(run_folder), "a ? and"]) == 0
    output = capsys.readouterr().out
    assert "ln p" in output
    assert "dog" in output
    assert main(["fill", str(run_folder), "the ?", "--as", "prefix", "--sample", "2", "--go-on", "9"]) == 0
    assert "of the" in capsys.readouterr().out


def test_a_pattern_without_a_blank_has_a_hint(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", str(run_folder), "the end of the year", "--blank", "_"]) == 0
    printed = capsys.readouterr()
    assert "ln p" in printed.out
    assert "blank" not in printed.out
    assert printed.err == "tslm: the pattern has no blank; put _ where a word is missing: 'the _ of the _'\n"
    assert main(["fill", str(run_folder), "the ? of the year", "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_unknown_words_are_told(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", str(run_folder), "the ? of the zebra of the Year", "--json"]) == 0
    printed = capsys.readouterr()
    assert (
        printed.err
        == "tslm: the pattern has words that the model does not know, read as <unk>: zebra, Year\n"
    )
    report = json.loads(printed.out)
    assert report["unknown"] == ["zebra", "Year"]
    assert report["fillings"][0]["text"].endswith("of the <unk> of the <unk>")


def test_excluded_words(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            ["fill", str(run_folder), "the _", "--blank", "_", "--exclude", "end", "--as", "prefix", "--json"]
        )
        == 0
    )
    words = [entry["word"] for entry in json.loads(capsys.readouterr().out)["blanks"][0]["best"]]
    assert "end" not in words


def test_errors(run_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["fill", str(run_folder), ""]) == 2
    assert "no words and no blanks" in capsys.readouterr().err
    assert main(["fill", str(tmp_path / "nowhere"), "the ?"]) == 2
    assert "no run folder" in capsys.readouterr().err
    for number in ("0", "x"):
        with pytest.raises(SystemExit):
            main(["fill", str(run_folder), "the ?", "--top", number])
        assert f"argument --top: '{number}' is not a whole number of 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sample", "2", "--seed", "-1"], "seed -1; expected 0 or more"),
        (["--blank", ""], "the sign of a blank is ''"),
        (["--blank", "? ?"], "the sign of a blank is '? ?'"),
        (["--exclude", "zzzz"], "the model does not know the word 'zzzz'"),
        (["--go-on", "3", "--as", "prefix"], "--go-on lets samples go on"),
        (["--go-on", "3", "--sample", "2"], "--go-on lets samples go on"),
    ],
)
def test_what_would_do_nothing_or_fail_is_one_line(
    arguments: list[str], message: str, run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fill", str(run_folder), "the ?", *arguments]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


def test_a_model_that_cannot_fill_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("a b c\nb c a\n" * 30, encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(
        f'[corpus]\npath = ["{tmp_path / "text.txt"}"]\nmin_count = 1\n[model]\nkind = "unigram"\n',
        encoding="utf-8",
    )
    assert main(["train", str(tmp_path / "recipe.toml"), "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["fill", str(tmp_path / "run"), "a ? ?"]) == 2
    assert "would have to be run once for every filling" in capsys.readouterr().err
