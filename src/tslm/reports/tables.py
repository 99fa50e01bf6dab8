"""Results as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def show_number(value: float | None, digits: int = 2) -> str:
    """Return a perplexity as text; what JSON could not hold was infinite."""
    return "∞" if value is None or math.isinf(value) else f"{value:.{digits}f}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table of plain texts; columns in which every text begins like a number stand to the right."""
    numbers = [
        bool(rows) and all(row[place].lstrip("*")[:1] in "0123456789–-+" for row in rows)
        for place in range(len(header))
    ]
    lines = [header, ["--:" if number else "---" for number in numbers], *rows]
    return "\n".join("| " + " | ".join(cell.replace("<", "&lt;") for cell in line) + " |" for line in lines)


def show_duration(seconds: float) -> str:
    """Return a training time as text."""
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def print_summary(summary: Mapping[str, Any]) -> None:
    """Print what a finished run has reached."""
    table = Table(title=f"{summary['kind']} on {summary['corpus']['name']}", title_justify="left")
    for column in ("split", "tokens", "perplexity", "reset per line", "bits per word"):
        table.add_column(column, justify="left" if column == "split" else "right")
    for split in ("valid", "test"):
        if split not in summary:
            continue
        report = summary[split]
        table.add_row(
            split,
            f"{report['tokens']:,}",
            show_number(report["perplexity"]),
            show_number(report["perplexity_reset"]),
            show_number(report["bits_per_word"], 3),
        )
    console = Console()
    console.print(table)
    console.print(
        f"{summary['parameters']:,} parameters, {summary['seconds']:.1f} s, "
        f"corpus {summary['corpus']['fingerprint'][:12]}",
        highlight=False,
    )


def print_perplexity(report: Mapping[str, Any]) -> None:
    """Print one perplexity with its protocol."""
    table = Table(
        show_header=False,
        title=f"{report['run']} on {report['corpus']} {report['split']}",
        title_justify="left",
    )
    table.add_column(style="bold")
    table.add_column()
    table.add_row("perplexity", show_number(report["perplexity"], 4))
    table.add_row("reset per line", show_number(report["perplexity_reset"], 4))
    table.add_row("bits per word", show_number(report["bits_per_word"], 4))
    table.add_row("tokens", f"{report['tokens']:,} in {report['lines']:,} lines")
    table.add_row(
        "vocabulary", f"{report['vocabulary']:,} words, {report['unk_share']:.2%} of the tokens <unk>"
    )
    table.add_row("fingerprint", report["fingerprint"][:16])
    table.add_row("protocol", report["protocol"])
    Console().print(table)
