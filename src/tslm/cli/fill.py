"""``tslm fill``: the words that belong in the blanks of a sentence."""

from __future__ import annotations

import argparse
import math
from typing import Any

from tslm.cli.numbers import positive
from tslm.cli.run_folder import add_run

EXAMPLES = r"""examples:
  tslm fill runs/ptb-kn5 "the ? of the ?" --top 5
  tslm fill runs/ptb-kn5 "? ? said" --as prefix --json
  tslm fill runs/ptb-kn5 "mr. ? said" --sample 3 --seed 1
  tslm fill runs/ptb-kn5 "mr. ? said" --as prefix --sample 3 --go-on 20
  tslm fill runs/ptb-gated "the ? of the ?" --proposal runs/ptb-kn5 --draws 2000

A blank is exactly one word; write \? for the word "?" itself. The pattern is a whole sentence unless --as says
otherwise. N-gram and probabilistic models sum over all fillings, exactly. A recurrent model scores every word for
one blank, exactly too; for several blanks it weighs fillings drawn from an n-gram or probabilistic model of the same
words, which sees both sides, and some of its own; it says how many draws from the true posterior they are worth."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "fill",
        help="fill the blanks of a sentence, exactly",
        description="Give each blank of a sentence its best words, knowing what stands on both sides.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("pattern", metavar="PATTERN", help="words and blanks, for example 'the ? of the ?'")
    parser.add_argument("--top", type=positive, default=5, metavar="K", help="how many (default: 5)")
    parser.add_argument(
        "--as",
        dest="span",
        choices=("sentence", "prefix", "suffix", "fragment"),
        default="sentence",
        help="the part of a line that the pattern is: all of it (default), its begin, its end, or a middle",
    )
    parser.add_argument("--blank", default="?", metavar="SIGN", help="what stands for a blank (default: ?)")
    parser.add_argument(
        "--exclude", metavar="WORD", action="append", default=[], help="a word that may not fill a blank"
    )
    parser.add_argument(
        "--sample", type=positive, metavar="N", help="also draw N fillings from their posterior"
    )
    parser.add_argument(
        "--go-on",
        type=positive,
        metavar="N",
        help="with --sample and --as prefix or fragment: up to N words more, to the end of the line",
    )
    parser.add_argument(
        "--proposal",
        metavar="RUN",
        help="for several blanks of a recurrent model: draw most fillings from this n-gram or probabilistic one",
    )
    parser.add_argument(
        "--draws",
        type=positive,
        default=1000,
        metavar="N",
        help="with --proposal: how many (default: 1000)",
    )
    parser.add_argument("--seed", type=int, default=1, help="for --sample (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import sys

    import tslm
    from tslm.errors import UnsupportedError
    from tslm.files import to_json
    from tslm.inference.inputs import show_unknown

    if arguments.go_on and not (arguments.sample and arguments.span in ("prefix", "fragment")):
        raise UnsupportedError(
            "--go-on lets samples go on behind the pattern; give it with --sample and --as prefix or fragment"
        )
    found = tslm.fill(
        arguments.run_folder,
        arguments.pattern,
        top=arguments.top,
        span=arguments.span,
        blank=arguments.blank,
        exclude=arguments.exclude,
        samples=arguments.sample or 0,
        seed=arguments.seed,
        go_on=arguments.go_on or 0,
        proposal=arguments.proposal,
        draws=arguments.draws,
    )
    if found.unknown:
        print(f"tslm: the pattern has {show_unknown(found.unknown)}", file=sys.stderr)
    if not found.blanks and found.log_probability > -math.inf:
        sign = arguments.blank
        print(
            f"tslm: the pattern has no blank; put {sign} where a word is missing: 'the {sign} of the {sign}'",
            file=sys.stderr,
        )
    print(to_json(found.as_json()) if arguments.json else found)
    return 0
