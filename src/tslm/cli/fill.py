"""``tslm fill``: the words that belong in the blanks of a sentence."""

from __future__ import annotations

import argparse
import math
from typing import Any

from tslm.cli.numbers import positive

EXAMPLES = r"""examples:
  tslm fill runs/ptb-kn5 "the ? of the ?" --top 5
  tslm fill runs/ptb-kn5 "? ? said" --as prefix --json
  tslm fill runs/ptb-kn5 "mr. ? said" --sample 3 --seed 1
  tslm fill runs/ptb-kn5 "mr. ? said" --as prefix --sample 3 --go-on 20

A blank is exactly one word; write \? for the word "?" itself. The pattern is a whole sentence unless --as says
otherwise. All probabilities are exact, summed over the whole vocabulary: n-gram models can do this, recurrent
ones cannot."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "fill",
        help="fill the blanks of a sentence, exactly",
        description="Give each blank of a sentence its best words, knowing what stands on both sides.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_folder", metavar="RUN", help="the folder of an n-gram model")
    parser.add_argument("pattern", metavar="PATTERN", help="words and blanks, for example 'the ? of the ?'")
    parser.add_argument("--top", type=positive, default=5, metavar="K", help="how many (default: 5)")
    parser.add_argument(
        "--as",
        dest="span",
        choices=("sentence", "prefix", "suffix", "fragment"),
        default="sentence",
        help="the part of a line that the pattern is: all of it (default), its begin, its end, or a middle",
    )
    parser.add_argument("--blank", default="?", metavar="SIGN", help="what stands for a blank (default: ?)")
    parser.add_argument(
        "--exclude", metavar="WORD", action="append", default=[], help="a word that may not fill a blank"
    )
    parser.add_argument(
        "--sample", type=positive, metavar="N", help="also draw N fillings from their posterior"
    )
    parser.add_argument(
        "--go-on",
        type=positive,
        metavar="N",
        help="with --sample and --as prefix or fragment: up to N words more, to the end of the line",
    )
    parser.add_argument("--seed", type=int, default=1, help="for --sample (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import json

    import tslm
    from tslm.errors import CorpusError, UnsupportedError
    from tslm.models.ngram.blanks import describe_filling, parse_pattern, require_blanks

    if arguments.go_on and not (arguments.sample and arguments.span in ("prefix", "fragment")):
        raise UnsupportedError(
            "--go-on lets samples go on behind the pattern; give it with --sample and --as prefix or fragment"
        )
    model = tslm.load(arguments.run_folder)
    vocabulary = model.vocabulary
    pattern = parse_pattern(arguments.pattern, vocabulary, arguments.blank)
    for word in arguments.exclude:
        if word not in vocabulary:
            raise CorpusError(f"--exclude {word}: the vocabulary of {arguments.run_folder} has no such word")
    filling = require_blanks(model).fill(
        pattern, span=arguments.span, exclude=vocabulary.encode(arguments.exclude).tolist()
    )
    report = {
        "pattern": arguments.pattern,
        "span": arguments.span,
        **describe_filling(
            filling,
            pattern,
            vocabulary,
            top=arguments.top,
            samples=arguments.sample or 0,
            seed=arguments.seed,
            go_on=arguments.go_on or 0,
        ),
    }
    if arguments.json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        _print(report)
    return 0


def _print(report: dict[str, Any]) -> None:
    """Print the fillings as tables."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    log_probability = report["log_probability"]
    if log_probability is None:
        console.print(f"{escape(report['pattern'])}: impossible, no filling has a probability above zero")
        return
    console.print(
        f"[bold]{escape(report['pattern'])}[/bold]   ln p = {log_probability:.4f}   "
        f"log10 p = {log_probability / math.log(10):.4f}   ({report['span']})",
        highlight=False,
    )
    if report["blanks"]:
        table = Table(title="each blank, given both sides", title_justify="left")
        for number in range(1, len(report["blanks"]) + 1):
            table.add_column(f"blank {number}")
            table.add_column("p", justify="right")
        for rank in range(max(len(blank["best"]) for blank in report["blanks"])):
            cells: list[str] = []
            for blank in report["blanks"]:
                entry = blank["best"][rank] if rank < len(blank["best"]) else None
                cells += [escape(entry["word"]), f"{entry['probability']:.4f}"] if entry else ["", ""]
            table.add_row(*cells)
        console.print(table)
        together = Table(title="all blanks together", title_justify="left")
        together.add_column("filling")
        together.add_column("p", justify="right")
        for entry in report["fillings"]:
            together.add_row(escape(entry["text"]), f"{entry['probability']:.4f}")
        console.print(together)
    for text in report.get("samples", ()):
        console.print(escape(text), highlight=False)
