"""``tslm decompose``: an n-gram tensor at rank 1, 2, 4, … and the model each rank makes."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm decompose ptb --order 2 --words 2000 --ranks 1,2,4,8,16,32,64,128
  tslm decompose ptb --order 3 --words 200 --ranks 1,2,4,8,16 --out results/trigram
  tslm decompose asv --words 500 --json

The tensor of the most frequent words is decomposed (Eq. 16) and turned back into a model: negative entries become zero,
rows are divided by their sums, and the unigram model is mixed in with a weight found on the validation split. Words
outside the most frequent share one class, so perplexities are of the full vocabulary."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "decompose",
        help="compress an n-gram tensor and see what each rank keeps",
        description="Decompose the bigram or trigram tensor of a corpus at several ranks and measure each as a model.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpus", help="a named corpus (tslm data list), or a file or folder of your own")
    parser.add_argument(
        "--order", type=int, choices=(2, 3, 4), default=2, help="modes of the tensor (default: 2)"
    )
    parser.add_argument(
        "--words", type=int, default=1000, help="most frequent words with a row each (default: 1000)"
    )
    parser.add_argument(
        "--ranks", default="1,2,4,8,16,32,64", help="comma-separated (default: 1,2,4,8,16,32,64)"
    )
    parser.add_argument(
        "--scaling",
        choices=("none", "margins"),
        default="none",
        help="decompose T as it is, or divided by the square roots of the word frequencies (default: none)",
    )
    parser.add_argument("--out", metavar="FOLDER", help="write saturation.json, .svg and .png there")
    parser.add_argument("--data-dir", metavar="FOLDER", help="where to look for named corpora first")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import json
    import sys
    from dataclasses import asdict
    from pathlib import Path

    from rich.console import Console

    from tslm.corpus.sources import open_corpus
    from tslm.errors import NumberError
    from tslm.files import check_folder
    from tslm.reports.saturation import save_sweep, sweep_ranks

    ranks = read_ranks(arguments.ranks)
    if arguments.words < 1:
        raise NumberError(f"--words {arguments.words}; expected 1 or more")
    if arguments.out:
        check_folder(Path(arguments.out))
    corpus = open_corpus(arguments.corpus, arguments.data_dir)
    errors = Console(stderr=True)
    with errors.status("decomposing") as status:

        def tell(message: str) -> None:
            if errors.is_terminal:
                status.update(message)
            else:
                print(message, file=sys.stderr, flush=True)

        sweep = sweep_ranks(
            corpus,
            order=arguments.order,
            words=arguments.words,
            ranks=ranks,
            scaling=arguments.scaling,
            progress=tell,
        )
    if arguments.out:
        for path in save_sweep(sweep, Path(arguments.out)):
            print(f"wrote {path}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(asdict(sweep)))
    else:
        print_sweep(sweep)
    return 0


def read_ranks(text: str) -> list[int]:
    """Return the ranks of ``1,2,4``; a last ``…`` or ``...`` is refused with a hint rather than guessed."""
    from tslm.errors import NumberError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise NumberError(
            f"--ranks {text}; expected whole numbers with commas between, such as 1,2,4,8"
        ) from error


def print_sweep(sweep: Any) -> None:
    """Print the sweep as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{sweep.corpus}: {sweep.order}-gram tensor of {sweep.classes:,} classes, scaling {sweep.scaling}",
        title_justify="left",
    )
    for column in ("rank", "numbers", "error", "bound", "clipped", "μ", "valid", "test"):
        table.add_column(column, justify="right")
    table.add_row(
        "unigram",
        f"{sweep.classes:,}",
        "",
        "",
        "",
        "0.000",
        f"{sweep.unigram_valid:.2f}",
        f"{sweep.unigram_test:.2f}",
    )
    for result in (*sweep.ranks, sweep.exact):
        table.add_row(
            "whole" if result.rank is None else str(result.rank),
            f"{result.parameters:,}",
            f"{result.relative_error:.4f}",
            f"{result.bound:.4f}",
            f"{result.clipped:.2%}",
            f"{result.weight:.3f}",
            f"{result.valid:.2f}",
            f"{result.test:.2f}",
        )
    console = Console()
    console.print(table)
    console.print(f"Perplexities: {sweep.protocol}.", highlight=False)
