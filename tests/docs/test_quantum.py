"""The page about the quantum reading runs, prints what it says, and its table is what was measured."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
from tests.docs.test_tutorial import run_page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quantum.md"


def test_every_block_runs_and_prints_what_the_page_says(cache_folder: Path) -> None:
    assert run_page(PAGE.read_text(encoding="utf-8")) >= 10


def test_the_table_is_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    born = importlib.import_module("born")
    table = born.make_table(json.loads(born.RESULTS.read_text(encoding="utf-8")))
    shown = re.search(r"<!-- born: begin -->\n(.*?)<!-- born: end -->", PAGE.read_text("utf-8"), re.S)
    assert shown
    assert shown[1].strip() == table.strip()


def test_links_and_quotes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (PAGE.parent / link).is_file(), link
    assert text.count("\n> ") >= 3  # the paper's own words
