"""``tslm doctor``: what this installation has to work with."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm doctor
  tslm doctor --json"""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "doctor",
        help="print versions, threads, cache, kernel and data found",
        description="Print what this installation has to work with: versions, extras, threads, the cache folder, the "
        "compiled recurrence, and which corpora are on this machine. The exit code is 2 where something is wrong.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from tslm.doctor import diagnose
    from tslm.files import to_json

    found = diagnose()
    if arguments.json:
        print(to_json(found.as_json()))
        return 2 if found.problems else 0
    for title, entries in found.as_json().items():
        if title == "problems":
            continue
        print(title)
        for name, value in entries.items():
            print(f"  {name:<16} {_show(name, value)}")
    for problem in found.problems:
        print(f"problem: {problem}")
    return 2 if found.problems else 0


def _show(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if name == "bytes" else str(value)
