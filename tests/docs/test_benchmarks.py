"""The tables of the docs are those that the committed results of the benchmarks give."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.mark.parametrize(
    ("module", "results", "tables"),
    [
        ("lmplz", "kenlm", {"kenlm", "kenlm size", "kenlm disk", "discounts"}),
        ("ngram", "ngram", {"perplexity", "speed", "commands", "size"}),
        ("race", "race", {"race"}),
        ("spark", "spark", {"cluster", "day", "after"}),
    ],
)
def test_a_table_shows_what_was_measured(module: str, results: str, tables: set[str]) -> None:
    report = importlib.import_module("report")
    blocks = importlib.import_module(module).make_blocks(report.read_results(results))
    assert {name for _, name in blocks} == tables
    for (page, name), block in blocks.items():
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert report.fill(text, name, block) == text, f"write {name} from {results}.json again"


def test_the_page_of_training_shows_what_was_measured() -> None:
    table = importlib.import_module("training_table")
    found = table.make_markdown(importlib.import_module("report").read_results("training"))
    assert found == (FOLDER / "results" / "training.md").read_text(encoding="utf-8")


def test_a_loop_that_is_read_at_the_ends_of_epochs_may_have_been_there_before() -> None:
    race = importlib.import_module("race")
    loop = [{"seconds": 100.0, "valid": 200.0}, {"seconds": 200.0, "valid": 50.0}]
    assert race.seconds_to(100, loop) == 200
    assert race.seconds_between(100, loop) == pytest.approx(150)
    assert race.seconds_between(50, loop) == pytest.approx(200)
    assert race.seconds_between(49, loop) is None


def test_a_part_that_is_measured_again_leaves_the_others_their_machine(monkeypatch, tmp_path) -> None:
    report = importlib.import_module("report")
    monkeypatch.setattr(report, "__file__", str(tmp_path / "report.py"))
    (tmp_path / "results").mkdir()
    path = tmp_path / "results" / "some.json"
    path.write_text(json.dumps({"machine": {"cpu": "old", "threads": 2}, "a": 1, "b": 2}))
    report.write_results("some", {"b": 3}, threads=1)
    found = report.read_results("some")
    assert (found["a"], found["b"]) == (1, 3)
    assert found["machines"]["a"] == {"cpu": "old", "threads": 2}
    new = found["machines"]["b"]
    assert new["threads"] == 1
    assert new["load"] == report.LOAD
    text = report.describe(found["machines"].items())
    assert text.startswith("Measured on: old, 2 threads (a); ")
    assert text.endswith(f"load by others {report.LOAD:.1f} (b).")
