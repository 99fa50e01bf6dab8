"""``tslm decompose``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tslm.cli import main


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of lines in which words of two kinds alternate."""
    numbers = np.random.default_rng(0)
    lines = [" ".join(f"{'ab'[k % 2]}{numbers.integers(6)}" for k in range(8)) for _ in range(900)]
    path = tmp_path_factory.mktemp("text") / "alternating.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_a_sweep_of_bigrams(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["decompose", text, "--words", "60", "--ranks", "1,4,8"]
    assert main([*arguments, "--json", "--out", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    perplexities = [result["test"] for result in report["ranks"]]
    assert report["unigram_test"] > perplexities[0] > perplexities[1] > 5
    assert {path.name for path in tmp_path.iterdir()} == {
        "saturation.json",
        "saturation.svg",
        "saturation.png",
    }
    assert main(arguments) == 0
    table = capsys.readouterr().out
    assert f"{perplexities[1]:.2f}" in table
    assert "clipped" in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ranks", "1,2,…"], "expected whole numbers"),
        (["--ranks", "0"], "rank 0"),
        (["--words", "5", "--ranks", "7"], "expected 1 to 6"),
        (["--words", "0"], "--words 0"),
    ],
)
def test_mistakes_are_explained(
    text: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decompose", text, *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.ptb
@pytest.mark.usefixtures("ptb")
def test_a_tensor_too_large_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decompose", "ptb", "--order", "3", "--words", "5000"]) == 2
    assert "would take 931.9 GiB" in capsys.readouterr().err


def test_a_file_in_place_of_the_folder_is_refused_before_any_work(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tslm.reports.saturation.sweep_ranks", None)
    (tmp_path / "five.txt").write_text("5\n", encoding="utf-8")
    assert main(["decompose", text, "--out", str(tmp_path / "five.txt")]) == 2
    errors = capsys.readouterr().err
    assert "five.txt is a file, not a folder" in errors
    assert errors.count("\n") == 1
