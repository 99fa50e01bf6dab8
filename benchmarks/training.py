"""Training: the recurrence, a whole step, its memory, and how cost grows. Ratios within one run; see --help.

python benchmarks/training.py            # everything, about six minutes
python benchmarks/training.py recurrence # one part
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from report import machine, write_results
from training_memory import STEPS, measure_peak
from training_work import LOSSES, Window, Work, make_loss, make_plain_step, make_training, recur, scan
from tslm.models.recurrent import kernel
from tslm.models.recurrent.cells.gated import GatedConfig

console = Console()
clock = time.perf_counter
"""What times are taken by; see --processor."""

COMPILER = shutil.which(os.environ.get("CXX", "g++")) is not None
GOALS_MB = {"PTB": 1000, "WikiText-2": 3000}
"""The memory a training run may take."""


def best(work: Work, seconds: float = 2.0) -> float:
    """Return the shortest time of one call, in seconds, over about ``seconds`` of calls."""
    work()
    shortest, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = clock()
        work()
        shortest = min(shortest, clock() - start)
    return shortest


def make_table(title: str, *columns: str) -> Table:
    """Return a table whose first column is text and whose others are numbers."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def measure_recurrence() -> list[dict[str, Any]]:
    """Forward and backward of one window: from the words' factors, and from their vectors."""
    before = kernel.active()
    rows = []
    for B, T, R in ((20, 35, 256), (40, 35, 256), (64, 35, 512)):
        torch.manual_seed(0)
        window = Window(B, T, R)
        row: dict[str, Any] = {"B": B, "T": T, "R": R}
        for part, work in (("alone", window.alone), ("with_input_product", window.with_input)):
            times = {}
            for normalise, suffix in ((False, ""), (True, ", normalised")):
                kernel.accelerate(False)
                times["tslm" + suffix] = best(partial(work, scan, normalise))
                times["autograd loop" + suffix] = best(partial(work, recur, normalise))
                if COMPILER:
                    kernel.accelerate()
                    times["tslm, kernel" + suffix] = best(partial(work, scan, normalise))
            row[part] = times
        row["alone"]["products by W alone"] = best(window.products)
        for low, suffix in ((False, ""), (True, ", bfloat16")):
            for fast in (False, True) if COMPILER else (False,):
                kernel.accelerate(fast)
                name = f"tslm, gated{', kernel' if fast else ''}{suffix}"
                row["with_input_product"][name] = best(partial(window.with_gates, low=low))
        row["with_input_product"] |= {name: best(partial(window.pytorch, name)) for name in window.networks}
        for part in ("alone", "with_input_product"):
            row[part] = {name: 1e3 * seconds for name, seconds in row[part].items()}
        rows.append(row)
    kernel.accelerate(before is not None)
    sizes = [f"{row['B']} × {row['T']} × {row['R']}" for row in rows]
    for part, title in (
        ("alone", "recurrence alone, from the words' factors, forward + backward"),
        (
            "with_input_product",
            "recurrence with the input product, from the words' vectors, forward + backward",
        ),
    ):
        table = make_table(f"{title}, ms (ratio to tslm; to its kernel)", "B × T × R", *sizes)
        for name in rows[0][part]:
            table.add_row(name, *(_show_ratios(row[part], name) for row in rows))
        console.print(table)
    table = make_table("nn.LSTM takes how many times as long as", "B × T × R", *sizes)
    for name in (name for name in rows[0]["with_input_product"] if name.startswith("tslm, gated")):
        times = [row["with_input_product"] for row in rows]
        table.add_row(name, *(f"{by['nn.LSTM'] / by[name]:.2f}×" for by in times))
    console.print(table)
    return rows


def _show_ratios(times: dict[str, float], name: str) -> str:
    """Return the time of one road and how many times that of ours it is, normalised beside normalised."""
    suffix = ", normalised" if name.endswith("normalised") else ""
    own = [times[ours + suffix] for ours in ("tslm", "tslm, kernel") if ours + suffix in times]
    return f"{times[name]:.2f} ({'; '.join(f'{times[name] / ours:.2f}×' for ours in own)})"


def peak_flops(N: int, M: int, V: int) -> float:
    """Return the rate of the output layer's three products, each into memory that is already there."""
    latents_NM, weight_VM = torch.randn(N, M), torch.randn(V, M)
    logits_NV, latents2_NM, weight2_VM = torch.empty(N, V), torch.empty(N, M), torch.empty(V, M)

    def products() -> None:
        torch.mm(latents_NM, weight_VM.t(), out=logits_NV)
        torch.mm(logits_NV, weight_VM, out=latents2_NM)
        torch.mm(logits_NV.t(), latents_NM, out=weight2_VM)

    return 6 * N * M * V / best(products)


def measure_losses() -> dict[str, dict[str, float]]:
    """Return the time and the memory of the output layer and its loss, forward and backward, by every road."""
    N, M, V = 700, 256, 10_000
    inputs = measure_peak("nothing")
    rows = {
        road: {
            "milliseconds": 1e3 * best(make_loss(road, N, M, V)),
            "peak_mb_beyond_inputs": measure_peak(road) - inputs,
        }
        for road in LOSSES
    }
    rows["three products alone"] = {"milliseconds": 1e3 * 6 * N * M * V / peak_flops(N, M, V)}
    title = "output layer and loss, 700 tokens, 256 × 10,000, forward + backward"
    table = make_table(title, "road", "ms", "peak MB beyond the inputs")
    for name, row in rows.items():
        memory = row.get("peak_mb_beyond_inputs")
        table.add_row(name, f"{row['milliseconds']:.1f}", "–" if memory is None else f"{memory:.0f}")
    console.print(table)
    return rows


