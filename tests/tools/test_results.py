from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools.results import collect, make_markdown, make_trials, update

from tslm.errors import RunError
from tslm.paper.findings import make_claims

ROOT = Path(__file__).parents[2]


def test_the_tables_are_those_the_results_give() -> None:
    for document, table in (
        ("README.md", make_markdown),
        ("docs/log.md", make_trials),
        ("docs/findings.md", make_claims),
    ):
        path = ROOT / document
        expected = update(path, table(ROOT / "results"))
        assert expected == path.read_text(encoding="utf-8"), "run: make results"


def test_every_result_says_how_it_was_made() -> None:
    for result in collect(ROOT / "results"):
        folder, summary = result.folder, result.summary
        assert summary is not None, folder
        assert (folder / "recipe.toml").exists(), folder
        assert summary.corpus.fingerprint
        assert summary.test is not None
        assert summary.test.protocol
        if summary.training is not None:
            assert (folder / "metrics.jsonl").exists(), folder
        assert not list(folder.glob("*.safetensors")), "no weights under results/"


def test_a_damaged_summary_has_its_row_and_spoils_no_other(tmp_path, capsys) -> None:
    for run in ("kn3", "kn5"):
        shutil.copytree(ROOT / "results" / "ptb" / run, tmp_path / "ptb" / run)
    (tmp_path / "ptb" / "kn3" / "summary.json").write_text('{"kind"')
    (tmp_path / "tuning" / "ptb" / "trial").mkdir(parents=True)
    (tmp_path / "tuning" / "ptb" / "trial" / "summary.json").write_text("[]")
    assert make_markdown(tmp_path).splitlines()[2:] == [
        "| ptb | kn3 | damaged | – | – | – | – | – |",
        *(line for line in make_markdown(ROOT / "results").splitlines() if line.startswith("| ptb | kn5 |")),
    ]
    assert "| ptb | damaged | trial |" in make_trials(tmp_path)
    assert "cannot read" in capsys.readouterr().err


def test_a_readme_without_markers_is_refused(tmp_path) -> None:
    (tmp_path / "README.md").write_text("nothing")
    with pytest.raises(RunError, match="must hold"):
        update(tmp_path / "README.md", "| a |")


def test_a_table_needs_no_runs(tmp_path) -> None:
    assert make_markdown(tmp_path).count("\n") == 1
    assert make_trials(tmp_path).count("\n") == 1


def test_every_cell_had_the_same_number_of_trials_of_the_learning_rate() -> None:
    trials = list((ROOT / "results" / "tuning" / "ptb").glob("*-rate-*/summary.json"))
    counts = [
        sum(path.parent.name.startswith(f"{cell}-") for path in trials) for cell in ("tslm", "rnn", "lstm")
    ]
    assert counts[0] > 1
    assert len(set(counts)) == 1, counts
