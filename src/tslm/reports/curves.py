"""A run's metrics as curves."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, ScalarFormatter

COLOURS = ("#3b7dd8", "#d9822b", "#2e9e6b", "#b5508d")
"""Told apart on a white and on a dark page, and by colour-blind readers."""

GREY = "#808890"


def draw_curves(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the curves of a ``metrics.jsonl`` as SVGs side by side: perplexity, loss, norms.

    Each is a picture of its own, so that on a phone they stand one below the other and can be read.

    Args:
        entries: the lines of ``metrics.jsonl``; those with ``epoch`` end an epoch, the others follow steps.
    """
    epochs = [entry for entry in entries if "epoch" in entry]
    steps = [entry for entry in entries if "epoch" not in entry]
    of_steps = {
        "training loss": {"loss": "loss per token, nats"},
        "gradient norm": {"gradient_norm": "before clipping"},
        "the state": {"state_norm": "root mean square of h", "spectral_radius": "spectral radius of W"},
    }
    of_epochs = {"train_perplexity": "train (with dropout)", "valid_perplexity": "valid"}
    pictures = [_draw("perplexity", epochs, "epoch", of_epochs)]
    pictures += [_draw(title, steps, "step", curves) for title, curves in of_steps.items()]
    return f'<div class="curves">{"".join(pictures)}</div>'


def _draw(title: str, entries: Sequence[Mapping[str, Any]], x: str, curves: Mapping[str, str]) -> str:
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    _plot(axes, entries, x, curves)
    axes.set_title(title)
    if x == "epoch":
        axes.set_yscale("log")
        # Perplexities as people write them, not as powers of ten; epochs are whole.
        low, high = axes.get_ylim()
        narrow = high < 3 * low
        axes.yaxis.set_major_locator(MaxNLocator(6) if narrow else LogLocator(subs=(1, 2, 3, 5)))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return to_svg(figure, title)


def to_svg(figure: Figure, name: str = "") -> str:
    """Return a figure as an SVG element that stands on a light or a dark page.

    Args:
        figure: what to draw.
        name: tells it from the other figures of a page, whose parts must not have the same ids.
    """
    for axes in figure.axes:
        axes.set_facecolor("none")
        axes.grid(color=GREY, alpha=0.25)
        axes.tick_params(colors=GREY, which="both")
        axes.title.set_color(GREY)
        axes.xaxis.label.set_color(GREY)
        axes.yaxis.label.set_color(GREY)
        for spine in axes.spines.values():
            spine.set_edgecolor(GREY)
        legend = axes.get_legend()
        if legend is not None:
            legend.get_frame().set_alpha(0)
            for text in legend.get_texts():
                text.set_color(GREY)
    buffer = io.StringIO()
    # A fixed salt: the same figure is the same file.
    with rc_context({"svg.hashsalt": f"tslm{name}"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _plot(axes: Axes, entries: Sequence[Mapping[str, Any]], x: str, curves: Mapping[str, str]) -> None:
    for colour, (key, label) in zip(COLOURS, curves.items(), strict=False):
        points = [(entry[x], entry[key]) for entry in entries if key in entry]
        if points:
            marker = "o" if len(points) < 40 else ""
            axes.plot(*zip(*points, strict=True), color=colour, label=label, marker=marker, markersize=3)
    axes.set_xlabel(x)
    if axes.lines:
        axes.legend()
