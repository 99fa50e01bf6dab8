"""The README's commands and its Python run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tslm.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for block in blocks("sh")
    for line in block.splitlines()
    if line.startswith("tslm ") and not line.startswith("tslm serve")  # which runs until it is stopped
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("readme")


def test_the_readme_has_commands() -> None:
    assert {"data", "train", "eval", "fill", "draw"} <= {command[0] for command in COMMANDS}


def test_the_commands_run_one_after_the_other(folder, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    for command in COMMANDS:
        assert main(command) == 0, command


def test_the_python_runs(folder, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    (block,) = blocks("python")
    exec(compile(block, "README.md", "exec"), {})  # noqa: S102
    assert float(capsys.readouterr().out.split()[0]) < 45


def test_it_can_be_read_in_one_sitting_and_its_links_lead_somewhere() -> None:
    assert README.count("\n") < 120
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link
