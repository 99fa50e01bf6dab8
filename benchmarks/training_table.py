"""``results/training.json`` as Markdown, for reading: python benchmarks/training_table.py"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from report import describe, read_results
from tslm.tables import markdown_table

RESULTS = Path(__file__).parent / "results"


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], measured: str) -> str:
    return f"## {title}\n\n{measured}\n\n{markdown_table(header, list(rows))}"


def recurrence(windows: Sequence[dict[str, Any]], part: str, title: str, measured: str) -> str:
    header = ["ms (ratio to tslm; to its kernel)", *(f"{w['B']} × {w['T']} × {w['R']}" for w in windows)]

    def cell(times: dict[str, float], name: str) -> str:
        suffix = ", normalised" if name.endswith(", normalised") else ""
        kernel = times.get(f"tslm, kernel{suffix}")
        second = f"; {times[name] / kernel:.2f}×" if kernel else ""
        return f"{times[name]:.2f} ({times[name] / times[f'tslm{suffix}']:.2f}×{second})"

    rows = ([name, *(cell(w[part], name) for w in windows)] for name in windows[0][part])
    return table(title, header, rows, measured)


def against_lstm(windows: Sequence[dict[str, Any]], measured: str) -> str:
    header = ["nn.LSTM takes, times as long as", *(f"{w['B']} × {w['T']} × {w['R']}" for w in windows)]
    times = [window["with_input_product"] for window in windows]
    names = [name for name in times[0] if name.startswith("tslm, gated")]
    rows = ([name, *(f"{by['nn.LSTM'] / by[name]:.2f}×" for by in times)] for name in names)
    return table("The gated cell against nn.LSTM", header, rows, measured)


def make_markdown(results: dict[str, Any]) -> str:
    step, windows = results["step"], results["recurrence"]
    measured = {part: describe([(part, machine)]) for part, machine in results["machines"].items()}
    speed_up = "; ".join(f"{name}: {ratio:.2f}×" for name, ratio in step["sampled_speed_up"].items())
    parts = [
        "# Training, measured",
        "Made from `training.json`. Parts were measured on different machines: compare within a part.",
        recurrence(windows, "alone", "Recurrence alone, forward + backward", measured["recurrence"]),
        recurrence(
            windows, "with_input_product", "Recurrence with the input product", measured["recurrence"]
        ),
        against_lstm(windows, measured["recurrence"]),
        table(
            "Output layer and loss, 700 tokens, 256 × 10,000",
            ["road", "ms", "peak MB beyond the inputs"],
            (
                [name, f"{row['milliseconds']:.1f}", _megabytes(row.get("peak_mb_beyond_inputs"))]
                for name, row in results["losses"].items()
            ),
            measured["losses"],
        ),
        table(
            f"Training step, PTB 256 × 1, batch 20 × 35 (peak {step['peak_gflops']:.0f} GFLOP/s)",
            ["step", "ms", "tokens/s", "share of the peak"],
            (
                [name, f"{ms:.1f}", f"{700 / ms * 1e3:,.0f}", _share(step["share_of_peak"].get(name))]
                for name, ms in step["milliseconds"].items()
            ),
            measured["step"],
        ),
        f"The sampled step against the full one: {speed_up}.",
        table(
            "Peak memory of training and evaluation",
            ["what", "MB", "goal"],
            (
                [name, f"{row['peak_mb']:.0f}", f"< {row['goal_mb']}"]
                for name, row in results["memory"].items()
            ),
            measured["memory"],
        ),
        table(
            "Where a full-softmax step spends its time",
            ["operator", "share"],
            ([name, f"{share:.1%}"] for name, share in results["profile"].items()),
            measured["profile"],
        ),
        f"## How cost grows\n\n{measured['growth']}\n\n![tokens per second against V, R, T and B](training_growth.svg)",
    ]
    return "\n\n".join(parts) + "\n"


def _megabytes(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


if __name__ == "__main__":
    text = make_markdown(read_results("training"))
    (RESULTS / "training.md").write_text(text, encoding="utf-8")
    print(text)
