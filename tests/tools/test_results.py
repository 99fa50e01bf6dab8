from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tools.results import (
    READ_BY,
    SELECTION,
    collect,
    make_adaptation_trials,
    make_adaptations,
    make_documents,
    make_gains,
    make_gates,
    make_reading,
    make_results,
    make_selection,
    make_trials,
    update,
)

from tslm.errors import RunError
from tslm.runs.folder import ADDITION

ROOT = Path(__file__).parents[2]


def test_the_tables_are_those_the_results_give() -> None:
    for document, parts in make_documents(ROOT / "results").items():
        path = ROOT / document
        assert update(path, parts) == path.read_text(encoding="utf-8"), "run: make results"


def test_the_readme_shows_the_best_of_each_kind_on_the_papers_corpora() -> None:
    rows = [line.split(" | ") for line in make_selection(ROOT / "results").splitlines()[2:]]
    shown = [(row[0].removeprefix("| "), row[1].split("-seed")[0]) for row in rows]
    assert len(set(shown)) == len(shown)
    assert {name for _, name in shown} == set(SELECTION)
    # Cells trained alike stand beside each other.
    alike = [("ptb", "spelling"), ("ptb", "product"), ("wikitext-2", "spelling")]
    assert {(corpus, f"{cell}-{how}") for corpus, how in alike for cell in ("gated", "lstm")} <= set(shown)
    assert {corpus for corpus, _ in shown} == {"ptb", "wikitext-2"}
    valid = {row[1]: float(row[4]) for row in rows if row[0] == "| ptb"}
    others = [result for result in collect(ROOT / "results") if result.folder.name in ("lstm", "lstm-seed2")]
    assert min(valid[name] for name in valid if name.split("-seed")[0] == "lstm") == min(
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
            # A sum was trained as its terms, each of which has its own metrics.
            assert (folder / "metrics.jsonl").exists() or (folder / ADDITION).exists(), folder
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


def write_report(path: Path, **models: tuple[float, float, float | None]) -> None:
    """A report of ``tslm eval --cache`` or of benchmarks/gate.py: valid, test and seconds of each model."""
    rows = []
    for model, (valid, test, seconds) in models.items():
        more = {} if seconds is None else {"seconds": seconds}
        rows.append({"model": model.replace("_", " "), "split": "valid", "perplexity": valid, **more})
        rows.append({"model": model.replace("_", " "), "split": "test", "perplexity": test, **more})
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"results": rows}))


