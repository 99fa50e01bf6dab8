"""``tslm train``: run a recipe."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm train recipes/asv/kn5.toml
  tslm train recipes/ptb/tslm.toml --set train.seed=2 --out runs/tslm-2
  torchrun --nproc-per-node 2 -m tslm train recipes/ptb/tslm.toml

The same command goes on with a run that was broken off, and shows the result of a finished one."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "train",
        help="train or estimate a model from a recipe",
        description="Train or estimate a model from a recipe, and end with its valid and test perplexity.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recipe", metavar="RECIPE", help="a TOML file, see recipes/")
    parser.add_argument("--out", metavar="FOLDER", help="the run folder (default: runs/<corpus>-<recipe>)")
    parser.add_argument(
        "--set",
        metavar="TABLE.KEY=VALUE",
        dest="overrides",
        action="append",
        default=[],
        help="change the recipe",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="the same as --set train.threads=N")
    parser.add_argument("--tensorboard", metavar="FOLDER", help="also write TensorBoard events there")
    parser.add_argument("--data-dir", metavar="FOLDER", help="where to look for named corpora first")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from pathlib import Path

    from tslm.files import to_json
    from tslm.reports.page import write_run_page
    from tslm.reports.tables import print_summary
    from tslm.runs.recipe import is_trained, read_recipe
    from tslm.runs.run import run_folder, train
    from tslm.training.watcher import Terminal, Watcher

    overrides = list(arguments.overrides)
    if arguments.threads is not None and is_trained(read_recipe(Path(arguments.recipe), overrides).kind):
        overrides.append(f"train.threads={arguments.threads}")
    watcher: Watcher = Terminal()
    if arguments.tensorboard is not None:
        from tslm.training.tensorboard import TensorBoard

        watcher = TensorBoard(Path(arguments.tensorboard), watcher)
    folder = run_folder(arguments.recipe, arguments.out, overrides)
    summary = train(
        arguments.recipe, folder, overrides=overrides, data_dir=arguments.data_dir, watcher=watcher
    )
    if not summary:
        return 0
    page = write_run_page(folder)
    if arguments.json:
        print(to_json(summary))
    else:
        print_summary(summary)
        print(f"{folder} holds the model; {page} shows the run")
    return 0
