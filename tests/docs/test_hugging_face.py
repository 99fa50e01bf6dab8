"""The page about Hugging Face: its commands and its Python run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

import tslm
from tslm.corpus.embedded import read_embedded

pytest.importorskip("transformers")

PAGE = (Path(__file__).parents[2] / "docs" / "hugging-face.md").read_text(encoding="utf-8")

RECIPE = """\
[corpus]
name = "verses"
path = ["verses.txt"]
tokeniser = "words"
min_count = 2

[model]
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_commands_and_the_python_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("verses.txt").write_text("".join(islice(read_embedded("train"), 300)), encoding="utf-8")
    shape = 'kind = "recurrent"\nrank = 16\nembedding = 16\n[train]\nepochs = 1\nthreads = 1\n'
    for name, model in (("counted", 'kind = "ngram"\norder = 3\n'), ("trained", shape)):
        Path(f"{name}.toml").write_text(RECIPE + model)
        tslm.train(f"{name}.toml", f"runs/{name}")
    export, back = blocks("sh")
    (python,) = blocks("python")
    for script in (export, python, back):
        shell = f'set -eu\ntslm() {{ "{sys.executable}" -m tslm "$@"; }}\n{script}'
        command = [sys.executable, "-c", script] if script is python else ["bash", "-c", shell]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr[-2000:]
        if script is python:
            assert [line.startswith("And God said") for line in ran.stdout.splitlines()[::2]] == [True, True]
    expected, given = (
        tslm.score(run, "And God said")[0].log_probability for run in ("runs/trained", "runs/again")
    )
    assert given == expected
