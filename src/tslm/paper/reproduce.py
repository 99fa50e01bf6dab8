"""Table 1, Table 2, Figure 4, Figure 5. The paper's number, ours and the difference, from finished runs alone."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tslm.corpus.sources import open_corpus
from tslm.corpus.statistics import describe_corpus
from tslm.errors import RecipeError
from tslm.paper.document import Report
from tslm.paper.numbers import FIGURE_4, FIGURE_5, TABLE_1, TABLE_2
from tslm.paper.plan import CELLS, CITED, READINGS, Run, plan, rank_readings
from tslm.paper.sweep import Curve, draw_sweep, show_reading
from tslm.reports.page import read_metrics
from tslm.reports.tables import show_duration, show_number
from tslm.runs.folder import RECIPE, keep, read_summary
from tslm.runs.recipe import Recipe, make_recipe, read_recipe

NOT_RUN = "–"


def find_summary(run: Run, runs: Path | None, results: Path | None) -> dict[str, Any] | None:
    """Return the summary of a finished run of this very recipe: from its own folder, else from ``results``."""
    expected = _without_threads(read_recipe(Path(run.recipe), run.overrides))
    own = [] if runs is None else [run.job(runs).folder]
    for folder in (*own, *([] if results is None else [results / run.place])):
        summary = read_summary(folder)
        if summary is not None and _is_run_of(summary["recipe"], expected):
            return summary
    return None


def find_missing(
    what: str, corpus: str, runs: Path, results: Path | None, only: Sequence[str] = ()
) -> list[Run]:
    """Return the runs that a table or figure still needs.

    Args:
        what: ``table1``, ``table2``, ``figure4`` or ``figure5``.
        corpus: ``ptb`` or ``wikitext-2``.
        runs: where run folders are.
        results: where summaries of runs made elsewhere are; None leaves them aside.
        only: rows or cells; all where there are none.
    """
    return [
        run
        for run in plan(what, corpus)
        if (not only or run.row in only) and find_summary(run, runs, results) is None
    ]


def keep_finished(what: str, corpus: str, runs: Path, results: Path) -> None:
    """Copy the summaries of a table's or figure's finished runs to ``results``."""
    for run in plan(what, corpus):
        if find_summary(run, runs, None) is not None:
            keep(run.job(runs).folder, results, run.place)


def count_epochs(run: Run, runs: Path) -> int:
    """Return how many epochs an unfinished run of this very recipe has behind it."""
    folder = run.job(runs).folder
    expected = _without_threads(read_recipe(Path(run.recipe), run.overrides))
    try:
        begun = tomllib.loads((folder / RECIPE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    return sum("epoch" in entry for entry in read_metrics(folder)) if _is_run_of(begun, expected) else 0


def measured(summary: dict[str, Any]) -> float:
    """Return the validation perplexity of a figure's point: with the state reset as in training, where it was."""
    return _or_infinite(summary.get("valid_windows", summary["valid"]["perplexity"]))


def perplexity_of(summary: dict[str, Any], split: str) -> float:
    """Return a finished run's perplexity on a split."""
    return _or_infinite(summary[split]["perplexity"])


def report(what: str, corpus: str, runs: Path | None, results: Path | None) -> Report:
    """Return ``table1``, ``table2``, ``figure4`` or ``figure5`` as far as its runs are finished."""
    if what == "table1":
        return report_table1()
    found = [(run, find_summary(run, runs, results)) for run in plan(what, corpus)]
    if what == "table2":
        begun = {} if runs is None else {run.place: count_epochs(run, runs) for run, _ in found}
        return report_table2(corpus, found, begun)
    return report_figure(what, corpus, found)


