"""The page "your own text in five minutes": its commands and its Python run as they stand, on a text of people's."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tslm.corpus.embedded import read_embedded

PAGE = (Path(__file__).parents[2] / "docs" / "own-text.md").read_text(encoding="utf-8")


def blocks(language: str) -> str:
    return "".join(re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "my.txt").write_text("".join(islice(read_embedded("train"), 400)), encoding="utf-8")
    return folder


def test_the_commands_and_the_python_run(folder) -> None:
    tslm = f'tslm() {{ "{sys.executable}" -m tslm "$@"; }}'
    script = f"set -eu\n{tslm}\n{blocks('sh')}"
    ran = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "Let their" in (folder / "new.txt").read_text()
    worst = ran.stdout.split("And it came to pass")[1]
    assert re.search(r"\t-\d\d\.", worst), "the odd words, with their log-probabilities"
    assert {path.name for path in (folder / "runs").iterdir()} == {"counted", "trained", "mixed", "pieces"}
    ran = subprocess.run(
        [sys.executable, "-c", blocks("python")], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "Let their be light" in ran.stdout
