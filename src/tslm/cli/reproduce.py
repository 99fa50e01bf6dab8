"""``tslm reproduce``: the paper's tables and figures, rebuilt from recipes."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tslm.cli.numbers import duration, positive

if TYPE_CHECKING:
    from tslm.paper.document import Report

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
        default=Path("results"),
        metavar="FOLDER",
        help="summaries of runs made elsewhere (default: results, where there is one)",
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
    import time

    from tslm.errors import CorpusError
    from tslm.files import to_json
    from tslm.paper.document import write_report
    from tslm.paper.found import find_missing, keep_finished
    from tslm.paper.plan import check_rows, expand
    from tslm.paper.reproduce import report
    from tslm.runs.queue import run_queue

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    wanted = expand(arguments.what, arguments.corpus)
    check_rows(arguments.only, wanted)
    deadline = time.monotonic() + arguments.budget
    runs, results = arguments.runs, None if arguments.fresh else arguments.results
    if results is not None and not results.is_dir():
        tell(
            f"no results folder at {results}: only what was trained here is shown. The runs that come with the project "
            "are in results/ of its source; run this there, or name the folder with --results"
        )
    reports: list[Report] = []
    failed = False
    for what, corpus in wanted:
        missing = find_missing(what, corpus, runs, results, arguments.only)
        with _signals_like_ctrl_c():
            outcomes = run_queue(
                [run.job(runs) for run in missing],
                budget=deadline - time.monotonic(),
                workers=arguments.jobs,
                threads=arguments.threads,
                tell=tell,
            )
        failed |= "failed" in outcomes.values()
        if arguments.keep:
            keep_finished(what, corpus, runs, arguments.results)
        try:
            reports.append(report(what, corpus, runs, results))
        except CorpusError as error:
            if arguments.what != "all":
                raise
            tell(f"{what} is left out: {error}")
            continue
        for path in write_report(reports[-1], arguments.out):
            tell(f"wrote {path}")
    if arguments.json:
        print(to_json([made.as_json() for made in reports]))
    else:
        _print(reports)
    return 1 if failed else 0


@contextmanager
def _signals_like_ctrl_c() -> Generator[None, None, None]:
    """Let SIGTERM and a closed terminal end the block like Ctrl-C, unless nohup has them ignored."""
    import signal

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # Windows has no SIGHUP.
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ends = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in ends}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(reports: list[Report]) -> None:
    """Print the reports as tables."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for made in reports:
        table = Table(
            title=made.title, title_justify="left", box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0)
        )
        for place, column in enumerate(made.header):
            table.add_column(column, justify="left" if place == 0 else "right", no_wrap=True)
        for row in made.rows:
            table.add_row(*row)
        # Wider than a narrow terminal is better than numbers cut off.
        wide = Console(highlight=False, width=1000)
        width = max(console.width, wide.measure(table).maximum)
        Console(highlight=False, width=width).print(table)
        for note in made.notes:
            console.print(note, markup=False)
