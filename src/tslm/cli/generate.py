"""``tslm generate``: text from a model."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm generate runs/ptb-kn5 --prompt "the company said"
  tslm generate runs/ptb-kn5 --prompt "in the" --number 5 --length 20 --temperature 0.8 --top-k 50 --seed 7
  tslm generate runs/ptb-kn5 --no-unk --go-on --length 200
  tslm generate runs/ptb-kn5 --prompt "it is" --temperature 0 --json"""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "generate",
        help="write text",
        description="Write text: a sample as it grows, or several together.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_folder", metavar="RUN", help="a folder that tslm train wrote")
    parser.add_argument("--prompt", default="", metavar="TEXT", help="the words to go on from")
    parser.add_argument("--number", type=int, default=1, metavar="N", help="how many samples (default: 1)")
    parser.add_argument("--length", type=int, default=50, metavar="N", help="at most N words (default: 50)")
    parser.add_argument(
        "--temperature", type=float, default=1.0, metavar="T", help="0 for the best word (default: 1)"
    )
    parser.add_argument(
        "--top-k", type=int, default=0, metavar="K", help="draw from the K best words (default: all)"
    )
    parser.add_argument(
        "--top-p", type=float, default=1.0, metavar="P", help="draw from the best words with probability P"
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same text (default: 1)")
    parser.add_argument(
        "--stop", metavar="WORDS", action="append", default=[], help="end a sample before these words"
    )
    parser.add_argument(
        "--go-on", action="store_true", help="go on behind the end of a sentence, on a new line"
    )
    parser.add_argument("--no-unk", action="store_true", help="never draw <unk>")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import sys

    import tslm
    from tslm.corpus.vocabulary import UNK
    from tslm.files import to_json
    from tslm.inference.generate import Sampling
    from tslm.inference.inputs import show_unknown
    from tslm.inference.samples import Writing, unknown_words, write, write_growing

    writing = Writing(
        prompt=arguments.prompt,
        number=arguments.number,
        length=arguments.length,
        stop=arguments.stop,
        go_on=arguments.go_on,
        sampling=Sampling(
            temperature=arguments.temperature,
            top_k=arguments.top_k,
            top_p=arguments.top_p,
            seed=arguments.seed,
            exclude=(UNK,) if arguments.no_unk else (),
        ),
    )
    model = tslm.load(arguments.run_folder)
    if unknown := unknown_words(model, arguments.prompt):
        print(f"tslm: the prompt has {show_unknown(unknown)}", file=sys.stderr)
    if arguments.number == 1 and not arguments.json:
        for piece in write_growing(model, writing):
            print(piece, end="", flush=True)
        print()
        return 0
    samples = write(model, writing)
    if arguments.json:
        print(to_json(samples.as_json()))
    else:
        for place, sample in enumerate(samples, 1):
            print(f"{place:>3}  {sample.text}")
    return 0