def report_table1() -> Report:
    """Table 1. The sizes of the corpora.

    Raises:
        CorpusError: one of them is not on this machine.
    """
    data: list[dict[str, Any]] = []
    for corpus, paper in TABLE_1.items():
        facts = describe_corpus(open_corpus(corpus))
        ours = {f"tokens, {split}": entry["tokens"] for split, entry in facts["splits"].items()}
        ours |= {"vocabulary": facts["vocabulary"], "<unk> in train": facts["splits"]["train"]["oov_rate"]}
        data += [
            {"corpus": corpus, "what": what, "paper": paper[what], "here": here}
            for what, here in ours.items()
        ]
    rows = [
        [row["corpus"], row["what"]]
        + [f"{row[side]:.1%}" if row[side] < 1 else f"{row[side]:,}" for side in ("paper", "here")]
        for row in data
    ]
    notes = [
        "Tokens count one end mark per line. The paper's row of articles is left out: the files do not mark them."
    ]
    return Report(
        "table-1", "Table 1: the corpora", ["corpus", "what", "paper", "here"], rows, notes, data=data
    )


def report_table2(
    corpus: str, found: Sequence[tuple[Run, dict[str, Any] | None]], begun: dict[str, int]
) -> Report:
    """Table 2. One line per row of the paper; several seeds are shown as their mean and their range."""
    rows: list[list[str]] = []
    data: list[dict[str, Any]] = []
    settings: list[list[str]] = []
    protocols: set[str] = set()
    for name, paper in TABLE_2[corpus].items():
        of_row = [(run, summary) for run, summary in found if run.row == name]
        done = [summary for _, summary in of_row if summary is not None]
        data.append(
            {
                "row": name,
                "model": paper.name,
                "size": paper.size,
                "paper": {"valid": paper.valid, "test": paper.test},
                "runs": [
                    {
                        "seed": summary["recipe"].get("train", {}).get("seed"),
                        "valid": perplexity_of(summary, "valid"),
                        "test": perplexity_of(summary, "test"),
                        "parameters": summary["parameters"],
                        "seconds": summary["seconds"],
                        "tokens_per_second": summary.get("tokens_per_second"),
                    }
                    for summary in done
                ],
            }
        )
        line = [paper.name, paper.size, _paper(paper.valid), _paper(paper.test)]
        if not done:
            epochs = max(begun.get(run.place, 0) for run, _ in of_row)
            state = f"broken off after {epochs} epochs" if epochs else "not run"
            rows.append([*line, NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN, state])
            continue
        tests = [perplexity_of(summary, "test") for summary in done]
        mean = sum(tests) / len(tests)
        trained = "epochs" in done[0]
        rows.append(
            [
                *line,
                _spread([perplexity_of(summary, "valid") for summary in done]),
                _spread(tests),
                NOT_RUN if paper.test is None else _difference(mean - paper.test),
                f"{done[0]['parameters']:,}",
                show_duration(sum(summary["seconds"] for summary in done) / len(done)),
                f"{sum(summary['tokens_per_second'] for summary in done) / len(done):,.0f}"
                if trained
                else NOT_RUN,
                f"{len(done)} seeds" if len(done) > 1 else "1 seed" if trained else "exact",
            ]
        )
        settings += [_setting(paper.name, summary) for summary in done]
        protocols |= {summary["test"]["protocol"] for summary in done}
    header = ["model", "size", "paper valid", "paper test", "valid", "test", "difference"]
    header += ["parameters", "training", "tokens/s", "runs"]
    unrun = ", ".join(TABLE_2[corpus][name].name for name in CITED if not _done(found, name))
    notes = [f"Protocol: {protocol}." for protocol in sorted(protocols)]
    notes.append(
        "Validation chose the epoch; test was read once, at the end of each run. Mean, and range, over seeds."
    )
    if len({setting[-1] for setting in settings}) > 1:
        notes.append(
            "These runs read different texts (see the column corpus): their rows cannot be compared."
        )
    if unrun:
        notes.append(
            f"Not run here: {unrun}. They are cited by the paper, and the large ones take many hours on a CPU."
        )
    more = [
        (
            "How each run was made",
            ["model", "seed", "epochs", "batch × window", "learning rate", "objective", "threads", "corpus"],
            settings,
        )
    ]
    return Report(
        f"table-2-{corpus}", f"Table 2: perplexity on {corpus}", header, rows, notes, more=more, data=data
    )


