"""``tslm adapt``: a trained model, trained on with a text of one's own."""

from __future__ import annotations

import argparse
from typing import Any

from tslm.cli.run_folder import add_run

EXAMPLES = """examples:
  tslm adapt runs/asv-gated my.txt --out runs/asv-gated-mine
  tslm adapt runs/asv-gated my.txt --out runs/mine --min-count 1 --old 8
  tslm adapt runs/asv-gated my.txt --out runs/mine --mix runs/mine-mixed
  tslm adapt runs/asv-gated my.txt --out runs/mine --json

For recurrent models. Of every ten lines of the text, eight are learnt from, one says when to stop and one is measured
at the end. Words that the model does not know and that occur --min-count times become words of its own. Old text is
read beside the new (--old), other words of it in each epoch, so that it is not forgotten; both are measured before and
afterwards, and beside counts of the new lines (--mix)."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "adapt",
        help="train a model on with a text of your own",
        description="Train a recurrent model on with a text of your own; its new words are learnt.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("text", metavar="TEXT", help="a text file, one sentence per line")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the run folder to write")
    parser.add_argument(
        "--min-count", type=int, default=2, metavar="N", help="of a new word that is learnt (default: 2)"
    )
    parser.add_argument(
        "--start",
        choices=("unknown", "rare"),
        default="unknown",
        help="where new words start: as <unk> (default), or as the mean of rare words",
    )
    parser.add_argument(
        "--old",
        type=float,
        default=4.0,
        metavar="X",
        help="words of the old text for each new one (default: 4)",
    )
    parser.add_argument("--epochs", type=int, default=6, metavar="N", help="the most (default: 6)")
    parser.add_argument(
        "--rate", type=float, default=0.5, metavar="X", help="times the recipe's learning rate (default: 0.5)"
    )
    parser.add_argument(
        "--mix", metavar="FOLDER", help="also keep it mixed with counts of the new text, as a run folder"
    )
    parser.add_argument("--data-dir", metavar="FOLDER", help="where to look for named corpora first")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from pathlib import Path

    import tslm
    from tslm.files import to_json
    from tslm.training.watcher import Terminal

    watcher = Terminal()
    try:
        report = tslm.adapt(
            arguments.run_folder,
            Path(arguments.text),
            arguments.out,
            min_count=arguments.min_count,
            start=arguments.start,
            old=arguments.old,
            epochs=arguments.epochs,
            rate=arguments.rate,
            mix=arguments.mix,
            data_dir=arguments.data_dir,
            watcher=watcher,
        )
    finally:
        watcher.close()
    print(to_json(report.as_json()) if arguments.json else report)
    return 0
