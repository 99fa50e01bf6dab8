"""``tslm compress``: a trained model with fewer units, and what that costs in perplexity."""

from __future__ import annotations

import argparse
from typing import Any

from tslm.cli.run_folder import add_run

EXAMPLES = """examples:
  tslm compress runs/asv-gated --rank 128 --out runs/asv-gated-128
  tslm compress runs/asv-gated --rank 64 --tune 1 --out runs/asv-gated-64
  tslm compress runs/asv-gated --rank 128 --out runs/asv-gated-128 --json
  tslm compress runs/asv-gated --half --out runs/asv-gated-half

--half stores the numbers of any trained model with 16 bits instead of 32 and measures what that costs.

--rank is for one layer of an exact cell: pure, biased or bounded TSLM, or gated. The units that are kept are those
from which most of what the output sees of the states on the training text can be told; the matrix between states and
the read-out, that of products included, are fitted anew, in closed form. That is no training, and the less is kept
the more is lost: --tune 1 trains the smaller model on for an epoch. Word vectors stay as they are."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "compress",
        help="make a trained model smaller",
        description="Reduce the rank of a trained model, or the bits of its numbers, and report what that costs.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--rank", type=int, metavar="R", help="how many units to keep")
    how.add_argument("--half", action="store_true", help="keep all, in half precision")
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
    from tslm.errors import InputError
    from tslm.files import to_json
    from tslm.training.watcher import Terminal

    if arguments.half:
        if arguments.tune:
            raise InputError("--tune trains a model of a lower rank on; it does not go with --half")
        halved = tslm.halve(arguments.run_folder, arguments.out, data_dir=arguments.data_dir)
        if arguments.json:
            print(to_json(halved.as_json()))
        else:
            _print_halved(halved)
        return 0
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
    from tslm.tables import show_count, text_table

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
    how = f", trained on for {show_count(report.tuned, 'epoch')}" if report.tuned else ", not trained on"
    print(f"perplexity {report.loss:+.1%}{how}; {report.folder} holds the smaller model")


def _print_halved(report: Any) -> None:
    """Print a model before and after."""
    from tslm.tables import text_table

    rows = [
        [f"{split} perplexity", f"{value:.4f}", f"{report.after[split]:.4f}"]
        for split, value in report.before.items()
    ]
    rows.append(["bytes of weights", f"{report.bytes_before:,}", f"{report.bytes_after:,}"])
    print(text_table(["", "single precision", "half"], rows, left=(0,)))
    print(f"valid perplexity {report.loss:+.3%}; {report.folder} holds the smaller model")
