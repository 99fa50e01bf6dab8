"""Results as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tslm.inference.evaluate import Evaluation
from tslm.runs.summary import Summary


def show_number(value: float | None, digits: int = 2) -> str:
    """Return a perplexity as text; one that was not measured is a dash."""
    if value is None:
        return "–"
    return "∞" if math.isinf(value) else f"{value:.{digits}f}"


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


def print_summary(summary: Summary) -> None:
    """Print what a finished run has reached."""
    table = Table(title=f"{summary.kind} on {escape(summary.corpus.name)}", title_justify="left")
    for column in ("split", "tokens", "perplexity", "reset per line", "bits per word"):
        table.add_column(column, justify="left" if column == "split" else "right")
    for split, found in summary.splits.items():
        table.add_row(
            split,
            f"{found.tokens:,}",
            show_number(found.perplexity),
            show_number(found.perplexity_reset),
            show_number(found.bits_per_word, 3),
        )
    console = Console()
    if summary.splits:
        console.print(table)
    facts = [f"{summary.parameters:,} parameters"]
    if summary.seconds is not None:
        facts.append(f"{summary.seconds:.1f} s")
    facts.append(f"corpus {summary.corpus.fingerprint[:12]}")
    console.print(", ".join(facts), highlight=False)


def print_evaluation(evaluation: Evaluation) -> None:
    """Print one perplexity with its protocol."""
    measured = evaluation.measured
    table = Table(
        show_header=False,
        title=escape(f"{evaluation.run} on {evaluation.corpus} {evaluation.split}"),
        title_justify="left",
    )
    table.add_column(style="bold")
    table.add_column()
    table.add_row("perplexity", show_number(measured.perplexity, 4))
    table.add_row("reset per line", show_number(measured.perplexity_reset, 4))
    table.add_row("bits per word", show_number(measured.bits_per_word, 4))
    table.add_row("tokens", f"{measured.tokens:,} in {measured.lines:,} lines")
    table.add_row(
        "vocabulary", f"{measured.vocabulary:,} words, {measured.unk_share:.2%} of the tokens <unk>"
    )
    table.add_row("fingerprint", evaluation.fingerprint[:16])
    table.add_row("protocol", measured.protocol)
    Console().print(table)
