"""Table 1, Table 2, Figure 4, Figure 5. The paper's number, ours and the difference, from finished runs alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tslm.corpus.sources import open_corpus
from tslm.corpus.statistics import describe_corpus
from tslm.paper.document import Report
from tslm.paper.found import Found, count_epochs, find_run, measured, perplexity_of
from tslm.paper.numbers import FIGURE_4, FIGURE_5, TABLE_1, TABLE_2, PaperRow, show_cell
from tslm.paper.plan import CITED, READINGS, plan, rank_readings
from tslm.paper.sweep import Curve, draw_sweep, show_reading
from tslm.runs.summary import Summary
from tslm.tables import show_count, show_duration, show_number

NOT_RUN = "–"


def report(what: str, corpus: str, runs: Path | None, results: Path | None) -> Report:
    """Return ``table1``, ``table2``, ``figure4`` or ``figure5`` as far as its runs are finished."""
    if what == "table1":
        return report_table1()
    found = [find_run(run, runs, results) for run in plan(what, corpus)]
    if what == "table2":
        begun = {} if runs is None else {one.run.place: count_epochs(one.run, runs) for one in found}
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


def report_table2(corpus: str, found: Sequence[Found], begun: dict[str, int]) -> Report:
    """Table 2. One line per row of the paper; several seeds are shown as their mean and their range."""
    rows: list[list[str]] = []
    data: list[dict[str, Any]] = []
    settings: list[list[str]] = []
    protocols: set[str] = set()
    for name, paper in TABLE_2[corpus].items():
        of_row = [one for one in found if one.run.row == name]
        done = [one.summary for one in of_row if one.summary is not None]
        data.append(_row_data(name, paper, done))
        line = [paper.name, paper.size, _paper(paper.valid), _paper(paper.test)]
        if not done:
            epochs = max(begun.get(one.run.place, 0) for one in of_row)
            state = "damaged" if any(one.fault for one in of_row) else "not run"
            state = f"broken off after {show_count(epochs, 'epoch')}" if epochs else state
            rows.append([*line, *[NOT_RUN] * 6, state])
            continue
        tests = [perplexity_of(summary, "test") for summary in done]
        mean = sum(tests) / len(tests)
        speeds = [summary.training.tokens_per_second for summary in done if summary.training is not None]
        rows.append(
            [
                *line,
                _spread([perplexity_of(summary, "valid") for summary in done]),
                _spread(tests),
                NOT_RUN if paper.test is None else _difference(mean - paper.test),
                f"{done[0].parameters:,}",
                show_duration(sum(summary.seconds or 0 for summary in done) / len(done)),
                f"{sum(speeds) / len(speeds):,.0f}" if speeds else NOT_RUN,
                f"{len(done)} seeds" if len(done) > 1 else "1 seed" if speeds else "exact",
            ]
        )
        settings += [_setting(paper.name, summary) for summary in done]
        protocols |= {summary.test.protocol for summary in done if summary.test is not None}
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
    notes += _faults(found)
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


def report_figure(what: str, corpus: str, found: Sequence[Found]) -> Report:
    """Figure 4, Figure 5. Validation perplexity against n or r, a curve per cell (and reading)."""
    is_length = what == "figure4"
    letter, best = ("n", FIGURE_4[corpus]) if is_length else ("r", FIGURE_5[corpus])
    readings = READINGS if is_length else rank_readings(corpus)
    curves = [
        Curve(
            cell,
            reading,
            [
                (one.run.value, measured(one.summary))
                for one in sorted(found, key=lambda one: one.run.value)
                if one.summary is not None and one.run.row == cell and reading in one.run.readings
            ],
        )
        for reading in readings
        for cell in dict.fromkeys(one.run.row for one in found)
    ]
    values = sorted({one.run.value for one in found})
    planned = {(reading, one.run.value): NOT_RUN for one in found for reading in one.run.readings}
    rows = [
        [f"{show_cell(curve.cell)}, {show_reading(curve.reading)}"]
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
    missing = sum(one.summary is None for one in found)
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
    notes += _faults(found)
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


def _done(found: Sequence[Found], name: str) -> bool:
    return any(one.run.row == name and one.summary is not None for one in found)


def _faults(found: Sequence[Found]) -> list[str]:
    return [f"{one.run.place} is left out: {one.fault}." for one in found if one.fault is not None]


def _row_data(name: str, paper: PaperRow, done: Sequence[Summary]) -> dict[str, Any]:
    """Return a row of Table 2 as numbers."""
    return {
        "row": name,
        "model": paper.name,
        "size": paper.size,
        "paper": {"valid": paper.valid, "test": paper.test},
        "runs": [
            {
                "seed": None if summary.recipe.train is None else summary.recipe.train.seed,
                "valid": perplexity_of(summary, "valid"),
                "test": perplexity_of(summary, "test"),
                "parameters": summary.parameters,
                "seconds": summary.seconds,
                "tokens_per_second": None if summary.training is None else summary.training.tokens_per_second,
            }
            for summary in done
        ],
    }


def _difference(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"  # + 0.0: no negative zero


def _paper(value: float | None) -> str:
    return NOT_RUN if value is None else f"{value:.1f}"


def _spread(values: Sequence[float]) -> str:
    mean = show_number(sum(values) / len(values))
    return mean if len(values) == 1 else f"{mean} ({show_number(min(values))}–{show_number(max(values))})"


def _setting(name: str, summary: Summary) -> list[str]:
    fingerprint = summary.corpus.fingerprint[:12]
    train, objective, training = summary.recipe.train, summary.recipe.objective, summary.training
    if train is None or objective is None or training is None:
        return [name, *[NOT_RUN] * 6, fingerprint]
    return [
        name,
        str(train.seed),
        f"{training.epochs}, best {training.best_epoch}",
        f"{train.batch} × {train.window}",
        f"{train.learning_rate}",
        f"{objective.frequent} + {objective.sampled} words" if objective.sampled else "full",
        str(training.threads),
        fingerprint,
    ]
