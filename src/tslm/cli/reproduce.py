"""``tslm reproduce``: the paper's tables and figures, rebuilt from recipes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tslm.cli.numbers import duration, positive

EXAMPLES = """examples:
  tslm reproduce table1
  tslm reproduce table2 --corpus ptb --budget 2h
  tslm reproduce figure5 --budget 45m --jobs 2 --threads 1
  tslm reproduce all --budget 0                 # no training: only what is there already
  nohup tslm reproduce table2 --budget 12h &    # unattended; after a restart, the same command goes on

What is finished is not trained again (runs/ first, then results/), what was broken off goes on, and nothing runs longer
than the budget. On a machine of few cores, two runs of one thread are faster than one run of two."""

WHAT = ("table1", "table2", "figure4", "figure5")


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "reproduce",
        help="rebuild the paper's tables and figures",
        description="Rebuild a table or figure of the paper: train what is missing, then report beside the paper.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=(*WHAT, "all"), metavar="WHAT", help=f"{', '.join(WHAT)}, or all")
    parser.add_argument("--corpus", choices=("ptb", "wikitext-2"), help="default: ptb, or both for 'all'")
    parser.add_argument(
        "--budget",
        type=duration,
        default="2h",
        metavar="TIME",
        help="2h, 90m, 1h30m …; 0 trains nothing (default: 2h)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="train no other rows or cells, for example: --only tslm lstm",
    )
    parser.add_argument(
        "--jobs", type=positive, default=1, metavar="N", help="runs side by side (default: 1)"
    )
    parser.add_argument("--threads", type=positive, metavar="N", help="threads of each run")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("reproduced"),
        metavar="FOLDER",
        help="for reports (default: reproduced)",
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="FOLDER", help="for run folders (default: runs)"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        help="summaries of runs made elsewhere (default: results, or what comes with tslm where there is none)",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="leave --results aside: only runs of this machine"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="copy the summaries of finished runs, not their weights, to --results",
    )
    parser.add_argument("--json", action="store_true", help="print the reports as one JSON array")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import sys

    import tslm
    from tslm.files import to_json
    from tslm.runs.queue import signals_like_ctrl_c

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with signals_like_ctrl_c():
        reports = tslm.reproduce(
            arguments.what,
            arguments.corpus,
            budget=arguments.budget,
            only=arguments.only,
            jobs=arguments.jobs,
            threads=arguments.threads,
            out=arguments.out,
            runs=arguments.runs,
            results=arguments.results,
            fresh=arguments.fresh,
            keep=arguments.keep,
            tell=tell,
        )
    if arguments.json:
        print(to_json([made.as_json() for made in reports]))
    else:
        print("\n\n".join(map(str, reports)))
    return 1 if any(made.failed for made in reports) else 0
