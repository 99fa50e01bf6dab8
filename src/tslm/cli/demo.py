"""``tslm demo``: the main job on the embedded corpus."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm demo
  tslm demo --out somewhere --json"""


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
    parser.add_argument("--quick", action="store_true", help="a smaller TSLM, trained for one epoch only")
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
    """Print what was found as tables."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from tslm.reports.demo import NEXT, PATTERN

    console = Console(highlight=False, soft_wrap=True)
    models = list(found["perplexity"])
    table = Table(title="perplexity", title_justify="left")
    for column in ("model", "valid", "test"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for name, splits in found["perplexity"].items():
        table.add_row(name, f"{splits['valid']:.2f}", f"{splits['test']:.2f}")
    console.print(table)
    for name in models:
        console.print(f"\n[bold]{name}: sentences, each word coloured by surprise[/bold]")
        for entry in found["scored"][name]:
            text = Text(f"  {entry['perplexity']:8.1f}  ")
            for word, nats in zip(entry["words"], entry["nats"], strict=True):
                colour = "green" if nats < 3 else "yellow" if nats < 7 else "red"
                text.append(f"{word} ", style=colour)
            console.print(text)
        console.print(f"[bold]{name}: generated[/bold]")
        for line in found["generated"][name]:
            console.print(f"  {escape(line)}")
    console.print(f'\n[bold]"{PATTERN}", blanks filled exactly by KN-5[/bold]')
    for entry in found["filled"]:
        console.print(f"  {entry['probability']:.4f}  {escape(' … '.join(entry['words']))}")
    console.print(f"\nthe whole story: {found['report']}\ntry next:")
    for line in NEXT:
        console.print(f"  {escape(line)}")
