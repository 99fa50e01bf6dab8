"""Figure 4, Figure 5. Curves of perplexity against one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from tslm.paper.numbers import show_cell
from tslm.paper.plan import READINGS
from tslm.reports.curves import COLOURS, GREY, to_svg


@dataclass(frozen=True)
class Curve:
    """One cell's perplexities."""

    cell: str
    reading: str
    """The panel that it stands in: ``carried`` or ``reset`` for Figure 4, ``r = m`` or ``m = …`` for Figure 5."""
    points: list[tuple[int, float]]


def show_reading(reading: str) -> str:
    """Return what to call a reading beside its curves."""
    return f"state {reading}" if reading in READINGS else reading


def draw_sweep(curves: Sequence[Curve], letter: str, best: int) -> str:
    """Figure 4, Figure 5. Draw curves side by side, one panel per reading, the paper's best value marked.

    Args:
        curves: those without points are left out.
        letter: what the horizontal axis is, ``n`` or ``r``.
        best: the value that the paper finds best.
    """
    readings = list(dict.fromkeys(curve.reading for curve in curves))
    cells = list(dict.fromkeys(curve.cell for curve in curves))
    figure = Figure(figsize=(5.6 * len(readings) + 0.6, 4.2), layout="constrained")
    # The panels of Figure 5 span different ranks: on one scale the second would be a line.
    panels = figure.subplots(1, len(readings), sharey=letter == "n", squeeze=False)[0]
    values = sorted({x for curve in curves for x, _ in curve.points})
    for panel, reading in zip(panels, readings, strict=True):
        for curve in curves:
            if curve.reading == reading and curve.points:
                panel.plot(
                    *zip(*curve.points, strict=True),
                    "o-",
                    color=COLOURS[cells.index(curve.cell)],
                    label=show_cell(curve.cell),
                    markersize=5,
                )
        if panel.lines:
            panel.axvline(best, color=GREY, linestyle=":", label=f"the paper's best, {letter} = {best}")
            panel.set_xscale("log", base=2)
            panel.xaxis.set_major_locator(FixedLocator(values))
            panel.xaxis.set_minor_locator(NullLocator())
            panel.xaxis.set_major_formatter(ScalarFormatter())
            panel.legend()
        panel.set_xlabel(letter)
        panel.set_title(show_reading(reading))
    panels[0].set_ylabel("validation perplexity")
    return to_svg(figure)
