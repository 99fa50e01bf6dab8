"""The paper's claims, judged by rule from finished runs: what holds, what does not, what is not known yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tslm.paper.found import find_run, measured, perplexity_of
from tslm.paper.numbers import FIGURE_4, FIGURE_5, TABLE_2, show_cell
from tslm.paper.plan import READINGS, plan, rank_readings
from tslm.tables import markdown_table, show_number

FLAT = 0.01
"""A change of perplexity below this share counts as none."""


@dataclass(frozen=True)
class Finding:
    """A claim of the paper and what the runs say of it."""

    claim: str
    verdict: str
    rows: tuple[dict[str, str], ...] = ()
    """The numbers behind the verdict, column by column; none where nothing is run."""


OPEN = "open"

SECTIONS = ("tslm-rnn", "tslm-lstm", "gated", "mixtures", "paper", "length", "rank")
"""The parts of ``docs/findings.md``, each of which begins with a sentence and a table."""


def find_all(corpus: str, results: Path) -> dict[str, list[Finding]]:
    """Return every claim with its verdict, by section."""
    tests = read_tests(corpus, results)
    lengths = {reading: read_curves("figure4", corpus, results, reading) for reading in READINGS}
    equal, fixed = (read_curves("figure5", corpus, results, reading) for reading in rank_readings(corpus))
    found = (
        [judge_pair(tests, "tslm", "rnn", corpus)],
        [judge_pair(tests, "tslm", "lstm", corpus)],
        [
            judge_pair(tests, better, worse, corpus)
            for better, worse in (
                ("gated", "lstm"),
                ("gated", "tslm"),
                ("gated-decay", "lstm-decay"),
                ("gated-spelling", "lstm-spelling"),
                ("gated-product", "gated-spelling"),
                ("gated-product", "lstm-product"),
                ("gated-768-product", "gated-768-spelling"),
                ("gated-cascade", "gated-product"),
                ("gated-768-cascade", "gated-768-product"),
                ("gated-stack", "lstm-spelling"),
            )
            if better in TABLE_2[corpus] and worse in TABLE_2[corpus]
        ],
        [
            judge_pair(tests, better, worse, corpus)
            for better, worse in (
                ("tslm-mos", "rnn-mos"),
                ("tslm-mos", "tslm"),
                ("gated-mos-768", "gated-768"),
                ("gated-mos-spelling", "gated-768-spelling"),
                ("gated-mos", "gated-spelling"),
            )
            if better in TABLE_2[corpus] and worse in TABLE_2[corpus]
        ],
        [judge_paper(tests, "tslm", corpus), judge_paper(tests, "tslm-mos", corpus)],
        [judge_length(curves, reading, FIGURE_4[corpus]) for reading, curves in lengths.items()],
        [judge_rank(equal, FIGURE_5[corpus]), judge_rank_alone(fixed, FIGURE_5[corpus])],
    )
    return dict(zip(SECTIONS, found, strict=True))


def read_tests(corpus: str, results: Path) -> dict[str, list[float]]:
    """Return the test perplexities of each row of Table 2, one per seed."""
    tests: dict[str, list[float]] = {}
    for run in plan("table2", corpus):
        summary = find_run(run, None, results).summary
        if summary is not None:
            tests.setdefault(run.row, []).append(perplexity_of(summary, "test"))
    return tests


def read_curves(what: str, corpus: str, results: Path, reading: str) -> dict[str, dict[int, float]]:
    """Return cell → size → validation perplexity of a figure."""
    curves: dict[str, dict[int, float]] = {}
    for run in plan(what, corpus):
        curves.setdefault(run.row, {})
        summary = find_run(run, None, results).summary
        if summary is not None and reading in run.readings:
            curves[run.row][run.value] = measured(summary)
    return curves


def judge_pair(tests: Mapping[str, Sequence[float]], better: str, worse: str, corpus: str) -> Finding:
    """Judge whether one row is better than another: its worst seed against the other's best."""
    names = TABLE_2[corpus]
    claim = f"{names[better].name} is better than {names[worse].name}"
    if better not in tests or worse not in tests:
        return Finding(claim, OPEN)
    if max(tests[better]) < min(tests[worse]):
        verdict = "holds"
    elif min(tests[better]) > max(tests[worse]):
        verdict = "does not hold"
    else:
        verdict = "the seeds overlap"
    few = min(len(tests[better]), len(tests[worse])) == 1 and verdict != "the seeds overlap"
    row = {
        "model": names[better].name,
        "test": _seeds(tests[better]),
        "against": names[worse].name,
        "its test": _seeds(tests[worse]),
    }
    return Finding(claim, verdict + (", one seed" if few else ""), (row,))