def measure_memory() -> dict[str, dict[str, float]]:
    """Return the peak of whole processes that train for 20 steps and evaluate 10,000 tokens with the full softmax."""
    table = make_table("peak memory of training and evaluation", "what", "MB", "goal")
    rows = {}
    for name in STEPS:
        rows[name] = {"peak_mb": measure_peak(name), "goal_mb": GOALS_MB[name.split()[0]]}
        table.add_row(name, f"{rows[name]['peak_mb']:.0f}", f"< {rows[name]['goal_mb']}")
    console.print(table)
    return rows


def measure_step() -> dict[str, Any]:
    """Return a whole PTB step against the matrix-multiply peak of the same run."""
    B, T, R, V = 20, 35, 256, 10_000
    tokens = B * T
    peak = peak_flops(tokens, R, V)
    needed = 6 * tokens * R * V + 6 * tokens * 2 * R * R
    rows: dict[str, float] = {}
    before = kernel.active()
    for suffix in ("", ", kernel") if COMPILER else ("",):
        kernel.accelerate(bool(suffix))
        rows[f"tslm, full softmax{suffix}"] = best(make_training(V, R, T, B)[1])
        sampled = make_training(V, R, T, B, frequent=1000, sampled=1000)[1]
        rows[f"tslm, sampled 1000 + 1000{suffix}"] = best(sampled)
        for low, precision in ((False, ""), (True, ", bfloat16")):
            cell = {"cell": GatedConfig(), "output_gate": "linear", "low": low}
            gated = make_training(V, R, T, B, frequent=1000, sampled=1000, **cell)[1]
            rows[f"tslm, gated, sampled 1000 + 1000{suffix}{precision}"] = best(gated)
    kernel.accelerate(before is not None)
    rows["nn.LSTM + nn.Linear + cross_entropy"] = best(make_plain_step(V, R, T, B))
    title = f"training step, PTB 256 × 1, batch 20 × 35 (peak {peak / 1e9:.0f} GFLOP/s)"
    table = make_table(title, "step", "ms", "tokens/s", "share of the peak")
    for name, seconds in rows.items():
        share = f"{needed / seconds / peak:.0%}" if "sampled" not in name and "LSTM" not in name else "–"
        table.add_row(name, f"{1e3 * seconds:.1f}", f"{tokens / seconds:,.0f}", share)
    console.print(table)
    return {
        "peak_gflops": peak / 1e9,
        "needed_gflop": needed / 1e9,
        "milliseconds": {name: 1e3 * seconds for name, seconds in rows.items()},
        "share_of_peak": {
            name: needed / seconds / peak for name, seconds in rows.items() if "full softmax" in name
        },
        "sampled_speed_up": {
            name: seconds / rows[name.replace("full softmax", "sampled 1000 + 1000")]
            for name, seconds in rows.items()
            if "full softmax" in name
        },
    }


def measure_profile() -> dict[str, float]:
    """Return where the time of a full-softmax step goes, by operator."""
    _, step = make_training(10_000, 256, 35, 20)
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(5):
            step()
    events = sorted(profile.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    table = make_table("where a full-softmax step spends its time", "operator", "share")
    shares = {event.key: event.self_cpu_time_total / total for event in events[:12]}
    for name, share in shares.items():
        table.add_row(name, f"{share:.1%}")
    console.print(table)
    return shares


def measure_growth() -> list[dict[str, Any]]:
    """Return tokens/s of the full-softmax step while one size at a time grows."""
    base = {"V": 10_000, "R": 256, "T": 35, "B": 20}
    rows = []
    for name, values in {
        "V": (2_500, 5_000, 10_000, 20_000, 40_000),
        "R": (64, 128, 256, 512),
        "T": (9, 18, 35, 70),
        "B": (5, 10, 20, 40, 80),
    }.items():
        for value in values:
            sizes = {**base, name: value}
            seconds = best(make_training(**sizes)[1], seconds=1.0)
            rows.append(
                {"size": name, "value": value, "tokens_per_second": sizes["B"] * sizes["T"] / seconds}
            )
    _plot_growth(rows)
    return rows


def _plot_growth(rows: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2.8), layout="constrained")
    for axes, name in zip(figure.subplots(1, 4, sharey=True), "VRTB", strict=True):
        points = [(row["value"], row["tokens_per_second"]) for row in rows if row["size"] == name]
        axes.loglog(*zip(*points, strict=True), marker="o", color="#3b7dd8")
        axes.set_xlabel(name)
        axes.grid(alpha=0.3, which="both")
    figure.axes[0].set_ylabel("tokens/s")
    path = Path(__file__).parent / "results" / "training_growth.svg"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    console.print(f"the growth of cost: {path.name}")


PARTS = {
    "recurrence": measure_recurrence,
    "losses": measure_losses,
    "memory": measure_memory,
    "step": measure_step,
    "profile": measure_profile,
    "growth": measure_growth,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument(
        "--processor",
        action="store_true",
        help="processor time, on a busy machine (OMP_NUM_THREADS=1); nothing is written",
    )
    arguments = parser.parse_args()
    console.print(machine())
    if arguments.processor:
        clock = time.process_time
    found = {part: PARTS[part]() for part in arguments.parts or PARTS}
    if not arguments.processor:
        write_results("training", found)
