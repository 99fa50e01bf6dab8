from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools.results import collect, make_documents, make_results, make_selection, make_trials, update

from tslm.errors import RunError

ROOT = Path(__file__).parents[2]


def test_the_tables_are_those_the_results_give() -> None:
    for document, parts in make_documents(ROOT / "results").items():
        path = ROOT / document
        assert update(path, parts) == path.read_text(encoding="utf-8"), "run: make results"


def test_the_readme_shows_the_best_of_each_kind_on_the_papers_corpora() -> None:
    rows = [line.split(" | ") for line in make_selection(ROOT / "results").splitlines()[2:]]
    shown = [(row[0].removeprefix("| "), row[1].split("-seed")[0]) for row in rows]
    assert len(set(shown)) == len(shown) <= 12
    assert {("ptb", name) for name in ("kn5", "rnn", "lstm", "tslm", "gated", "kn5+gated")} <= set(shown)
    assert {corpus for corpus, _ in shown} == {"ptb", "wikitext-2"}
    valid = {row[1]: float(row[4]) for row in rows if row[0] == "| ptb"}
    others = [result for result in collect(ROOT / "results") if result.folder.name in ("lstm", "lstm-seed2")]
    assert min(valid[name] for name in valid if name.startswith("lstm")) == min(
        round(result.summary.valid.perplexity, 2)
        for result in others
        if result.summary is not None and result.folder.parent.name == "ptb"
    ), "validation chooses among seeds"


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
    assert make_results(tmp_path).splitlines()[2:] == [
        "| ptb | kn3 | damaged | – | – | – | – | – |",
        *(line for line in make_results(ROOT / "results").splitlines() if line.startswith("| ptb | kn5 |")),
    ]
    assert "| ptb | damaged | trial |" in make_trials(tmp_path)
    assert "cannot read" in capsys.readouterr().err


def test_a_readme_without_markers_is_refused(tmp_path) -> None:
    (tmp_path / "README.md").write_text("nothing")
    with pytest.raises(RunError, match="must hold"):
        update(tmp_path / "README.md", {"results": "| a |"})


def test_a_table_needs_no_runs(tmp_path) -> None:
    assert make_results(tmp_path).count("\n") == 1
    assert make_trials(tmp_path).count("\n") == 1


def test_every_cell_had_the_same_number_of_trials_of_the_learning_rate() -> None:
    trials = list((ROOT / "results" / "tuning" / "ptb").glob("*-rate-*/summary.json"))
    counts = [
        sum(path.parent.name.startswith(f"{cell}-") for path in trials) for cell in ("tslm", "rnn", "lstm")
    ]
    assert counts[0] > 1
    assert len(set(counts)) == 1, counts
