"""``tslm add``: trained models added up to one network."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm train asv/gated --set train.seed=2 --out runs/asv-gated-2
  tslm add asv/gated runs/asv-gated-2 --out runs/asv-sum
  tslm add runs/a runs/b runs/c --weights 0.5 0.3 0.3 --out runs/sum --json
  tslm compress runs/asv-sum --rank 256 --out runs/asv-sum-256

Logits are linear in the tensor of a language, so tensors can be added: the sum's logits are the weighted sum of the
models' logits. It is one network, whose rank is theirs added up. The models must know the same words and have one kind
of cell and one softmax; sizes and seeds may differ. The weights are tuned on valid unless they are given."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "add",
        help="add trained models up to one network",
        description="Add the tensors of trained models up to one model, and measure it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="two or more run folders")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the run folder to write")
    parser.add_argument(
        "--weights", type=float, nargs="+", metavar="λ", help="of the logits, one for each model"
    )
    parser.add_argument(
        "--tune", metavar="FILE", help="tune the weights on the first 10,000 words of this text"
    )
    parser.add_argument("--data-dir", metavar="FOLDER", help="where to look for named corpora first")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from pathlib import Path

    import tslm
    from tslm.files import to_json
    from tslm.progress import track_count

    with track_count("reading", None, "tokens") as tick:
        report = tslm.add(
            arguments.runs,
            arguments.out,
            weights=arguments.weights,
            tune=Path(arguments.tune) if arguments.tune else None,
            data_dir=arguments.data_dir,
            tick=tick,
        )
    if arguments.json:
        print(to_json(report.as_json()))
    else:
        _print(report)
    return 0


def _print(report: Any) -> None:
    """Print the terms and their sum."""
    from tslm.tables import show_number, text_table

    rows = [
        [
            term.folder,
            f"{term.weight:.3f}",
            f"{term.rank:,}",
            f"{term.parameters:,}",
            show_number(term.valid),
            show_number(term.test),
        ]
        for term in report.terms
    ]
    rows.append(
        [
            "sum",
            "",
            f"{report.rank:,}",
            f"{report.parameters:,}",
            show_number(report.valid),
            show_number(report.test),
        ]
    )
    print(text_table(["", "weight", "rank", "parameters", "valid", "test"], rows, left=(0,)))
    print(f"{report.folder} holds the sum, one network")
