"""A run's metrics as curves."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#3b7dd8", "#d9822b", "#2e9e6b", "#b5508d")
"""Told apart on a white and on a dark page, and by colour-blind readers."""

GREY = "#808890"


def draw_curves(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the curves of a ``metrics.jsonl`` as one SVG: perplexity, loss, norms.

    Args:
        entries: the lines of ``metrics.jsonl``; those with ``epoch`` end an epoch, the others follow steps.
    """
    epochs = [entry for entry in entries if "epoch" in entry]
    steps = [entry for entry in entries if "epoch" not in entry]
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    perplexity, loss, gradient, state = figure.subplots(2, 2).flat
    _plot(
        perplexity, epochs, "epoch", {"train_perplexity": "train (with dropout)", "valid_perplexity": "valid"}
    )
    perplexity.set_title("perplexity")
    perplexity.set_yscale("log")
    _plot(loss, steps, "step", {"loss": "loss per token, nats"})
    loss.set_title("training loss")
    _plot(gradient, steps, "step", {"gradient_norm": "before clipping"})
    gradient.set_title("gradient norm")
    _plot(
        state,
        steps,
        "step",
        {"state_norm": "root mean square of h", "spectral_radius": "spectral radius of W"},
    )
    state.set_title("the state")
    return to_svg(figure)


def to_svg(figure: Figure) -> str:
    """Return a figure as an SVG element that stands on a light or a dark page."""
    for axes in figure.axes:
        axes.set_facecolor("none")
        axes.grid(color=GREY, alpha=0.25)
        axes.tick_params(colors=GREY)
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
    with rc_context({"svg.hashsalt": "tslm"}):
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
