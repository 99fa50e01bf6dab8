"""The paper's tables and figures, rebuilt: what is missing is trained, then all is reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tslm.errors import CorpusError
from tslm.paper.document import Report, write_report
from tslm.paper.found import find_missing, keep_finished
from tslm.paper.plan import check_rows, expand
from tslm.paper.report import report
from tslm.runs.queue import run_queue
from tslm.shipped import shipped

RUNS, RESULTS = Path("runs"), Path("results")


def reproduce(
    what: str = "all",
    corpus: str | None = None,
    *,
    budget: float = 0.0,
    only: Sequence[str] = (),
    jobs: int = 1,
    threads: int | None = None,
    out: str | Path | None = None,
    runs: str | Path = RUNS,
    results: str | Path | None = None,
    fresh: bool = False,
    keep: bool = False,
    tell: Callable[[str], None] | None = None,
) -> list[Report]:
    """Rebuild tables and figures of the paper beside ours.

    Args:
        what: ``table1``, ``table2``, ``figure4``, ``figure5`` or ``all``.
        corpus: ``ptb`` or ``wikitext-2``; ``ptb`` when left out, or both tables for ``all``.
        budget: seconds of training; 0 trains nothing.
        only: train no other rows or cells than these.
        jobs: runs side by side.
        threads: threads of each.
        out: a folder to write the reports into, as Markdown, HTML and SVG.
        runs: where run folders are.
        results: where summaries of runs made elsewhere are; ``results`` where there is one, else those that come
            with the package.
        fresh: leave these aside: only what was trained here counts.
        keep: copy the summaries of finished runs, not their weights, to ``results``, which is made where it is missing.
        tell: is told what happens, and what is missing, line by line.

    Returns:
        The reports; ``failed`` of each names the runs that failed.

    Raises:
        TslmError: there is no such table or row, or a corpus is not here.
    """
    tell = tell or _ignore
    runs, kept = Path(runs), Path(results or RESULTS)
    known = None if fresh else kept
    if known is not None and not known.is_dir():
        if results is None:
            known = shipped("results")
            tell(f"the results that come with tslm stand beside what was trained here: {known}")
        else:
            tell(
                f"no results folder at {results}: only what was trained here is shown; leave --results out for those "
                "that come with tslm"
            )
    wanted = expand(what, corpus)
    check_rows(only, wanted)
    deadline = time.monotonic() + budget
    reports: list[Report] = []
    for one, text in wanted:
        missing = find_missing(one, text, runs, known, only)
        outcomes = run_queue(
            [run.job(runs) for run in missing],
            budget=deadline - time.monotonic(),
            workers=jobs,
            threads=threads,
            tell=tell,
        )
        if keep:
            keep_finished(one, text, runs, kept)
        try:
            made = report(one, text, runs, known)
        except CorpusError as error:
            if what != "all":
                raise
            tell(f"{one} is left out: {error}")
            continue
        failed = tuple(str(folder) for folder, outcome in outcomes.items() if outcome == "failed")
        reports.append(replace(made, failed=failed))
        for path in [] if out is None else write_report(made, Path(out)):
            tell(f"wrote {path}")
    return reports


def _ignore(line: str) -> None:
    """Say nothing."""
    del line
