"""``tslm draw``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tslm.cli import main


@pytest.mark.parametrize("figure", ["figure-1", "figure-2", "figure-3"])
def test_figures_to_files(figure: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("picture.svg", "picture.png"):
        assert main(["draw", figure, "--out", str(tmp_path / name), "--width", "800"]) == 0
    assert (tmp_path / "picture.svg").read_text(encoding="utf-8").startswith("<svg")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert "wrote" in capsys.readouterr().err


def test_svg_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", "sentence", "the", "cat"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("<svg")
    assert ">cat<" in out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", "sentence", "the", "cat", "sat", "--rank", "4", "--embedding", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["nodes"] == 3 * 3 + 2 + 1
    assert report["explicit_entries"] == 100 * 3**3
    assert report["flops"] == 3 * 2 * 4 * 3 + 2 * (2 * 16 + 4) + 2 * 4 * 100


def test_sizes_that_no_memory_holds_are_drawn_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sizes = ["--rank", "1000000000", "--embedding", "1000000000", "--vocabulary", "1000000000"]
    assert main(["draw", "sentence", "a", "b", *sizes, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    R = M = V = 10**9
    assert report["flops"] == 2 * 2 * R * M + 2 * R * R + R + 2 * R * V
    assert report["explicit_entries"] == V * M**2
    assert main(["draw", "sentence", "a", "b", *sizes]) == 0
    assert "1,000,000,000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sentence"], "no words to draw"),
        (["figure-1", "cat"], "takes no words"),
        (["sentence", "cat", "--rank", "0"], "--rank 0"),
        (
            ["sentence", "cat", "--embedding", "1000000001"],
            "--embedding 1000000001; expected from 1 to 1,000,000,000",
        ),
        (["sentence", *["cat"] * 201], "201 words are too many"),
        (["figure-1", "--out", "x.pdf"], ".svg or .png"),
        (["figure-1", "--width", "0"], "--width 0"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["draw", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
