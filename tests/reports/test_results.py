from __future__ import annotations

from pathlib import Path

import pytest

from tslm.errors import RunError
from tslm.reports.results import collect, make_markdown, update

ROOT = Path(__file__).parents[2]


def test_the_readmes_table_is_the_one_the_results_give() -> None:
    readme = ROOT / "README.md"
    assert update(readme, ROOT / "results") == readme.read_text(encoding="utf-8"), "run: make results"


def test_every_result_says_how_it_was_made() -> None:
    for corpus, run, summary in collect(ROOT / "results"):
        folder = ROOT / "results" / corpus / run
        assert (folder / "recipe.toml").exists(), folder
        assert summary["corpus"]["fingerprint"]
        assert summary["test"]["protocol"]
        if "train" in summary["recipe"]:
            assert (folder / "metrics.jsonl").exists(), folder
            assert "seed" in summary["recipe"]["train"]
        assert not list(folder.glob("*.safetensors")), "no weights under results/"


def test_a_readme_without_markers_is_refused(tmp_path) -> None:
    (tmp_path / "README.md").write_text("nothing")
    with pytest.raises(RunError, match="must hold"):
        update(tmp_path / "README.md", tmp_path)


def test_a_table_needs_no_runs(tmp_path) -> None:
    assert make_markdown(tmp_path).count("\n") == 1
