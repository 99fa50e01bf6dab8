"""``tslm explain``: what a model thinks of each word of a sentence."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tslm.inference.explain import Explanation

EXAMPLES = """examples:
  tslm explain runs/ptb-tslm "the company said it will sell its stock"
  tslm explain runs/ptb-tslm "the company said it" --svg effects.svg
  tslm explain runs/ptb-kn5 "the company said it" --json

For a TSLM the effect of a word is found exactly, by contracting the network with that word replaced by the mean
of all words (Eq. 14) or, with --replace ones, by the factor that changes nothing. Other models have no such factor:
the word is replaced by <unk> and the sentence read again."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "explain",
        help="show what a model expected, and which words made it",
        description="Show for each word its probability, rank and alternatives, and how earlier words change it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_folder", metavar="RUN", help="a folder that tslm train wrote")
    parser.add_argument("sentence", metavar="SENTENCE", help="words between spaces")
    parser.add_argument("--top", type=int, default=5, metavar="K", help="how many alternatives (default: 5)")
    parser.add_argument(
        "--replace",
        choices=("mean", "ones"),
        default="mean",
        help="for a TSLM, what replaces a word (default: mean)",
    )
    parser.add_argument("--svg", metavar="FILE", help="also write the heat map of the effects")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import json
    from pathlib import Path

    import tslm
    from tslm.drawing.heatmap import heat_svg
    from tslm.errors import UnsupportedError
    from tslm.files import write_text
    from tslm.inference.explain import describe_explanation, explain

    model = tslm.load(arguments.run_folder)
    explanation = explain(model, arguments.sentence, top=arguments.top, reference=arguments.replace)
    if arguments.svg:
        if explanation.effects is None:
            raise UnsupportedError(
                f"a model of kind {model.kind!r} without <unk> has no effects to draw; leave --svg out"
            )
        names = [word.word for word in explanation.words]
        title = f"effect of the word on the left on the word above, in nats: {explanation.effects.method}"
        write_text(Path(arguments.svg), heat_svg(names, explanation.effects.matrix, title))
    if arguments.json:
        print(json.dumps(describe_explanation(explanation), ensure_ascii=False))
    else:
        _print(explanation)
    return 0


def _print(explanation: Explanation) -> None:
    import math

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tslm.drawing.heatmap import heat_table

    console = Console()
    table = Table()
    table.add_column("word", no_wrap=True)
    for name in ("p", "rank", "bits", "expected"):
        table.add_column(name, justify="right")
    norms, cuts = explanation.state_norms, explanation.cuts
    if norms is not None:
        table.add_column("‖h‖", justify="right")
    if cuts is not None:
        table.add_column("cut rank", justify="right")
    table.add_column("alternatives", no_wrap=True, overflow="ellipsis")
    for place, word in enumerate(explanation.words):
        cells = [
            Text(word.word if word.known else f"⟨{word.word}⟩", style="" if word.known else "red"),
            f"{math.exp(word.log_probability):.4f}",
            f"{word.rank:,}",
            Text(f"{word.surprise:.2f}", style="bold red" if word.surprise > word.entropy + 4 else ""),
            f"{word.entropy:.2f}",
        ]
        if norms is not None:
            cells.append(f"{norms[place]:.2f}" if place < len(norms) else "")
        if cuts is not None:
            cells.append(f"{cuts.ranks[place]:.2f}" if place < len(cuts.ranks) else "")
        best = "  ".join(f"{entry.word} {entry.probability:.3f}" for entry in word.alternatives)
        table.add_row(*cells, Text(best))
    console.print(table)
    console.print(f"ln p = {explanation.log_probability:.4f}", highlight=False)
    if explanation.effects is not None and len(explanation.words) > 1:
        console.print(heat_table([word.word for word in explanation.words], explanation.effects.matrix))
        console.print(explanation.effects.method, highlight=False, markup=False)
    if cuts is not None:
        console.print(f"cut rank: {cuts.method}", highlight=False, markup=False)
