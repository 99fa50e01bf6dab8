"""Table 2, Figure 4, Figure 5. Which runs make them: every row and every point is a recipe with a few changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tslm.errors import RecipeError, nearest
from tslm.paper.numbers import FIGURE_4, FIGURE_5, TABLE_2
from tslm.runs.queue import Job

CELLS = ("tslm", "rnn", "lstm")
LENGTHS = (5, 15, 30, 60)
"""n of Figure 4, beside the one that the paper finds best."""
RANKS = (16, 32, 64, 128, 256, 512)
"""r of Figure 5, with r = m."""
READINGS = ("carried", "reset")
"""Carried, n only limits back-propagation; started anew every n words, n is the order of the tensor."""
REPEATED = ("tslm", "lstm", "rnn", "gated-spelling")
"""The rows of PTB's Table 2 that are run with a second seed."""

OWN = ("kn5", "tslm", "lstm", "rnn", "gated", "tslm-mos", "rnn-mos")
"""The rows the paper measured itself, and the gated TSLM. They come first: a short budget reaches them."""

FURTHER = {
    "ptb": (
        *("gated-decay", "lstm-decay", "gated-768", "gated-mos-768"),
        *("gated-spelling", "lstm-spelling", "gated-768-spelling", "gated-mos-spelling"),
        *("gated-product", "lstm-product", "gated-768-product"),
        *("gated-cascade", "gated-768-cascade"),
    ),
    "wikitext-2": (
        *("gated-decay", "gated-even"),
        *("gated-spelling", "lstm-spelling", "gated-stack", "gated-mos", "gated-product"),
    ),
}
"""Ours: the gated TSLM and the LSTM with decay of their matrices, larger ones, with a mixture, in two layers, with
words that move as they are spelt (``train.spelling``), read out through products of the state, and in a cascade."""

CITED = ("rnn-300", "lstm-200x2", "lstm-650x2", "lstm-1024")
"""The rows the paper cites; the last two take many hours on a CPU."""

SHORT = ("train.epochs=2", "train.test=false", "objective.frequent=600", "objective.sampled=400")
"""The equal, small budget of every point of a figure. Validation alone is read: a figure chooses."""

STEP_TOKENS = 1400
"""Words per step, whatever n is: every point reads as many words, in as many steps to within two per cent."""


@dataclass(frozen=True)
class PlannedRun:
    """One run that a table or figure is made of."""

    row: str
    """The recipe's name: a row of Table 2, a curve of a figure."""
    recipe: str
    place: str
    """Where its summary lies below ``results/``."""
    overrides: tuple[str, ...] = ()
    value: int = 0
    """n or r, for a figure."""
    readings: tuple[str, ...] = ()
    """The curves of a figure that it is a point of."""

    def job(self, runs: Path) -> Job:
        """Return it as a job; the rows of Table 2 live where ``tslm train`` puts them."""
        corpus, _, name = self.place.partition("/")
        folder = runs / f"{corpus}-{name}" if "/" not in name else runs / self.place
        return Job(self.recipe, folder, self.overrides)


def expand(what: str, corpus: str | None = None) -> list[tuple[str, str]]:
    """Return what to report on which corpus; ``all`` is every table, and the figures of the first corpus."""
    if what != "all":
        return [(what, corpus or "ptb")]
    corpora = [corpus] if corpus else list(TABLE_2)
    tables = [("table1", corpora[0]), *(("table2", name) for name in corpora)]
    return tables + [(figure, corpora[0]) for figure in ("figure4", "figure5")]


def plan(what: str, corpus: str = "ptb") -> list[PlannedRun]:
    """Return the runs of ``table2``, ``figure4`` or ``figure5``, the most telling first; ``table1`` needs none."""
    plans = {"table2": plan_table2, "figure4": plan_figure4, "figure5": plan_figure5}
    if what == "table1":
        return []
    if what not in plans:
        raise RecipeError(f"nothing is planned for {what!r}: {nearest(what, list(plans))}")
    if corpus not in TABLE_2:
        raise RecipeError(f"the paper has no numbers for {corpus!r}: {nearest(corpus, list(TABLE_2))}")
    return plans[what](corpus)


def check_rows(names: Sequence[str], wanted: Sequence[tuple[str, str]]) -> None:
    """Refuse a name that is no row and no cell: a slip of the pen would train nothing at all."""
    rows = {run.row for what, corpus in wanted for run in plan(what, corpus)}
    for name in names:
        if name not in rows:
            raise RecipeError(f"--only {name}: there is no such row or cell here; {nearest(name, rows)}")


def plan_table2(corpus: str) -> list[PlannedRun]:
    """Table 2. Return the runs of all rows: the paper's own, their further seeds, more of ours, the cited."""
    first = [PlannedRun(name, f"{corpus}/{name}", f"{corpus}/{name}") for name in OWN]
    again = [
        PlannedRun(name, f"{corpus}/{name}", f"{corpus}/{name}-seed2", ("train.seed=2",))
        for name in (REPEATED if corpus == "ptb" else ())
    ]
    last = [PlannedRun(name, f"{corpus}/{name}", f"{corpus}/{name}") for name in (*FURTHER[corpus], *CITED)]
    return first + again + last


def plan_figure4(corpus: str) -> list[PlannedRun]:
    """Figure 4. Return one short run per cell, reading and length n."""
    return [
        PlannedRun(
            cell,
            f"{corpus}/{cell}",
            f"figure-4/{corpus}/{cell}-{reading}-{n}",
            (
                *SHORT,
                f"train.window={n}",
                f"train.batch={round(STEP_TOKENS / n)}",
                f'train.state="{reading}"',
            ),
            n,
            (reading,),
        )
        for n in _outside_in(tuple(sorted({*LENGTHS, FIGURE_4[corpus]})))
        for reading in READINGS
        for cell in CELLS
    ]


def plan_figure5(corpus: str) -> list[PlannedRun]:
    """Figure 5. Return one short run per cell and rank r: with r = m as in the paper, and around its best m."""
    best = FIGURE_5[corpus]
    equal, fixed = rank_readings(corpus)
    sizes = [(r, r, (equal, fixed) if r == best else (equal,)) for r in _outside_in(RANKS)]
    sizes += [(r, best, (fixed,)) for r in (2 * best, best // 2)]
    return [
        PlannedRun(
            cell,
            f"{corpus}/{cell}",
            f"figure-5/{corpus}/{cell}-{r}" + ("" if r == m else f"-of-{m}"),
            (*SHORT, f"model.rank={r}", f"model.embedding={m}"),
            r,
            readings,
        )
        for r, m, readings in sizes
        for cell in (*CELLS, "gated")
    ]


def rank_readings(corpus: str) -> tuple[str, str]:
    """Return the names of the rank's curves: r and m growing together, and r alone."""
    return "r = m", f"m = {FIGURE_5[corpus]}"


def _outside_in(values: tuple[int, ...]) -> list[int]:
    """Both ends first: a curve that is broken off by the budget still spans its range."""
    return sorted(values, key=lambda value: min(values.index(value), len(values) - 1 - values.index(value)))
