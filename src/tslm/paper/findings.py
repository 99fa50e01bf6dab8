"""The paper's claims, judged by rule from finished runs: what holds, what does not, what is not known yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tslm.paper.found import find_run, measured, perplexity_of
from tslm.paper.numbers import FIGURE_4, FIGURE_5, TABLE_2
from tslm.paper.plan import CELLS, READINGS, plan, rank_readings
from tslm.reports.tables import markdown_table, show_number

FLAT = 0.01
"""A change of perplexity below this share counts as none."""


@dataclass(frozen=True)
class Finding:
    """A claim of the paper and what the runs say of it."""

    claim: str
    evidence: str
    verdict: str


def find_all(corpus: str, results: Path) -> list[Finding]:
    """Return every claim with its verdict."""
    tests = read_tests(corpus, results)
    lengths = {reading: read_curves("figure4", corpus, results, reading) for reading in READINGS}
    equal, fixed = (read_curves("figure5", corpus, results, reading) for reading in rank_readings(corpus))
    return [
        *(judge_pair(tests, "tslm", other, corpus) for other in ("rnn", "lstm")),
        judge_pair(tests, "tslm-mos", "rnn-mos", corpus),
        judge_pair(tests, "tslm-mos", "tslm", corpus),
        judge_paper(tests, "tslm", corpus),
        judge_paper(tests, "tslm-mos", corpus),
        *(judge_length(curves, reading, FIGURE_4[corpus]) for reading, curves in lengths.items()),
        judge_rank(equal, FIGURE_5[corpus]),
        judge_rank_alone(fixed, FIGURE_5[corpus]),
    ]


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
    curves: dict[str, dict[int, float]] = {cell: {} for cell in CELLS}
    for run in plan(what, corpus):
        summary = find_run(run, None, results).summary
        if summary is not None and reading in run.readings:
            curves[run.row][run.value] = measured(summary)
    return curves


def judge_pair(tests: Mapping[str, Sequence[float]], better: str, worse: str, corpus: str) -> Finding:
    """Judge whether one row is better than another: its worst seed against the other's best."""
    names = TABLE_2[corpus]
    claim = f"{names[better].name} is better than {names[worse].name}"
    if better not in tests or worse not in tests:
        return Finding(claim, "not run", "open")
    evidence = f"test {_seeds(tests[better])} against {_seeds(tests[worse])}"
    if max(tests[better]) < min(tests[worse]):
        verdict = "holds"
    elif min(tests[better]) > max(tests[worse]):
        verdict = "does not hold"
    else:
        verdict = "the seeds overlap"
    few = min(len(tests[better]), len(tests[worse])) == 1
    return Finding(
        claim, evidence, verdict + (", one seed" if few and verdict != "the seeds overlap" else "")
    )


def judge_paper(tests: Mapping[str, Sequence[float]], row: str, corpus: str) -> Finding:
    """Judge whether a row reaches the paper's own number."""
    paper = TABLE_2[corpus][row]
    claim = f"{paper.name} reaches {paper.test} on test"
    if row not in tests or paper.test is None:
        return Finding(claim, "not run", "open")
    mean = sum(tests[row]) / len(tests[row])
    verdict = "holds" if mean <= paper.test else "not reached here"
    one = ", one seed" if len(tests[row]) == 1 else ""
    return Finding(claim, f"test {_seeds(tests[row])}", verdict + one)


def judge_length(curves: Mapping[str, Mapping[int, float]], reading: str, best: int) -> Finding:
    """Figure 4. Judge whether perplexity stops falling at the length that the paper finds best."""
    claim = f"perplexity saturates at n = {best} (state {reading})"
    return _judge_saturation(claim, curves, best, "n")


def judge_rank(curves: Mapping[str, Mapping[int, float]], best: int) -> Finding:
    """Figure 5. Judge whether a rank beyond the paper's best brings anything, with r = m."""
    return _judge_saturation(f"r = m = {best} is enough", curves, best, "r")


def judge_rank_alone(curves: Mapping[str, Mapping[int, float]], size: int) -> Finding:
    """Figure 5. Judge whether a rank beyond the size of the word vectors brings anything."""
    return _judge_saturation(f"r = m is enough, m = {size} given", curves, size, "r")


def _judge_saturation(
    claim: str, curves: Mapping[str, Mapping[int, float]], best: int, letter: str
) -> Finding:
    parts: list[str] = []
    reached: list[bool] = []
    for cell, curve in curves.items():
        beyond = max(curve, default=0)
        if best not in curve or beyond <= best:
            continue
        lowest = min(curve.values())
        enough = min(value for value in curve if curve[value] <= (1 + FLAT) * lowest)
        reached.append(enough <= best)
        change = curve[beyond] / curve[best] - 1
        parts.append(
            f"{cell.upper()}: within {FLAT:.0%} of its lowest from {letter} = {enough}, "
            f"{change:+.1%} from {best} to {beyond}"
        )
    if not reached:
        return Finding(claim, "not run", "open")
    verdict = "holds" if all(reached) else "holds for some cells only" if any(reached) else "does not hold"
    return Finding(claim, "; ".join(parts), verdict)


def make_claims(results: Path) -> str:
    """Return all claims, for PTB and then WikiText-2's table, as Markdown."""
    rows = [
        [corpus, finding.claim, finding.evidence, f"**{finding.verdict}**"]
        for corpus in TABLE_2
        for finding in find_all(corpus, results)
        if corpus == "ptb" or finding.evidence != "not run"
    ]
    return markdown_table(["corpus", "the paper's claim", "runs", "verdict"], rows)


def _seeds(values: Sequence[float]) -> str:
    return ", ".join(show_number(value) for value in values)
