"""Results as tables for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tslm.inference.evaluate import Evaluation
from tslm.runs.summary import Summary
from tslm.tables import show_number


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
    table = Table(
        show_header=False,
        title=escape(f"{evaluation.run} on {evaluation.corpus} {evaluation.split}"),
        title_justify="left",
    )
    table.add_column(style="bold")
    table.add_column()
    for name, value in evaluation.rows():
        table.add_row(name, escape(value))
    Console().print(table)
