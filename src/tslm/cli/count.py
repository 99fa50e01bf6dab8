"""``tslm count``: estimate an n-gram model of more text than one machine holds, on a cluster."""

from __future__ import annotations

import argparse
from typing import Any

from tslm.cli.numbers import positive

EXAMPLES = """examples:
  tslm count --master spark://host:7077 --text '/shared/web/*.gz' --order 5 --out /shared/web-5
  tslm count --master 'local[2]' --text my.txt --tokeniser words --lower --min-count 5 --out counts
  tslm count --master yarn --text 's3a://bucket/part-*' --like runs/sample --prune 0,0,1 --out /shared/web-5 --json
  tslm train --counts /shared/web-5 --out runs/web-5

The text is one sentence per line, and all of it is counted: keep back what the model shall be measured on. The folder
that is written is on a file system that this machine and all workers share. docs/spark.md says what a job takes."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "count",
        help="count and smooth the n-grams of a text on a Spark cluster",
        description="Estimate a Kneser–Ney model of a text on an Apache Spark cluster and write it as sorted Parquet "
        "shards, from which tslm train --counts makes the model.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_cluster(parser, default="spark")
    parser.add_argument(
        "--text", metavar="GLOB", action="append", required=True, help="files or a pattern; may be repeated"
    )
    parser.add_argument("--out", metavar="FOLDER", required=True, help="the new folder for the shards")
    parser.add_argument(
        "--order", type=positive, default=5, metavar="N", help="the longest n-grams (default: 5)"
    )
    parser.add_argument("--tokeniser", choices=("spaces", "words"), default="spaces", help="what is a word")
    parser.add_argument("--lower", action="store_true", help="lower-case the text")
    parser.add_argument(
        "--min-count", type=positive, default=2, metavar="N", help="rarer words become <unk> (default: 2)"
    )
    parser.add_argument("--max-vocabulary", type=positive, metavar="N", help="keep the most frequent N words")
    parser.add_argument("--like", metavar="RUN", help="take the text rule and the vocabulary of this run")
    parser.add_argument("--smoothing", choices=("kneser-ney", "kneser-ney-single"), default="kneser-ney")
    parser.add_argument(
        "--prune",
        metavar="N,N,…",
        default="",
        help="drop n-grams of order 1, 2, … that come so often at most",
    )
    parser.add_argument(
        "--discount-fallback", metavar="D,D,D", help="discounts where the text is too small for its own"
    )
    parser.add_argument(
        "--partitions",
        type=positive,
        default=200,
        metavar="N",
        help="parts the data are cut into (default: 200)",
    )
    parser.add_argument("--json", action="store_true", help="print what was counted as one JSON object")
    parser.set_defaults(run=run)


def add_cluster(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the options that name a cluster."""
    engines = sorted({default, "spark"})
    parser.add_argument(
        "--engine", choices=engines, default=default, help=f"what computes (default: {default})"
    )
    parser.add_argument(
        "--master", metavar="URL", default="local[*]", help="Spark's master (default: local[*], this machine)"
    )
    parser.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of Spark's; may be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from dataclasses import asdict
    from pathlib import Path

    from tslm.files import to_json
    from tslm.interop.spark.counting import Job, count_text
    from tslm.models.ngram.smoothed import NgramConfig
    from tslm.tables import show_count

    fallback = arguments.discount_fallback
    job = Job(
        text=tuple(arguments.text),
        model=NgramConfig(
            order=arguments.order,
            smoothing=arguments.smoothing,
            prune=tuple(map(int, _numbers("--prune", arguments.prune))),
            discount_fallback=None if fallback is None else tuple(_numbers("--discount-fallback", fallback)),
        ),
        tokeniser=arguments.tokeniser,
        lower=arguments.lower,
        min_count=arguments.min_count,
        max_vocabulary=arguments.max_vocabulary,
        like=arguments.like,
        partitions=arguments.partitions,
    )
    counted = count_text(job, Path(arguments.out), arguments.master, arguments.conf)
    if arguments.json:
        print(to_json({"written": arguments.out, **asdict(counted)}))
    else:
        print(
            f"{arguments.out}: {show_count(counted.tokens, 'token')} in {show_count(counted.lines, 'line')}, "
            f"{show_count(counted.vocabulary, 'word')}, "
            f"order {counted.order}, {counted.seconds:.0f} s; make the model with: tslm train --counts {arguments.out}"
        )
    return 0


def _numbers(option: str, text: str) -> list[float]:
    """Read numbers with commas between them."""
    from tslm.errors import InputError

    try:
        return [float(part) for part in text.split(",") if part]
    except ValueError:
        raise InputError(f"{option} {text!r} is not a list of numbers such as 0,0,1") from None
