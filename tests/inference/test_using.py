"""Every example of docs/using.md runs, on small models."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tslm.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "using.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def workplace(runs, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("using")
    for name, run in (("kn5", "kn"), ("tslm", "tslm"), ("gated", "gated")):
        shutil.copytree(runs[run], folder / "runs" / name)
    (folder / "sentences.txt").write_text("the man saw the river\na woman ran to the house\n")
    return folder


def test_python_examples(workplace, monkeypatch, capsys) -> None:
    monkeypatch.chdir(workplace)
    found = blocks("python")
    assert len(found) == 5
    names: dict[str, object] = {}
    for block in found:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102


@pytest.mark.parametrize("block", range(len(blocks("console"))))
def test_commands(workplace, monkeypatch, capsys, block) -> None:
    monkeypatch.chdir(workplace)
    for line in blocks("console")[block].splitlines():
        program, *arguments = shlex.split(line)
        assert program == "tslm"
        assert main(arguments) == 0, line
        assert capsys.readouterr().out
