"""``tslm train``: run a recipe."""

from __future__ import annotations

import argparse
from typing import Any

from tslm.cli.device import add_device

EXAMPLES = """examples:
  tslm train asv/kn5
  tslm train ptb/tslm --set train.seed=2 --out runs/tslm-2
  tslm train my.toml
  torchrun --nproc-per-node 2 -m tslm train ptb/tslm
  tslm train --counts counts --out runs/web-5

'tslm recipes' lists what there is to train.
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
    parser.add_argument(
        "recipe", metavar="RECIPE", nargs="?", help="a name that tslm recipes lists, or a TOML file"
    )
    parser.add_argument("--counts", metavar="FOLDER", help="instead of a recipe: what tslm count has written")
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
    add_device(parser, default=None)
    parser.add_argument("--tensorboard", metavar="FOLDER", help="also write TensorBoard events there")
    parser.add_argument("--data-dir", metavar="FOLDER", help="where to look for named corpora first")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from pathlib import Path

    from tslm.errors import InputError
    from tslm.files import make_folder, to_json
    from tslm.reports.page import write_run_page
    from tslm.reports.tables import print_summary
    from tslm.runs.parent import end_with_parent
    from tslm.runs.recipe import read_recipe
    from tslm.runs.train import run_folder, train
    from tslm.training.distributed import started_group
    from tslm.training.watcher import Terminal, Watcher

    if (arguments.recipe is None) == (arguments.counts is None):
        raise InputError("give a recipe, such as asv/kn5, or the folder of counts as --counts FOLDER")
    if arguments.counts is not None:
        return _assemble(arguments)
    end_with_parent()
    overrides = list(arguments.overrides)
    given = {"threads": arguments.threads, "device": arguments.device and f'"{arguments.device}"'}
    for key, value in given.items():
        if value is not None and read_recipe(arguments.recipe, overrides).train is not None:
            overrides.append(f"train.{key}={value}")
    watcher: Watcher = Terminal()
    if arguments.tensorboard is not None:
        from tslm.training.tensorboard import TensorBoard

        make_folder(Path(arguments.tensorboard))
        watcher = TensorBoard(Path(arguments.tensorboard), watcher)
    folder = run_folder(arguments.recipe, arguments.out, overrides)
    summary = train(
        arguments.recipe, folder, overrides=overrides, data_dir=arguments.data_dir, watcher=watcher
    )
    if not started_group().leads:
        return 0
    page = write_run_page(folder)
    if arguments.json:
        print(to_json(summary.as_json()))
    else:
        print_summary(summary)
        print(f"{folder} holds the model; {page} shows the run")
    return 0


def _assemble(arguments: argparse.Namespace) -> int:
    """Make a model of counts."""
    from pathlib import Path

    from tslm.errors import InputError
    from tslm.files import to_json
    from tslm.runs.assembled import assemble_run

    for option in ("overrides", "threads", "tensorboard", "data_dir"):
        if getattr(arguments, option):
            raise InputError("counts are smoothed already: only --out and --json go with --counts")
    counts = Path(arguments.counts)
    folder = Path(arguments.out) if arguments.out else Path("runs") / counts.resolve().name
    summary = assemble_run(counts, folder)
    if arguments.json:
        print(to_json(summary.as_json()))
    else:
        tokens = summary.corpus.train_tokens or 0
        print(f"{folder} holds the model of {tokens:,} tokens: {summary.parameters:,} numbers")
    return 0
