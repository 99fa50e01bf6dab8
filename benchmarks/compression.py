"""A trained model at lower ranks: its bond cut, units chosen, trained on, and trained at that rank from the start.

    python benchmarks/compression.py runs                 # trains what is not there: about an hour on one core
    python benchmarks/compression.py --draw               # table and figure again from what was measured

In the folder it keeps ``gated-192`` (``asv/gated``), ``gated-R`` trained from the start, and ``tuned-R`` compressed and
trained on for an epoch.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tslm
from report import write_results
from tslm.evaluation.perplexity import evaluate
from tslm.inference.balance import balance, observe, read_states
from tslm.inference.compress import TIMED, measure_speed
from tslm.inference.compression import compress_model, make_columns
from tslm.models.recurrent.model import RecurrentModel
from tslm.tables import markdown_table

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "compression.json"
FIGURE = HERE.parent / "docs" / "images" / "compression.svg"
RANK = 192
RANKS = (32, 64, 96, 128, 160)
TRAINED = (32, 64, 128)
"""Ranks at which a model is trained from the start, and a compressed one is trained on."""
SERIES = {
    "bond": "bond cut, every word a matrix of its own",
    "units": "units chosen (tslm compress)",
    "tuned": "… and trained on for 1 epoch (--tune 1)",
    "scratch": "trained at that rank, 4 epochs",
}


def measure(folder: Path) -> dict[str, Any]:
    run = _train(folder / f"gated-{RANK}", RANK)
    model, corpus = run.model, run.open_corpus()
    valid = corpus.splits["valid"]
    rows: dict[str, dict[str, Any]] = {str(rank): {} for rank in (*RANKS, RANK)}
    rows[str(RANK)]["whole"] = run.summary.valid.perplexity
    for rank in RANKS:
        smaller = compress_model(model, corpus.splits["train"], rank)
        rows[str(rank)]["units"] = evaluate(smaller, valid).perplexity
        print(rank, rows[str(rank)], flush=True)
    for rank, perplexity in _cut_bonds(model, corpus.splits["train"], valid).items():
        rows[str(rank)]["bond"] = perplexity
    for rank in TRAINED:
        rows[str(rank)]["scratch"] = _train(folder / f"gated-{rank}", rank).summary.valid.perplexity
        tuned = folder / f"tuned-{rank}"
        if not (tuned / "summary.json").exists():
            tslm.compress(run, tuned, rank=rank, tune=1)
        rows[str(rank)]["tuned"] = tslm.open_run(tuned).summary.valid.perplexity
    return {"corpus": corpus.name, "recipe": "asv/gated", "split": "valid", "ranks": rows}


def measure_sizes(folder: Path, rounds: int = 5) -> dict[str, dict[str, Any]]:
    """Return numbers and speed at every rank, ranks taken in turns; neither depends on what the weights are."""
    run = tslm.open_run(folder / f"gated-{RANK}")
    words_BT = np.resize(run.open_corpus().splits["valid"], TIMED)
    models = {
        rank: RecurrentModel(replace(run.recipe.model, rank=rank), run.vocabulary).eval()
        for rank in (*RANKS, RANK)
    }
    sizes: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for rank, model in models.items():
            speeds = measure_speed(model, words_BT)
            words = model.embedding.numel() + model.bias.numel()
            found = sizes.setdefault(
                str(rank),
                {"parameters": model.parameter_count, "recurrent_parameters": model.parameter_count - words},
            )
            for name, speed in zip(("recurrence_per_second", "words_per_second"), speeds, strict=True):
                found[name] = max(round(speed), found.get(name, 0))
    return sizes


def _train(folder: Path, rank: int) -> Any:
    if not (folder / "summary.json").exists():
        tslm.train("asv/gated", folder, overrides=[f"model.rank={rank}", "train.threads=1"])
    return tslm.open_run(folder)


@torch.no_grad()
def _cut_bonds(model: RecurrentModel, ids: Any, valid: Any) -> dict[int, float]:
    """Return the perplexity with the state projected behind every word: h → μ + X Yᵀ (h − μ)."""
    columns, cell = make_columns(ids, 40_000), model.cell(0)
    states = read_states(model, columns).states_NR
    _, left, right = balance(states, observe(model, columns[:160]))
    mean, W = states.mean(0).float(), cell.recurrent_weight()
    found: dict[int, float] = {}
    for rank in RANKS:
        projector = (left[:, :rank] @ right[:, :rank].mT).float()

        def forward(words_TBM: Any, state: Any, projector: Any = projector) -> Any:
            hold, mix, add, _ = cell.affine_parts(words_TBM)
            h, states = state[0], []
            for t in range(len(hold)):
                h = hold[t] * h + mix[t] * (h @ W.t()) + add[t]
                h = mean + (h - mean) @ projector.t()
                states.append(h)
            return torch.stack(states), (h,)

        cell.forward = forward
        found[rank] = evaluate(model, valid).perplexity
        del cell.forward
    return found


def make_table(results: dict[str, Any]) -> str:
    """Return the table of ``docs/compression.md``."""
    counts = ("recurrent_parameters", "recurrence_per_second", "words_per_second")
    lines: list[list[str]] = []
    for rank, row in sorted(results["ranks"].items(), key=lambda entry: -int(entry[0])):
        shown = [f"{row[name]:.2f}" if name in row else "–" for name in ("whole", *SERIES)]
        size = results["sizes"][rank]
        lines.append([rank, *shown, *[f"{size[name]:,}" for name in counts]])
    header = ["rank", "whole", "bond cut", "units chosen", "+ 1 epoch", "from the start", "numbers"]
    return markdown_table([*header, "words/s, recurrence", "words/s, softmax too"], lines)


def draw(results: dict[str, Any]) -> None:
    """Draw perplexity against rank."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tslm"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2))
    whole = results["ranks"][str(RANK)]["whole"]
    axes.axhline(whole, color="grey", linewidth=1, label=f"the whole model, rank {RANK}")
    for (name, label), marker in zip(SERIES.items(), "sovD", strict=True):
        points = sorted((int(rank), row[name]) for rank, row in results["ranks"].items() if name in row)
        axes.plot(*zip(*points, strict=True), marker=marker, markersize=5, label=label)
    axes.set(xlabel="rank", ylabel="perplexity on valid (log scale)", yscale="log", xticks=[*RANKS, RANK])
    ticks = [30, 40, 50, 70, 100, 150]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:] != ["--draw"]:
        folder = Path(sys.argv[1])
        write_results("compression", measure(folder) | {"sizes": measure_sizes(folder)})
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert math.isfinite(results["ranks"][str(RANK)]["whole"])
    draw(results)
    print(make_table(results))


if __name__ == "__main__":
    main()
