"""``tslm draw``: the paper's figures, and the network of a sentence, as diagrams."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm draw figure-1 --out figure-1.svg
  tslm draw figure-3 --out figure-3.png --width 1200
  tslm draw sentence the cat sat on the mat --rank 16 --embedding 8 --out sentence.svg
  tslm draw sentence the cat sat --json"""

MOST_WORDS = 200

FIGURES = ("figure-1", "figure-2", "figure-3")


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "draw",
        help="draw a figure of the paper or the network of a sentence",
        description="Draw tensor networks in the paper's notation: circles are tensors, triangles δ, dashes sums.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=(*FIGURES, "sentence"), help="what to draw")
    parser.add_argument("words", nargs="*", help="the words, for a sentence")
    parser.add_argument("--rank", type=int, default=16, help="bond size r of a sentence (default: 16)")
    parser.add_argument(
        "--embedding", type=int, default=8, help="word vector size m of a sentence (default: 8)"
    )
    parser.add_argument("--vocabulary", type=int, default=100, help="size of the open leg |V| (default: 100)")
    parser.add_argument(
        "--out", metavar="FILE", help=".svg, or .png with the extra 'png' (default: SVG on stdout)"
    )
    parser.add_argument("--width", type=int, default=800, help="of a PNG in pixels (default: 800)")
    parser.add_argument("--json", action="store_true", help="print sizes and cost as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import json
    import sys
    from pathlib import Path

    from tslm.drawing.diagram import save_diagram
    from tslm.drawing.figures import draw_figure
    from tslm.errors import NumberError, ShapeError

    if arguments.width < 1:
        raise NumberError(f"--width {arguments.width}; expected 1 or more")
    if arguments.what == "sentence":
        picture, report = _draw_words(arguments)
    elif arguments.words:
        raise ShapeError(
            f"{arguments.what} takes no words, but {arguments.words[0]!r} was given; did you mean sentence?"
        )
    else:
        picture, report = draw_figure(int(arguments.what[-1])), {"drawn": arguments.what}
    if arguments.out:
        save_diagram(picture, Path(arguments.out), width=arguments.width, title=arguments.what)
        report["file"] = arguments.out
    if arguments.json:
        print(json.dumps(report))
    elif arguments.out:
        print(f"wrote {arguments.out}", file=sys.stderr)
    else:
        sys.stdout.write(picture.to_svg(title=arguments.what))
    return 0


def _draw_words(arguments: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Return the picture of a sentence's network, from its sizes alone, and what it holds."""
    from tslm.drawing.sentence import draw_sentence
    from tslm.errors import NumberError, ShapeError
    from tslm.tensors.sentence import LARGEST_SIZE, sentence_outline

    if not arguments.words:
        raise ShapeError("no words to draw; give them after 'sentence': tslm draw sentence the cat sat")
    if len(arguments.words) > MOST_WORDS:
        raise ShapeError(
            f"{len(arguments.words)} words are too many for a picture; give {MOST_WORDS} or fewer"
        )
    for name in ("rank", "embedding", "vocabulary"):
        size = getattr(arguments, name)
        if not 1 <= size <= LARGEST_SIZE:
            raise NumberError(f"--{name} {size}; expected from 1 to {LARGEST_SIZE:,}")
    R, M, V = arguments.rank, arguments.embedding, arguments.vocabulary
    network = sentence_outline(len(arguments.words), rank=R, embedding=M, vocabulary=V)
    cost = network.cost()
    return draw_sentence(network, arguments.words), {
        "drawn": "sentence",
        "words": arguments.words,
        "nodes": len(network.nodes),
        "edges": len(network.edges),
        "flops": cost.flops,
        "largest_intermediate": cost.largest_intermediate,
        "explicit_entries": V * M ** len(arguments.words),
    }
