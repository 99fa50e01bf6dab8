"""The site tells of every module, and its notebooks are kept without what they print."""

from __future__ import annotations

import ast
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tslm

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
UNTOLD = ("tslm.cli", "tslm.__main__")
"""The command line tells of itself: --help."""


def test_the_reference_has_every_module() -> None:
    told = set(
        re.findall(r"automodule:: ([\w.]+)", "".join(p.read_text() for p in (DOCS / "api").glob("*.md")))
    )
    modules = {
        module.name
        for module in pkgutil.walk_packages(tslm.__path__, "tslm.")
        if not module.name.startswith(UNTOLD)
        # a package that only holds others has nothing to tell
        and not (module.ispkg and module.name != "tslm.tensors" and len(_source(module.name)) < 3)
    }
    assert told == modules


def _source(name: str) -> list[str]:
    path = Path(tslm.__path__[0]).joinpath(*name.split(".")[1:]) / "__init__.py"
    return path.read_text(encoding="utf-8").splitlines()


def test_the_verbs_are_listed() -> None:
    page = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\| `tslm\.(\w+)` \|", page)) == set(tslm.__all__)


def test_every_page_is_in_the_contents() -> None:
    listed = set(re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.M))
    pages = {
        p.relative_to(DOCS)
        for p in DOCS.rglob("*")
        if p.suffix in (".md", ".ipynb") and "_build" not in p.parts
    }
    assert {str(page.with_suffix("")) for page in pages} - {"index"} <= listed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_code_that_parses_without_output(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert cells[0]["cell_type"] == "markdown"
    assert "".join(cells[0]["source"]).startswith("# ")
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "clear all outputs before you keep it: they are made by make docs"
            assert cell["execution_count"] is None
            ast.parse("".join(cell["source"]))


def test_a_colon_in_an_attributes_docstring_makes_no_type(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("# A\n\n```{eval-rst}\n.. automodule:: tslm.inference.adapt\n```\n")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "-b",
        "text",
        "-c",
        str(DOCS),
        tmp_path,
        tmp_path / "made",
    ]
    subprocess.run(command, check=True)
    text = (tmp_path / "made" / "index.txt").read_text(encoding="utf-8")
    assert "for every so many words: a short text" in " ".join(text.split())
    assert "Type:" not in text
