from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tslm.cli import main
from tslm.errors import RecipeError
from tslm.evaluation.perplexity import Perplexity
from tslm.files import write_text
from tslm.paper.document import to_html, to_markdown
from tslm.paper.found import find_run
from tslm.paper.numbers import FIGURE_4, FIGURE_5, TABLE_2
from tslm.paper.plan import LENGTHS, RANKS, plan
from tslm.paper.report import report
from tslm.runs.recipe import read_recipe, recipe_tables, write_recipe
from tslm.runs.summary import Source, Summary, Training, write_summary
from tslm.seals import write_sealed

ROOT = Path(__file__).parents[2]


def put(folder: Path, run, test: float, overrides=(), windows=None, fingerprint="0123456789abcdef") -> None:
    """Write the summary that a run of this recipe would have left."""
    recipe = read_recipe(run.recipe, (*run.overrides, *overrides))
    training = Training(epochs=3, best_epoch=2, tokens_per_second=1000.0, threads=1, valid_windows=windows)
    measured = recipe.train is None or recipe.train.test
    summary = Summary(
        recipe=recipe,
        corpus=Source(name="ptb", fingerprint=fingerprint, vocabulary=10, train_tokens=100),
        parameters=1234,
        seconds=600.0,
        training=None if recipe.train is None else training,
        valid=perplexity(test + 5),
        test=perplexity(test) if measured else None,
        versions={"tslm": "0"},
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_summary(folder, summary)


def perplexity(value: float) -> Perplexity:
    return Perplexity(
        perplexity=value,
        perplexity_reset=value,
        bits_per_word=math.log2(value),
        nats=100 * math.log(value),
        tokens=100,
        lines=10,
        vocabulary=10,
        unk_share=0.0,
        protocol="every token once",
    )


def row_of(made, name: str) -> dict[str, str]:
    rows = (dict(zip(made.header, row, strict=True)) for row in made.rows)
    return next(row for row in rows if row["model"] == name)


@pytest.mark.parametrize("corpus", ["ptb", "wikitext-2"])
def test_every_row_of_table_2_is_a_recipe_of_the_papers_size(corpus) -> None:
    runs = plan("table2", corpus)
    assert {run.row for run in runs} == set(TABLE_2[corpus])
    for run in runs:
        recipe, paper = read_recipe(run.recipe, run.overrides), TABLE_2[corpus][run.row]
        assert recipe.corpus.name == corpus
        if recipe.kind == "recurrent":
            assert f"{recipe.model.rank} × {recipe.model.layers}" == paper.size
            assert (recipe.model.head.kind == "mixture") == ("MoS" in paper.name)


def test_the_three_cells_are_trained_alike() -> None:
    for corpus in ("ptb", "wikitext-2"):
        tables = [recipe_tables(read_recipe(f"{corpus}/{cell}")) for cell in ("tslm", "rnn", "lstm")]
        for other in tables[1:]:
            assert other["objective"] == tables[0]["objective"]
            assert other["train"] == tables[0]["train"]
            assert {key for key in other["model"] if other["model"][key] != tables[0]["model"][key]} <= {
                "cell",
            }


def test_every_point_of_a_figure_has_the_same_budget() -> None:
    lengths, ranks = plan("figure4"), plan("figure5")
    assert len(lengths) == len(LENGTHS) * 2 * 3
    assert len(ranks) == (len(RANKS) + 2) * 4
    for run in lengths:
        train = read_recipe(run.recipe, run.overrides).train
        assert train is not None
        assert (train.window, train.state, train.test) == (run.value, *run.readings, False)
        assert train.window * train.batch == pytest.approx(1400, rel=0.02)
    for run in ranks:
        model = read_recipe(run.recipe, run.overrides).model
        assert model.rank == run.value
        assert ("r = m" in run.readings) == (model.rank == model.embedding)
        assert ("m = 256" in run.readings) <= (model.embedding == 256)
    assert {run.value for run in ranks if "m = 256" in run.readings} == {128, 256, 512}
    assert len({run.job(Path("runs")).folder for run in (*lengths, *ranks, *plan("table2"))}) == len(
        [*lengths, *ranks, *plan("table2")]
    )


@pytest.mark.parametrize(("what", "best"), [("figure4", FIGURE_4), ("figure5", FIGURE_5)])
def test_the_value_that_the_paper_finds_best_is_run(what, best) -> None:
    for corpus, value in best.items():
        assert value in {run.value for run in plan(what, corpus)}


def test_what_the_paper_does_not_have_is_refused() -> None:
    with pytest.raises(RecipeError, match="did you mean 'figure4'"):
        plan("figure44")
    with pytest.raises(RecipeError, match="no numbers"):
        plan("table2", "asv")


def test_a_run_is_reused_only_if_its_recipe_is_the_same(tmp_path) -> None:
    run = next(run for run in plan("table2") if run.row == "tslm")
    runs, results = tmp_path / "runs", tmp_path / "results"
    assert find_run(run, runs, results).summary is None
    put(results / run.place, run, 100.0, ["train.threads=7"])
    assert find_run(run, runs, results).summary.test.perplexity == 100.0
    assert find_run(run, runs, None).summary is None
    put(run.job(runs).folder, run, 99.0)
    own = find_run(run, runs, results).summary
    assert own.test.perplexity == 99.0, "a run of this machine comes first"
    put(run.job(runs).folder, run, 98.0, ["train.learning_rate=0.5"])
    other = find_run(run, runs, results).summary
    assert other.test.perplexity == 100.0, "a run of another recipe is no run of this one"


def test_table_2_shows_difference_spread_and_what_is_missing(tmp_path) -> None:
    for run in plan("table2"):
        if run.row == "tslm":
            put(tmp_path / run.place, run, 90.0 + 4 * ("seed2" in run.place))
    made = report("table2", "ptb", tmp_path / "runs", tmp_path)
    tslm = row_of(made, "TSLM")
    assert tslm["test"] == "92.00 (90.00–94.00)"
    assert tslm["difference"] == "-16.1"
    assert tslm["paper test"] == "108.1"
    assert tslm["runs"] == "2 seeds"
    assert (tslm["parameters"], tslm["training"], tslm["tokens/s"]) == ("1,234", "10 min", "1,000")
    assert row_of(made, "RNN")["runs"] == "not run"
    assert any("Not run here" in note and "LSTM (Grave)" in note for note in made.notes)
    for text in (to_markdown(made), to_html(made)):
        assert "92.00 (90.00–94.00)" in text
        assert "every token once" in text


def test_runs_on_different_texts_are_not_passed_off_as_comparable(tmp_path) -> None:
    first, second = (next(run for run in plan("table2") if run.row == name) for name in ("tslm", "lstm"))
    put(tmp_path / first.place, first, 100.0)
    put(tmp_path / second.place, second, 101.0)
    assert "different texts" not in to_markdown(report("table2", "ptb", tmp_path / "runs", tmp_path))
    put(tmp_path / second.place, second, 101.0, fingerprint="another text")
    assert "different texts" in to_markdown(report("table2", "ptb", tmp_path / "runs", tmp_path))


def test_a_run_that_was_broken_off_is_named(tmp_path) -> None:
    run = next(run for run in plan("table2") if run.row == "lstm")
    folder = run.job(tmp_path).folder
    write_text(folder / "metrics.jsonl", '{"step": 1}\n{"epoch": 1}\n{"epoch": 2}\n')
    write_recipe(folder / "recipe.toml", read_recipe(run.recipe, ["train.threads=7"]))
    assert row_of(report("table2", "ptb", tmp_path, None), "LSTM")["runs"] == "broken off after 2 epochs"
    write_recipe(folder / "recipe.toml", read_recipe(run.recipe, ["train.seed=77"]))
    assert row_of(report("table2", "ptb", tmp_path, None), "LSTM")["runs"] == "not run", (
        "another recipe's epochs"
    )


def test_a_run_of_another_version_is_no_run_of_this_one(tmp_path) -> None:
    run = next(run for run in plan("table2") if run.row == "tslm")
    put(tmp_path / run.place, run, 100.0)
    path = tmp_path / run.place / "summary.json"
    summary = json.loads(path.read_text())
    summary["recipe"]["model"]["flavour"] = 3
    write_sealed(path, json.dumps(summary))
    found = find_run(run, tmp_path / "runs", tmp_path)
    assert found.summary is None
    assert "unknown key 'model.flavour'" in found.fault


def test_a_damaged_summary_is_named_in_its_row_and_spoils_no_other(tmp_path) -> None:
    tslm, lstm = (next(run for run in plan("table2") if run.row == name) for name in ("tslm", "lstm"))
    put(tmp_path / lstm.place, lstm, 101.0)
    write_text(tmp_path / tslm.place / "summary.json", '{"kind": "recurrent"')
    made = report("table2", "ptb", tmp_path / "runs", tmp_path)
    assert row_of(made, "TSLM")["runs"] == "damaged"
    assert row_of(made, "LSTM")["test"] == "101.00"
    assert any(note.startswith("ptb/tslm is left out: cannot read") for note in made.notes)
    put(tslm.job(tmp_path / "runs").folder, tslm, 100.0)
    assert row_of(report("table2", "ptb", tmp_path / "runs", tmp_path), "TSLM")["test"] == "100.00"


def test_an_infinite_perplexity_is_shown(tmp_path) -> None:
    run = next(run for run in plan("table2") if run.row == "tslm")
    put(tmp_path / run.place, run, math.inf)
    tslm = row_of(report("table2", "ptb", tmp_path / "runs", tmp_path), "TSLM")
    assert (tslm["valid"], tslm["test"]) == ("∞", "∞")


def test_only_takes_rows_and_cells_alone(tmp_path, capsys) -> None:
    places = ["--budget", "0", "--runs", str(tmp_path / "runs"), "--fresh", "--out", str(tmp_path)]
    assert main(["reproduce", "table2", "--only", "tlsm", *places]) == 2
    assert "did you mean 'tslm'" in capsys.readouterr().err
    assert main(["reproduce", "figure5", "--only", "kn5", *places]) == 2
    assert main(["reproduce", "figure5", "--only", "rnn", "lstm", *places]) == 0


def test_without_a_results_folder_those_of_the_package_answer(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "table2", "--budget", "0"]) == 0
    printed = capsys.readouterr()
    assert "the results that come with tslm" in printed.err
    assert "141.19" in printed.out
    assert main(["reproduce", "table2", "--budget", "0", "--results", "nowhere"]) == 0
    printed = capsys.readouterr()
    assert "no results folder at nowhere" in printed.err
    assert "141.19" not in printed.out
    assert main(["reproduce", "table2", "--budget", "0", "--fresh", "--results", "elsewhere"]) == 0
    assert "no results folder" not in capsys.readouterr().err


