"""The page about compression shows what was measured, and its links lead somewhere."""

from __future__ import annotations

import importlib
import json
import math
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compression.md"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("compression")


def test_the_table_is_what_was_measured(benchmark) -> None:
    table = benchmark.make_table(json.loads(benchmark.RESULTS.read_text(encoding="utf-8")))
    shown = re.search(
        r"<!-- compression: begin -->\n(.*?)<!-- compression: end -->", PAGE.read_text("utf-8"), re.S
    )
    assert shown
    assert shown[1].strip() == table.strip()


def test_what_the_page_says_of_the_figures_is_so(benchmark) -> None:
    """The sentences under the table, as comparisons of what was measured."""
    ranks = json.loads(benchmark.RESULTS.read_text(encoding="utf-8"))["ranks"]
    whole = ranks["192"]["whole"]
    assert ranks["128"]["bond"] < 1.025 * whole
    assert ranks["64"]["bond"] < 1.11 * whole
    assert ranks["160"]["units"] < 1.06 * whole
    for rank in ("32", "64", "128"):
        row = ranks[rank]
        assert row["bond"] < row["scratch"] < row["units"]
        assert row["scratch"] < row.get("tuned", math.inf)
        assert row.get("tuned", 0) < row["units"]


def test_links() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / link).is_file(), link