def judge_paper(tests: Mapping[str, Sequence[float]], row: str, corpus: str) -> Finding:
    """Judge whether a row reaches the paper's own number."""
    paper = TABLE_2[corpus][row]
    claim = f"{paper.name} reaches {paper.test} on test"
    if row not in tests or paper.test is None:
        return Finding(claim, OPEN)
    mean = sum(tests[row]) / len(tests[row])
    verdict = "holds" if mean <= paper.test else "not reached here"
    one = ", one seed" if len(tests[row]) == 1 else ""
    numbers = {"model": paper.name, "test": _seeds(tests[row]), "the paper's": str(paper.test)}
    return Finding(claim, verdict + one, (numbers,))


def judge_length(curves: Mapping[str, Mapping[int, float]], reading: str, best: int) -> Finding:
    """Figure 4. Judge whether perplexity stops falling at the length that the paper finds best."""
    claim = f"perplexity saturates at n = {best} (state {reading})"
    return _judge_saturation(claim, curves, best, "n", {"state": reading})


def judge_rank(curves: Mapping[str, Mapping[int, float]], best: int) -> Finding:
    """Figure 5. Judge whether a rank beyond the paper's best brings anything, with r = m."""
    return _judge_saturation(f"r = m = {best} is enough", curves, best, "r", {"m": "r"})


def judge_rank_alone(curves: Mapping[str, Mapping[int, float]], size: int) -> Finding:
    """Figure 5. Judge whether a rank beyond the size of the word vectors brings anything."""
    return _judge_saturation(f"r = m is enough, m = {size} given", curves, size, "r", {"m": str(size)})


def _judge_saturation(
    claim: str, curves: Mapping[str, Mapping[int, float]], best: int, letter: str, reading: dict[str, str]
) -> Finding:
    rows: list[dict[str, str]] = []
    reached: list[bool] = []
    for cell, curve in curves.items():
        beyond = max(curve, default=0)
        if best not in curve or beyond <= best:
            continue
        lowest = min(curve.values())
        enough = min(value for value in curve if curve[value] <= (1 + FLAT) * lowest)
        reached.append(enough <= best)
        rows.append(
            {
                **reading,
                "cell": show_cell(cell),
                f"within {FLAT:.0%} of its lowest": f"from {letter} = {enough}",
                f"{letter} = {best} → {beyond}": f"{curve[beyond] / curve[best] - 1:+.1%}",
            }
        )
    if not reached:
        return Finding(claim, OPEN)
    verdict = "holds" if all(reached) else "holds for some cells only" if any(reached) else "does not hold"
    return Finding(claim, verdict, tuple(rows))


def make_claims(results: Path) -> dict[str, str]:
    """Return the parts of the findings that are made from runs, as Markdown.

    Returns:
        ``claims``, the table of all verdicts, and for each section a sentence and a small table. Of WikiText-2 only
        what has been run is said.
    """
    found = {corpus: find_all(corpus, results) for corpus in TABLE_2}
    verdicts: list[list[str]] = []
    parts: dict[str, str] = {}
    for section in SECTIONS:
        sentences: dict[str, list[str]] = {}
        rows: list[dict[str, str]] = []
        for corpus, findings in found.items():
            for finding in findings[section]:
                if corpus != "ptb" and not finding.rows:
                    continue
                verdicts.append([finding.claim, corpus, f"**{finding.verdict}**"])
                sentences.setdefault(finding.claim, []).append(_say(finding.verdict, corpus))
                rows += [
                    {"corpus": corpus, **row, "verdict": f"**{finding.verdict}**"} for row in finding.rows
                ]
        lead = " ".join(f"“{claim}”: {'; '.join(said)}." for claim, said in sentences.items())
        # Rows of two corpora may have columns of their own, such as another best length.
        header = list(dict.fromkeys(column for row in rows for column in row))
        table = markdown_table(header, [[row.get(column, "") for column in header] for row in rows])
        parts[section] = f"{lead}\n\n{table}" if rows else lead
    return {"claims": markdown_table(["claim", "corpus", "verdict"], verdicts), **parts}


def _say(verdict: str, corpus: str) -> str:
    said, _, seeds = verdict.partition(", ")
    return f"{said} on {corpus}{f' ({seeds})' if seeds else ''}"


def _seeds(values: Sequence[float]) -> str:
    return ", ".join(show_number(value) for value in values)
