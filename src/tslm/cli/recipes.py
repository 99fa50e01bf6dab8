"""``tslm recipes``: what there is to train."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm recipes
  tslm recipes ptb/kn5
  tslm recipes ptb/kn5 > my.toml
  tslm recipes --json"""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "recipes",
        help="list the recipes that come with tslm, or show one",
        description="List the recipes that tslm train takes by name, or show one as the TOML file it is. Those "
        "that are ready come trained, and are models already: tslm score asv/kn5 FILE.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "recipe", metavar="RECIPE", nargs="?", help="a name or a TOML file; all names are listed without it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with every default of a recipe")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from pathlib import Path

    from tslm.files import to_json
    from tslm.runs.catalogue import list_recipes
    from tslm.runs.recipe import find_recipe, read_recipe, recipe_tables

    if arguments.recipe is not None:
        recipe = read_recipe(arguments.recipe)
        if arguments.json:
            print(to_json(recipe_tables(recipe)))
        else:
            print(find_recipe(Path(arguments.recipe)).read_text(encoding="utf-8").rstrip())
        return 0
    entries = list_recipes()
    if arguments.json:
        print(to_json([entry.as_json() for entry in entries]))
        return 0
    header = ("recipe", "corpus", "kind", "size")
    rows = [
        (entry.name, entry.corpus, entry.kind, f"{entry.size}, ready" if entry.pretrained else entry.size)
        for entry in entries
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0
