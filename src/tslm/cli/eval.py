"""``tslm eval``: the perplexity of a model on a text."""

from __future__ import annotations

import argparse
from typing import Any

from tslm.cli.device import add_device
from tslm.cli.run_folder import add_run

EXAMPLES = """examples:
  tslm eval runs/ptb-kn5
  tslm eval runs/ptb-kn5 --split valid --json
  tslm eval runs/ptb-kn5 --text my.txt
  tslm eval runs/ptb-kn5 --by-frequency
  tslm eval runs/ptb-lstm --cache auto --out runs/ptb-lstm-cache
  tslm eval runs/ptb-lstm --dynamic
  tslm eval runs/ptb-lstm --dynamic --cache auto --counts runs/ptb-kn5

With --cache the model also remembers the words it has just read, and predicts those that followed states like the
present one. With --dynamic it goes on learning from the text it has just scored. With --counts it is mixed with an
n-gram model, by one weight and by a gate. How much is tuned on valid; valid and test are then measured without and with
each, alone and together. Such a figure is no figure of the model alone. The first time is that of the processor, the
second that by the clock."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "eval",
        help="measure a model's perplexity",
        description="Measure a model's perplexity on a split of its corpus, or on a text of your own.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("--split", choices=("train", "valid", "test"), help="default: test")
    parser.add_argument("--text", metavar="FILE", help="a text file instead of a split; - for standard input")
    parser.add_argument(
        "--by-frequency",
        action="store_true",
        help="measure words apart that are rare and frequent in the training text",
    )
    parser.add_argument(
        "--cache",
        metavar="N",
        type=_size,
        help="tune a cache of the last N words on valid, and measure valid and test with it; auto chooses N too",
    )
    parser.add_argument(
        "--dynamic",
        action="store_true",
        help="tune learning while reading on valid, and measure valid and test",
    )
    parser.add_argument(
        "--counts",
        metavar="RUN",
        help="tune a mix with this n-gram model on valid, and measure valid and test",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="with --cache alone: keep the tuned model as a run folder"
    )
    add_device(parser)
    parser.add_argument("--data-dir", metavar="FOLDER", help="where to look for named corpora first")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from pathlib import Path

    import tslm
    from tslm.devices import place_model
    from tslm.errors import InputError
    from tslm.files import to_json
    from tslm.progress import track_count
    from tslm.reports.tables import print_evaluation
    from tslm.runs.run import open_run

    reading = arguments.cache is not None or arguments.dynamic or arguments.counts is not None
    if arguments.by_frequency and (reading or arguments.text is not None):
        raise InputError("--by-frequency measures a split with the model alone; leave the other options out")
    if reading:
        return _run_reading(arguments)
    if arguments.out is not None:
        raise InputError("--out keeps a model with its cache; give --cache auto as well")
    text = None if arguments.text is None else Path(arguments.text)
    opened = open_run(arguments.run_folder)
    place_model(opened.model, arguments.device)
    if arguments.by_frequency:
        with track_count("reading", None, "tokens") as tick:
            report = tslm.evaluate_frequencies(
                opened, split=arguments.split or "test", data_dir=arguments.data_dir, tick=tick
            )
        print(to_json(report.as_json()) if arguments.json else report)
        return 0
    with track_count("reading", None, "tokens") as tick:
        evaluation = tslm.evaluate(
            opened, text, split=arguments.split or "test", data_dir=arguments.data_dir, tick=tick
        )
    if arguments.json:
        print(to_json(evaluation.as_json()))
    else:
        print_evaluation(evaluation)
    return 0


def _run_reading(arguments: argparse.Namespace) -> int:
    """Run the command with a cache, with learning while reading, or mixed with counts."""
    from functools import partial

    import tslm
    from tslm.devices import place_model
    from tslm.errors import InputError
    from tslm.files import to_json
    from tslm.progress import track_count
    from tslm.runs.run import open_run

    size = arguments.cache
    if arguments.text is not None:
        raise InputError("what is tuned on valid is measured on valid and test; leave --text out")
    if arguments.split is not None:
        raise InputError("what is tuned on valid is measured on valid and test; leave --split out")
    if arguments.dynamic and arguments.out is not None:
        raise InputError(
            "--dynamic changes the model while it reads; there is nothing to keep, leave --out out"
        )
    if arguments.counts is not None and arguments.out is not None:
        raise InputError("--counts measures only; a mix is kept by tslm compare --mix gated --out FOLDER")
    run, data_dir = open_run(arguments.run_folder), arguments.data_dir
    place_model(run.model, arguments.device)
    if arguments.dynamic or arguments.counts is not None:
        report = tslm.evaluate_reading(
            run,
            cache=size,
            dynamic=arguments.dynamic,
            counts=arguments.counts,
            data_dir=data_dir,
            track=partial(track_count, unit="tokens"),
        )
    else:
        with track_count("reading", None, "tokens") as tick:
            report = tslm.evaluate_cache(run, arguments.out, size=size, data_dir=data_dir, tick=tick)
    print(to_json(report.as_json()) if arguments.json else report)
    return 0


def _size(given: str) -> Any:
    """Read the size of a cache."""
    if given == "auto":
        return given
    if not given.isdecimal() or not 1 <= int(given) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{given!r} is neither auto nor a number from 1 to 1,000,000")
    return int(given)