def report_figure(what: str, corpus: str, found: Sequence[tuple[Run, dict[str, Any] | None]]) -> Report:
    """Figure 4, Figure 5. Validation perplexity against n or r, a curve per cell (and reading)."""
    is_length = what == "figure4"
    letter, best = ("n", FIGURE_4[corpus]) if is_length else ("r", FIGURE_5[corpus])
    readings = READINGS if is_length else rank_readings(corpus)
    curves = [
        Curve(
            cell,
            reading,
            [
                (run.value, measured(summary))
                for run, summary in sorted(found, key=lambda pair: pair[0].value)
                if summary is not None and run.row == cell and reading in run.readings
            ],
        )
        for reading in readings
        for cell in CELLS
    ]
    values = sorted({run.value for run, _ in found})
    planned = {(reading, run.value): NOT_RUN for run, _ in found for reading in run.readings}
    rows = [
        [f"{curve.cell.upper()}, {show_reading(curve.reading)}"]
        + [
            show_number(dict(curve.points)[value])
            if value in dict(curve.points)
            else planned.get((curve.reading, value), "")
            for value in values
        ]
        for curve in curves
    ]
    number = what[-1]
    subject = "the length n" if is_length else "the rank r"
    missing = sum(summary is None for _, summary in found)
    notes = [
        f"Validation perplexity after a short, equal training of every point; the paper finds {letter} = {best} best."
    ]
    if is_length:
        notes.append(
            "State carried: n only limits back-propagation, and the state is carried in the measurement too. "
            "State reset: n is the order of the tensor, in training and in the measurement."
        )
    else:
        notes.append(
            f"r = m: rank and word vectors grow together, as in the paper. m = {best}: the rank grows alone."
        )
    if missing:
        notes.append(f"{missing} of {len(found)} points are not run yet.")
    return Report(
        f"figure-{number}-{corpus}",
        f"Figure {number}: perplexity on {corpus} against {subject}",
        ["cell", *(f"{letter} = {value}" for value in values)],
        rows,
        notes,
        svg=draw_sweep(curves, letter, best),
        data=[
            {"cell": curve.cell, "reading": curve.reading, letter: x, "valid": y}
            for curve in curves
            for x, y in curve.points
        ],
    )


def _is_run_of(tables: dict[str, Any], expected: Recipe) -> bool:
    try:
        return _without_threads(make_recipe(tables)) == expected
    except RecipeError:  # of another version, with settings unknown here
        return False


def _without_threads(recipe: Recipe) -> Recipe:
    """How many threads computed it decides the last bits of a result, not what was run."""
    return recipe if recipe.train is None else replace(recipe, train=replace(recipe.train, threads=0))


def _done(found: Sequence[tuple[Run, dict[str, Any] | None]], name: str) -> bool:
    return any(run.row == name and summary is not None for run, summary in found)


def _or_infinite(value: float | None) -> float:
    """JSON has no infinity; where it stood there is nothing."""
    return math.inf if value is None else value


def _difference(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"  # + 0.0: no negative zero


def _paper(value: float | None) -> str:
    return NOT_RUN if value is None else f"{value:.1f}"


def _spread(values: Sequence[float]) -> str:
    mean = show_number(sum(values) / len(values))
    return mean if len(values) == 1 else f"{mean} ({show_number(min(values))}–{show_number(max(values))})"


def _setting(name: str, summary: dict[str, Any]) -> list[str]:
    recipe, fingerprint = summary["recipe"], summary["corpus"]["fingerprint"][:12]
    if "train" not in recipe:
        return [name, *[NOT_RUN] * 6, fingerprint]
    train, objective = recipe["train"], recipe["objective"]
    sampled = f"{objective['frequent']} + {objective['sampled']} words" if objective["sampled"] else "full"
    return [
        name,
        str(train["seed"]),
        f"{summary['epochs']}, best {summary['best_epoch']}",
        f"{train['batch']} × {train['window']}",
        f"{train['learning_rate']}",
        sampled,
        str(summary["threads"]),
        fingerprint,
    ]
