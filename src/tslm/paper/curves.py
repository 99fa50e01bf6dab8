"""How the cells learn: valid against train perplexity, from the metrics of kept runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tslm.paper.numbers import TABLE_2
from tslm.reports.curves import COLOURS, GREY, to_svg
from tslm.tables import markdown_table, show_number
from tslm.training.metrics import read_metrics

ROWS = ("lstm", "gated", "rnn", "tslm")
"""One softmax each, the first seed."""


def read_epochs(corpus: str, results: Path) -> dict[str, list[dict[str, Any]]]:
    """Return row → what was measured at the end of each epoch, for the rows that have been run."""
    found = {row: read_metrics(results / corpus / row) for row in ROWS}
    epochs = {row: [entry for entry in entries if "epoch" in entry] for row, entries in found.items()}
    return {row: entries for row, entries in epochs.items() if entries}


def make_ratios(corpus: str, results: Path) -> str:
    """Return as Markdown how far each cell's validation lies above its training at the end."""
    rows = [
        [
            TABLE_2[corpus][row].name,
            str(last["epoch"]),
            show_number(last["train_perplexity"]),
            show_number(last["valid_perplexity"]),
            f"{last['valid_perplexity'] / last['train_perplexity']:.2f}",
        ]
        for row, entries in read_epochs(corpus, results).items()
        for last in entries[-1:]
    ]
    return markdown_table(["cell", "epochs", "train, with dropout", "valid", "valid / train"], rows)


def draw_generalisation(corpus: str, results: Path) -> str:
    """Return the figure "valid against train perplexity", a point per epoch: lower is better at equal fit."""
    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    axes = figure.subplots()
    for colour, (row, entries) in zip(COLOURS, read_epochs(corpus, results).items(), strict=False):
        axes.plot(
            [entry["train_perplexity"] for entry in entries],
            [entry["valid_perplexity"] for entry in entries],
            color=colour,
            label=TABLE_2[corpus][row].name,
            marker="o",
            markersize=3,
        )
    low, high = 75.0, 200.0
    axes.plot([low, high], [low, high], color=GREY, linestyle=":", linewidth=1)
    axes.set(xscale="log", yscale="log", xlim=(high, low), ylim=(low, high))
    axes.set(xlabel="train perplexity, with dropout", ylabel="valid perplexity")
    for axis in (axes.xaxis, axes.yaxis):
        # Perplexities in plain numbers, not in powers of ten.
        axis.set_ticks(values := [80, 90, 100, 120, 140, 160, 180, 200], labels=list(map(str, values)))
        axis.set_ticks([], minor=True)
    axes.set_title(f"{corpus}: what is learnt and what of it generalises, epoch by epoch")
    axes.legend()
    return to_svg(figure)
