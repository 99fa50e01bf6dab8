"""``tslm match``: how likely a sentence is of a certain kind."""

from __future__ import annotations

import argparse
from typing import Any

from tslm.cli.numbers import positive

EXAMPLES = r"""examples:
  tslm match runs/asv-probabilistic "in the beginning ..."
  tslm match runs/asv-probabilistic --must-contain "the lord" --must-contain king --longest 40
  tslm match runs/asv-probabilistic "... (king|prince) of ? ..." --sample 5 --json

? is any one word, ... any number of words, ( | ) alternatives, and a * or + right behind the bracket repeats it; write
\? or \( for the sign itself. The pattern is the whole sentence. All probabilities are exact sums over every sentence of
up to --longest words: probabilistic models can do this, others cannot."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "match",
        help="say how likely a sentence is of a certain kind, exactly",
        description="Sum the probability of all sentences that match a pattern, contain words or have a length.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a probabilistic model")
    parser.add_argument(
        "pattern", metavar="PATTERN", nargs="?", default="", help="the whole sentence (default: any)"
    )
    parser.add_argument(
        "--must-contain",
        metavar="WORDS",
        action="append",
        default=[],
        help="a word or phrase somewhere in it",
    )
    parser.add_argument(
        "--avoid", metavar="WORD", action="append", default=[], help="a word that may not occur"
    )
    parser.add_argument("--shortest", type=int, default=0, metavar="N", help="at least N words (default: 0)")
    parser.add_argument(
        "--longest", type=positive, default=60, metavar="N", help="at most N words (default: 60)"
    )
    parser.add_argument("--sample", type=positive, default=0, metavar="N", help="also draw N such sentences")
    parser.add_argument("--seed", type=int, default=1, help="for --sample (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import tslm
    from tslm.files import to_json

    found = tslm.match(
        arguments.run_folder,
        arguments.pattern,
        contain=arguments.must_contain,
        avoid=arguments.avoid,
        shortest=arguments.shortest,
        longest=arguments.longest,
        samples=arguments.sample,
        seed=arguments.seed,
    )
    print(to_json(found.as_json()) if arguments.json else found)
    return 0