def test_ways_of_reading_are_shown_with_their_time_and_what_was_not_run_is_left_out(tmp_path) -> None:
    folder = tmp_path / "reading"
    write_report(folder / "ptb-gated-cache.json", plain=(96.08, 90.577, 50.0), cache=(82.5, 80.03, 70.0))
    write_report(folder / "ptb-gated-gate.json", plain=(96.08, 90.577, 10.0), one_weight=(88.1, 83.6, None))
    write_report(folder / "ptb-lstm-cache.json", plain=(1.0, 1.0, 1.0), cache=(1.0, 1.0, 1.0))
    assert make_reading(tmp_path).splitlines() == [
        "| corpus | model | read | valid | test | time | processor | clock |",
        "| --- | --- | --- | --: | --: | --: | --: | --: |",
        "| ptb | gated | alone | 96.08 | **90.58** | 1.0 × | – | – |",
        "| ptb | gated | with a cache | 82.50 | **80.03** | 1.4 × | – | – |",
        "| ptb | gated | with KN-5, one weight | 88.10 | **83.60** | – | – | – |",
    ]
    write_report(
        folder / "ptb-gated-beside-gate.json", plain=(98.0, 92.0, 10.0), one_weight=(87.1, 82.6, None)
    )
    assert make_reading(tmp_path).count("83.60") == 1
    assert make_gates(tmp_path).splitlines()[2:] == [
        "| ptb | TSLM, gated | alone | 96.08 | – | **90.58** |",
        "| ptb | TSLM, gated | one weight | 88.10 | – | **83.60** |",
        "| ptb | … learnt beside counts | alone | 98.00 | – | **92.00** |",
        "| ptb | … learnt beside counts | one weight | 87.10 | – | **82.60** |",
    ]
    assert make_reading(tmp_path / "none").count("\n") == 1
    # A report of all ways together comes first, and shows its model whatever that is.
    write_report(folder / "ptb-gated-all.json", plain=(96.08, 90.577, 5.0), cache=(82.5, 80.03, 10.0))
    write_report(folder / "asv-lstm-all.json", plain=(30.0, 31.0, 5.0), dynamic_and_cache=(20.0, 21.0, 30.0))
    assert make_reading(tmp_path).splitlines()[3:] == [
        "| ptb | gated | with a cache | 82.50 | **80.03** | 2.0 × | – | – |",
        "| ptb | gated | with KN-5, one weight | 88.10 | **83.60** | – | – | – |",
        "| asv | lstm | alone | 30.00 | **31.00** | 1.0 × | – | – |",
        "| asv | lstm | learning while reading, with a cache | 20.00 | **21.00** | 6.0 × | – | – |",
    ]
    # Counts with a cache have rows too, and both times where a report has both.
    write_report(folder / "asv-kn5-cache.json", plain=(40.0, 41.0, 2.0), cache=(38.0, 39.0, 2.5))
    kept = json.loads((folder / "asv-kn5-cache.json").read_text())
    (folder / "asv-kn5-cache.json").write_text(
        json.dumps({"results": [row | {"wall": 2 * row["seconds"]} for row in kept["results"]]})
    )
    assert make_reading(tmp_path).splitlines()[-1] == (
        "| asv | kn5 | with a cache | 38.00 | **39.00** | 1.2 × | 2.5 s | 5.0 s |"
    )
    assert make_gains(tmp_path).splitlines()[2:] == [
        "| ptb | gated | a cache | 90.58 | **80.03** | -11.6% | 2.0 × |",
        "| asv | kn5 | a cache | 41.00 | **39.00** | -4.9% | 1.2 × |",
    ]


def test_an_adaptation_is_shown_with_both_texts(tmp_path) -> None:
    assert make_adaptations(tmp_path).count("\n") == 1
    perplexities = {"before": 300.0, "start": 400.0, "after": 150.5, "counted": 120.0, "mixed": 100.0}
    old = {"before": 40.0, "start": 40.5, "after": 41.25, "counted": 900.0, "mixed": 45.0}
    report = {"source": "asv-gated", "text": "my.txt", "words": 1234}
    report["settings"] = {"start": "rare", "old": 4.0, "rate": 0.5}
    (tmp_path / "adaptation").mkdir()
    (tmp_path / "adaptation" / "a.json").write_text(json.dumps({**report, "new": perplexities, "old": old}))
    assert make_adaptations(tmp_path).splitlines()[2:] == [
        "| asv-gated | my.txt | 1,234 | rare | 4 | 0.5 "
        "| 300.00 | 400.00 | 150.50 | 120.00 | 100.00 | 40.00 | 41.25 | 45.00 |"
    ]


def test_trials_of_adapting_are_shown_with_the_mean_that_chose(tmp_path) -> None:
    assert make_adaptation_trials(tmp_path).count("\n") == 1
    trial = {"old": 2.0, "rate": 0.5, "epochs": 6, "stopping": 90.0, "held_out": 80.0, "old_valid": 40.0}
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "adaptation.json").write_text(json.dumps({"results": [trial]}))
    assert make_adaptation_trials(tmp_path).splitlines()[2:] == [
        "| 2 | 0.5 | 6 | 90.0 | 80.0 | 40.0 | 60.0 |"
    ]


def test_every_way_of_reading_has_its_row() -> None:
    table = make_reading(ROOT / "results")
    assert all(f"| gated | {name} |" in table for name in READ_BY)
