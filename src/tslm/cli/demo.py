"""``tslm demo``: the main job on the embedded corpus."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

EXAMPLES = """examples:
  tslm demo
  tslm demo --quick
  tslm demo --out somewhere --json"""

ODD = 7.0
"""Nats of surprise: a word of a probability below one in a thousand is marked."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "demo",
        help="train and use two models on the embedded corpus",
        description="Train KN-5 and a TSLM on the embedded corpus, compare them, generate, fill blanks, report.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", metavar="FOLDER", default="demo", help="where runs and report go (default: demo)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="use the models that come with tslm: no training, seconds"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import json
    import sys
    from pathlib import Path

    from tslm.reports.demo import run_demo
    from tslm.training.watcher import Terminal

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    found = run_demo(Path(arguments.out), tell, Terminal(), quick=arguments.quick)
    if arguments.json:
        print(json.dumps(found))
    else:
        _print(found)
    return 0


def _print(found: dict[str, Any]) -> None:
    """Print what was found, for people."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from tslm.tables import show_duration

    console = Console(highlight=False, soft_wrap=True)
    table = Table(title="perplexity, lower is better", title_justify="left")
    for column in ("model", "valid", "test", "parameters", "learnt in"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for name, splits in found["perplexity"].items():
        model = found["models"][name]
        cells = (f"{splits['valid']:.2f}", f"{splits['test']:.2f}", f"{model['parameters']:,}")
        table.add_row(name, *cells, "" if model["seconds"] is None else show_duration(model["seconds"]))
    console.print(table)
    for name, sentences in found["scored"].items():
        console.print(f"\n[bold]{name}: perplexity of sentences, surprising words marked[/bold]")
        for entry in sentences:
            console.print(_mark(entry, plain=console.color_system is None))
    if found.get("effects") is not None:
        console.print(
            "\n[bold]TSLM: which earlier word made each word likely (+) or unlikely (-), nats[/bold]"
        )
        for line in _draw_effects(found["effects"]):
            console.print(line)
    for name, texts in found["generated"].items():
        console.print(f"\n[bold]{name}: generated[/bold]")
        for text in texts:
            console.print(f"  {escape(text)}")
    console.print(f'\n[bold]"{found["pattern"]}", both blanks filled exactly by KN-5[/bold]')
    for entry in found["filled"]:
        console.print(f"  {entry['probability']:6.2%}  {escape(entry['text'])}")
    console.print(f"\nthe same with pictures: [bold]{escape(found['report'])}[/bold]\n\ntry next:")
    for entry in found["next"]:
        console.print(f"  {escape(entry['command'])}\n      [dim]{escape(entry['why'])}[/dim]")


def _mark(entry: dict[str, Any], *, plain: bool) -> Text:
    """Return a sentence with its words coloured by surprise; without colours the odd ones stand between stars."""
    from rich.text import Text

    text = Text(f"  {entry['perplexity']:9,.1f}  ")
    for word, nats in zip(entry["words"][:-1], entry["nats"], strict=False):
        odd = nats >= ODD
        colour = "bold red" if odd else "yellow" if nats >= ODD / 2 else "green"
        text.append(f"*{word}*" if odd and plain else word, style=colour)
        text.append(" ")
    return text


def _draw_effects(effects: dict[str, Any]) -> list[Text]:
    """Return a line per word: the words before it, each on a ground as deep as its effect, the two largest named."""
    import numpy as np
    from rich.text import Text

    from tslm.drawing.heatmap import ink, largest_effect, shade

    words, matrix = effects["words"], np.array(effects["matrix"])
    largest = largest_effect(matrix)
    lines: list[Text] = []
    for place in range(1, len(words)):
        line = Text(f"  {words[place]:>12}  ← ")
        for before in range(place):
            value = float(matrix[before, place])
            line.append(f" {words[before]} ", style=f"{ink(value, largest)} on {shade(value, largest)}")
        strongest = sorted(range(place), key=lambda before: -abs(matrix[before, place]))[:2]
        named = ", ".join(f"{words[before]} {matrix[before, place]:+.1f}" for before in strongest)
        line.append(f"  {named}", style="dim")
        lines.append(line)
    return lines
