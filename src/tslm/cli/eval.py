"""``tslm eval``: the perplexity of a model on a text."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm eval runs/ptb-kn5
  tslm eval runs/ptb-kn5 --split valid --json
  tslm eval runs/ptb-kn5 --text my.txt"""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "eval",
        help="measure a model's perplexity",
        description="Measure a model's perplexity on a split of its corpus, or on a text of your own.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_folder", metavar="RUN", help="a folder that tslm train wrote")
    parser.add_argument("--split", choices=("train", "valid", "test"), default="test", help="default: test")
    parser.add_argument("--text", metavar="FILE", help="a text file instead of a split; - for standard input")
    parser.add_argument("--data-dir", metavar="FOLDER", help="where to look for named corpora first")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from pathlib import Path

    import tslm
    from tslm.files import to_json
    from tslm.progress import track_count
    from tslm.reports.tables import print_evaluation

    text = None if arguments.text is None else Path(arguments.text)
    with track_count("reading", None, "tokens") as tick:
        evaluation = tslm.evaluate(
            arguments.run_folder, text, split=arguments.split, data_dir=arguments.data_dir, tick=tick
        )
    if arguments.json:
        print(to_json(evaluation.as_json()))
    else:
        print_evaluation(evaluation)
    return 0
