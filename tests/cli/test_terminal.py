"""Control characters of a vocabulary, on a real terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tslm.cli import main
from tslm.cli.terminal import visible

TITLE = "\x1b]0;gone\x07"
CLEAR = "\x9b2J"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows words which are commands to a terminal."""
    folder = tmp_path_factory.mktemp("terminal")
    lines = [f"the {word} said {TITLE} to {CLEAR} in the {word}" for word in ("man", "woman", "king") * 40]
    lines += [f"the rare{number} word" for number in range(9)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = f"""
[corpus]
name = "hostile"
path = ["{folder / "text.txt"}"]

[model]
kind = "ngram"
order = 3
discount_fallback = [0.5, 1.0, 1.5]
"""
    (folder / "recipe.toml").write_text(recipe)
    assert main(["train", str(folder / "recipe.toml"), "--out", str(folder / "run")]) == 0
    return folder / "run"


def on_terminal(*arguments: str) -> str:
    """Run a command whose output is a terminal, and return what reached it."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tslm", *arguments], stdin=subprocess.DEVNULL, stdout=follower, stderr=follower
    )
    os.close(follower)
    received = b""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if not select.select([leader], [], [], 1)[0]:
            if process.poll() is not None:
                break
            continue
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        received += part
    os.close(leader)
    assert process.wait(60) == 0, received
    return received.decode("utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "RUN", "--length", "40", "--go-on"],
        ["generate", "RUN", "--length", "40", "--number", "3", "--json"],
        ["fill", "RUN", "the king said ?", "--top", "3", "--sample", "2"],
        ["fill", "RUN", "the king said ? to ?", "--json"],
        ["explain", "RUN", f"the king said {TITLE} to {CLEAR}"],
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[-1:])[:20],
)
def test_no_control_character_of_a_word_reaches_a_terminal(folder: Path, arguments: list[str]) -> None:
    shown = on_terminal(*(str(folder) if part == "RUN" else part for part in arguments))
    assert TITLE not in shown
    assert "\x1b]" not in shown
    assert "\x07" not in shown
    assert "\x9b" not in shown
    assert "gone" in shown  # the word itself is there, written out


def test_a_file_gets_the_words_as_they_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(folder), "--length", "60", "--go-on"]) == 0
    assert TITLE in capsys.readouterr().out


def test_what_is_written_out() -> None:
    assert visible("a\tb\nc") == "a\tb\nc"
    assert visible("\x1b\x07\x9b\x7f\r") == r"\x1b\x07\x9b\x7f\x0d"
    assert visible("日本 é") == "日本 é"
