"""``tslm explain``: what a model thinks of each word of a sentence."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tslm.cli.run_folder import add_run

if TYPE_CHECKING:
    from rich.table import Table

    from tslm.inference.explanation import Explanation

EXAMPLES = """examples:
  tslm explain runs/ptb-tslm "the company said it will sell its stock"
  tslm explain runs/ptb-tslm "the company said it" --svg effects.svg
  tslm explain runs/ptb-kn5 "the company said it" --json
  tslm explain runs/ptb-probabilistic "the company said it"

The effect of a word on a later one is found by putting a stand-in in its place: the mean of all words, which averages
the logits (not the probabilities) over every word (Eq. 14), or, with --replace ones, a word that changes nothing. That
is an exact contraction of the model's own network for one layer of an exact cell (pure, biased or bounded TSLM, gated)
that a matrix reads out. Not so in a normalised TSLM, whose divisor sees the whole history; behind a second layer,
whose gates or factors are made of the first one's states (those of a cascade are not, and it is exact where the others
are); through tanh or products; or in a mixture of softmaxes,
where the states are contracted exactly but the probabilities, not the logits, are added. The output says which it was.
n-gram models, RNN and LSTM have no factors: the word is replaced by <unk> and the sentence read again. A probabilistic
model sums over every word in its place, exactly; it also shows the hidden states of each word, what they emit, and how
many bits the two sides of each cut of the sentence say of each other."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "explain",
        help="show what a model expected, and which words made it",
        description="Show for each word its probability, rank and alternatives, and how earlier words change it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("sentence", metavar="SENTENCE", help="as people write it")
    parser.add_argument("--top", type=int, default=5, metavar="K", help="how many alternatives (default: 5)")
    parser.add_argument(
        "--replace",
        choices=("mean", "ones"),
        default="mean",
        help="what replaces a word of a TSLM or gated model (default: mean)",
    )
    parser.add_argument("--svg", metavar="FILE", help="also write the heat map of the effects")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import sys
    from pathlib import Path

    import tslm
    from tslm.drawing.heatmap import heat_svg
    from tslm.errors import UnsupportedError
    from tslm.files import to_json, write_text
    from tslm.inference.explanation import EFFECT
    from tslm.inference.inputs import show_unknown

    explanation = tslm.explain(
        arguments.run_folder, arguments.sentence, top=arguments.top, reference=arguments.replace
    )
    if explanation.unknown:
        print(f"tslm: the sentence has {show_unknown(explanation.unknown)}", file=sys.stderr)
    if arguments.svg:
        if explanation.effects is None:
            raise UnsupportedError("a model without <unk> has no effects to draw; leave --svg out")
        names = [word.word for word in explanation.words]
        title = f"{EFFECT}: {explanation.effects.method}"
        write_text(Path(arguments.svg), heat_svg(names, explanation.effects.matrix, title))
    if arguments.json:
        print(to_json(explanation.as_json()))
    else:
        _print(explanation)
    return 0


def _print(explanation: Explanation) -> None:
    """Print tables in which every number is whole, however narrow the terminal."""
    from rich.console import Console

    from tslm.drawing.heatmap import heat_tables
    from tslm.inference.explanation import CONTRIBUTION, EFFECT

    console = Console(highlight=False)
    words = _word_table(explanation, console.width)
    # Wider than a narrow terminal is better than numbers cut off.
    console.print(words, width=max(console.width, console.measure(words).minimum), crop=False)
    console.print(f"ln p = {explanation.log_probability:.4f}")
    names = [word.word for word in explanation.words]
    maps: list[tuple[str, str, list[str], Any]] = []
    if explanation.effects is not None and len(names) > 1:
        maps.append((EFFECT, explanation.effects.method, names, explanation.effects.matrix))
    if explanation.contributions is not None:
        maps.append((CONTRIBUTION, explanation.contributions.method, *explanation.contributions.heat(names)))
    for title, method, places, matrix in maps:
        console.print(f"\n{title}", style="italic")
        for table in heat_tables(places, matrix, console.width):
            console.print(table, width=max(console.width, console.measure(table).minimum), crop=False)
        console.print(method, markup=False)
    if explanation.states is not None:
        console.print("\nhidden states of each word, given the whole sentence", style="italic")
        states = _state_table(explanation)
        console.print(states, width=max(console.width, console.measure(states).minimum), crop=False)
    if explanation.cuts is not None:
        console.print(f"\ncut rank: {explanation.cuts.method}", markup=False)


def _word_table(explanation: Explanation, width: int) -> Table:
    """Return the table of words: as many alternatives as there is room for, but one at least."""
    from rich.table import Table
    from rich.text import Text

    from tslm.tables import cell_width

    header, rows = explanation.table(0)
    widths = [max(map(cell_width, column)) for column in zip(header, *rows, strict=True)][:-1]
    room = width - sum(widths) - 2 * len(widths)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, name in enumerate(header[:-1]):
        table.add_column(
            name, justify="left" if place == 0 else "right", no_wrap=True, min_width=widths[place]
        )
    table.add_column("alternatives", no_wrap=True)
    for cells, word in zip(rows, explanation.words, strict=True):
        shown = ""
        for entry in word.alternatives:
            longer = f"{shown}  {entry.word} {entry.probability:.3f}".lstrip()
            if shown and cell_width(longer) > room:
                break
            shown = longer
        styles = ["" if word.known else "red"] + [""] * (len(cells) - 2)
        styles[3] = "bold red" if word.surprise > word.entropy + 4 else ""
        marked = [Text(cell, style=style) for cell, style in zip(cells, styles, strict=False)]
        table.add_row(*marked, Text(shown))
    return table


def _state_table(explanation: Explanation) -> Table:
    """Return the table of the likeliest hidden states: what each emits most, and which words share them."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("word", no_wrap=True)
    table.add_column("state", justify="right", no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    table.add_column("emits")
    table.add_column("shares its states with")
    for word, report in zip(explanation.words, explanation.states or (), strict=True):
        others = ", ".join(other for other in report.cluster_words if other != word.word)
        for place, state in enumerate(report.states):
            emits = "  ".join(f"{emitted} {chance:.2f}" for emitted, chance in state.words)
            names = (word.word, others) if place == 0 else ("", "")
            cells = (names[0], f"{state.number}", f"{state.probability:.3f}", emits, names[1])
            table.add_row(*(Text(cell) for cell in cells))
    return table