def test_figures_take_the_window_for_the_reset_reading(tmp_path) -> None:
    for run in plan("figure4"):
        if run.row == "tslm":
            windows = 200.0 + run.value if run.readings == ("reset",) else None
            put(tmp_path / run.place, run, 100.0 + run.value, windows=windows)
    made = report("figure4", "ptb", tmp_path / "runs", tmp_path)
    rows = {row[0]: dict(zip(made.header, row, strict=True)) for row in made.rows}
    assert {"cell": "tslm", "reading": "reset", "n": 60, "valid": 260.0} in made.as_json()["rows"]
    assert rows["TSLM, state carried"]["n = 5"] == "110.00"
    assert rows["TSLM, state reset"]["n = 60"] == "260.00"
    assert rows["LSTM, state reset"]["n = 60"] == "–"
    assert made.svg.startswith("<svg")
    assert f"{2 * 2 * len(LENGTHS)} of {2 * 3 * len(LENGTHS)} points are not run yet" in to_markdown(made)


def test_figure_5_is_drawn_even_without_runs(tmp_path) -> None:
    made = report("figure5", "ptb", tmp_path, None)
    assert made.svg.startswith("<svg")
    assert made.svg == report("figure5", "ptb", tmp_path, None).svg, "the same figure is the same file"
    assert all("–" in row for row in made.rows)
    assert all(set(row[1:]) <= {"–", ""} for row in made.rows)


