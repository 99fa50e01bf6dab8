"""``tslm compress``: a trained model with fewer units, and what that costs in perplexity."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm compress runs/asv-gated --rank 128 --out runs/asv-gated-128
  tslm compress runs/asv-gated --rank 64 --tune 1 --out runs/asv-gated-64
  tslm compress runs/asv-gated --rank 128 --out runs/asv-gated-128 --json

For one layer of an exact cell: pure, biased or bounded TSLM, or gated. The units that are kept are those from which
most of what the output sees of the states on the training text can be told; the matrix between states and the read-out
are fitted anew, in closed form. That is no training, and the less is kept the more is lost: --tune 1 trains the
smaller model on for an epoch. Word vectors stay as they are."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "compress",
        help="make a trained model smaller",
        description="Reduce the rank of a trained model, and report what it loses and what it gains.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_folder", metavar="RUN", help="a folder that tslm train wrote")
    parser.add_argument("--rank", type=int, required=True, metavar="R", help="how many units to keep")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the run folder to write")
    parser.add_argument(
        "--tune", type=int, default=0, metavar="EPOCHS", help="epochs to train it on (default: 0)"
    )
    parser.add_argument("--data-dir", metavar="FOLDER", help="where to look for named corpora first")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import tslm
    from tslm.files import to_json
    from tslm.training.watcher import Terminal

    watcher = Terminal()
    try:
        report = tslm.compress(
            arguments.run_folder,
            arguments.out,
            rank=arguments.rank,
            tune=arguments.tune,
            data_dir=arguments.data_dir,
            watcher=watcher,
        )
    finally:
        watcher.close()
    if arguments.json:
        print(to_json(report.as_json()))
    else:
        _print(report)
    return 0


def _print(report: Any) -> None:
    """Print both models side by side."""
    from tslm.tables import text_table

    before, after = report.before, report.after
    rows = [
        ["rank", f"{before.rank:,}", f"{after.rank:,}"],
        ["valid perplexity", f"{before.valid:.2f}", f"{after.valid:.2f}"],
        ["parameters", f"{before.parameters:,}", f"{after.parameters:,}"],
        [
            "of cell, gate and read-out",
            f"{before.recurrent_parameters:,}",
            f"{after.recurrent_parameters:,}",
        ],
        [
            "words/s, recurrence alone",
            f"{before.recurrence_per_second:,.0f}",
            f"{after.recurrence_per_second:,.0f}",
        ],
        [
            "words/s, with the softmax",
            f"{before.words_per_second:,.0f}",
            f"{after.words_per_second:,.0f}",
        ],
    ]
    print(text_table(["", "before", "after"], rows, left=(0,)))
    how = f", trained on for {report.tuned} epochs" if report.tuned else ", not trained on"
    print(f"perplexity {report.loss:+.1%}{how}; {report.folder} holds the smaller model")
