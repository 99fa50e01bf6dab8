"""Which of the planned runs are finished, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tslm.errors import RecipeError, RunError
from tslm.paper.plan import PlannedRun, plan
from tslm.runs.folder import RECIPE, keep
from tslm.runs.recipe import Recipe, read_recipe
from tslm.runs.summary import Split, Summary, read_summary
from tslm.training.metrics import read_metrics


@dataclass(frozen=True)
class Found:
    """A planned run, and what there is of it."""

    run: PlannedRun
    summary: Summary | None
    fault: str | None = None
    """Why a summary that is there cannot be read."""


def find_run(run: PlannedRun, runs: Path | None, results: Path | None) -> Found:
    """Look for a finished run of this very recipe: in its own folder, else in ``results``.

    A summary that cannot be read is no error here: the other place may have a whole one, and other rows have theirs.
    """
    expected = _without_threads(read_recipe(run.recipe, run.overrides))
    own = [] if runs is None else [run.job(runs).folder]
    fault = None
    for folder in (*own, *([] if results is None else [results / run.place])):
        try:
            summary = read_summary(folder)
        except RunError as error:
            fault = fault or str(error)
            continue
        if summary is not None and _without_threads(summary.recipe) == expected:
            return Found(run, summary)
    return Found(run, None, fault)


def find_missing(
    what: str, corpus: str, runs: Path, results: Path | None, only: Sequence[str] = ()
) -> list[PlannedRun]:
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
        if (not only or run.row in only) and find_run(run, runs, results).summary is None
    ]


def keep_finished(what: str, corpus: str, runs: Path, results: Path) -> None:
    """Copy the summaries of a table's or figure's finished runs to ``results``."""
    for run in plan(what, corpus):
        if find_run(run, runs, None).summary is not None:
            keep(run.job(runs).folder, results, run.place)


def count_epochs(run: PlannedRun, runs: Path) -> int:
    """Return how many epochs an unfinished run of this very recipe has behind it."""
    folder = run.job(runs).folder
    expected = _without_threads(read_recipe(run.recipe, run.overrides))
    try:
        begun = _without_threads(read_recipe(folder / RECIPE))
    except RecipeError:  # not begun, or of another version
        return 0
    try:
        return sum("epoch" in entry for entry in read_metrics(folder)) if begun == expected else 0
    except RunError:  # damaged; the run itself can do without it
        return 0


def measured(summary: Summary) -> float:
    """Return the validation perplexity of a figure's point: with the state reset as in training, where it was."""
    windows = summary.training.valid_windows if summary.training is not None else None
    return perplexity_of(summary, "valid") if windows is None else windows


def perplexity_of(summary: Summary, split: Split) -> float:
    """Return a finished run's perplexity on a split.

    Raises:
        RunError: it was not measured there.
    """
    found = summary.splits.get(split)
    if found is None:
        raise RunError(f"the run of {summary.kind} on {summary.corpus.name} was not measured on {split}")
    return found.perplexity


def _without_threads(recipe: Recipe) -> Recipe:
    """How many threads computed it decides the last bits of a result, not what was run."""
    return recipe if recipe.train is None else replace(recipe, train=replace(recipe.train, threads=0))