def test_the_point_where_r_is_m_belongs_to_both_curves_of_figure_5(tmp_path) -> None:
    for run in plan("figure5"):
        if run.row == "rnn":
            put(tmp_path / run.place, run, 100.0 + run.value + ("of" in run.place))
    made = report("figure5", "ptb", tmp_path / "runs", tmp_path)
    rows = {row[0]: dict(zip(made.header, row, strict=True)) for row in made.rows}
    assert rows["RNN, r = m"]["r = 256"] == rows["RNN, m = 256"]["r = 256"] == "361.00"
    assert rows["RNN, r = m"]["r = 512"] == "617.00"
    assert rows["RNN, m = 256"]["r = 512"] == "618.00"
    assert rows["RNN, m = 256"]["r = 16"] == "", "a point nobody plans is not one that is not run"
    assert rows["LSTM, m = 256"]["r = 128"] == "–"


def test_the_command_without_a_budget_reports_what_is_there(tmp_path, capsys) -> None:
    results = str(ROOT / "results")
    arguments = [
        "--budget",
        "0",
        "--runs",
        str(tmp_path / "runs"),
        "--results",
        results,
        "--out",
        str(tmp_path),
    ]
    assert main(["reproduce", "table2", *arguments, "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)
    kn5 = next(row for row in made["rows"] if row["model"] == "KN-5")
    assert kn5["runs"][0]["test"] == pytest.approx(kn5["paper"]["test"], abs=0.05)
    assert (tmp_path / "table-2-ptb.md").exists()
    assert "<table>" in (tmp_path / "table-2-ptb.html").read_text()
    assert main(["reproduce", "figure5", *arguments]) == 0
    assert (tmp_path / "figure-5-ptb.svg").exists()
    with pytest.raises(SystemExit):
        main(["reproduce", "table2", "--budget", "soon"])
    assert "no duration" in capsys.readouterr().err


@pytest.mark.ptb
def test_the_command_trains_what_is_missing_and_keeps_it(ptb, tmp_path, capsys) -> None:
    arguments = ["reproduce", "table2", "--only", "kn5", "--budget", "10m", "--fresh", "--keep", "--json"]
    places = [
        "--runs",
        str(tmp_path / "runs"),
        "--results",
        str(tmp_path / "results"),
        "--out",
        str(tmp_path),
    ]
    assert main([*arguments, *places]) == 0
    (made,) = json.loads(capsys.readouterr().out)
    (run,) = next(row for row in made["rows"] if row["model"] == "KN-5")["runs"]
    assert run["test"] == pytest.approx(141.19, abs=0.005)
    assert (tmp_path / "results" / "ptb" / "kn5" / "summary.json").exists()
    assert not (tmp_path / "results" / "ptb" / "kn5" / "model.safetensors").exists()


def test_the_reports_of_the_docs_are_those_the_results_give(tmp_path) -> None:
    for what, corpus in (("table2", "ptb"), ("table2", "wikitext-2"), ("figure4", "ptb"), ("figure5", "ptb")):
        made = report(what, corpus, tmp_path, ROOT / "results")
        kept = ROOT / "docs" / "reproduced" / f"{made.name}.md"
        assert kept.read_text(encoding="utf-8") == to_markdown(made), "run: make results"


@pytest.mark.ptb
@pytest.mark.wikitext
def test_table_1_of_the_docs(ptb, wikitext, tmp_path) -> None:
    made = report("table1", "ptb", tmp_path, None)
    kept = ROOT / "docs" / "reproduced" / f"{made.name}.md"
    assert kept.read_text(encoding="utf-8") == to_markdown(made), "run: make results"
    assert [row[2] == row[3] for row in made.rows].count(False) == 3, "PTB counts one token less per split"
