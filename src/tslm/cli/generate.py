"""``tslm generate``: text from a model."""

from __future__ import annotations

import argparse
from typing import Any

from tslm.cli.device import add_device
from tslm.cli.run_folder import add_run

EXAMPLES = """examples:
  tslm generate runs/ptb-kn5 --prompt "the company said"
  tslm generate runs/ptb-kn5 --prompt "in the" --number 5 --length 20 --temperature 0.8 --top-k 50 --seed 7
  tslm generate runs/ptb-kn5 --no-unk --go-on --length 200
  tslm generate runs/ptb-kn5 --prompt "it is" --temperature 0 --json
  tslm generate runs/ptb-gated --must-contain "interest rates" --longest 20 --guide runs/ptb-probabilistic
  tslm generate runs/ptb-probabilistic --pattern "the ? of (japan|germany) ..." --number 5

A sentence always has what --must-contain, --pattern, --avoid and --shortest ask for, and ends within --longest words.
A probabilistic model alone draws it exactly as it would be drawn given that; another model needs one as --guide, which
says how likely each next word leads there: the words are then the model's own, and the weighing is approximate."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "generate",
        help="write text",
        description="Write text: a sample as it grows, or several together.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
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
    wanted = parser.add_argument_group("what the sentence must be like")
    wanted.add_argument("--pattern", default="", metavar="PATTERN", help="all of it; see tslm match --help")
    wanted.add_argument(
        "--must-contain",
        metavar="WORDS",
        action="append",
        default=[],
        help="a word or phrase somewhere in it",
    )
    wanted.add_argument(
        "--avoid", metavar="WORD", action="append", default=[], help="a word that may not occur"
    )
    wanted.add_argument("--shortest", type=int, default=0, metavar="N", help="at least N words (default: 0)")
    wanted.add_argument(
        "--longest", type=int, metavar="N", help="at most N words, prompt included (default: 30)"
    )
    wanted.add_argument("--guide", metavar="RUN", help="a probabilistic model of the same words")
    add_device(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import sys
    from dataclasses import replace

    import tslm
    from tslm.corpus.vocabulary import UNK
    from tslm.errors import UnsupportedError
    from tslm.files import to_json
    from tslm.inference.generate import Sampling
    from tslm.inference.guiding import guided
    from tslm.inference.inputs import show_unknown
    from tslm.inference.patterns import Constraint
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
    model = tslm.load(arguments.run_folder, arguments.device)
    asked = arguments.pattern or arguments.must_contain or arguments.avoid or arguments.shortest
    if asked or arguments.longest is not None:
        if arguments.go_on:
            raise UnsupportedError("--go-on writes many sentences; what a sentence must be like is for one")
        constraint = Constraint(
            pattern=arguments.pattern,
            contain=tuple(arguments.must_contain),
            avoid=tuple(arguments.avoid),
            shortest=arguments.shortest,
            longest=30 if arguments.longest is None else arguments.longest,
        )
        guide = tslm.load(arguments.guide) if arguments.guide else model
        model = guided(model, constraint, guide)
        writing = replace(writing, length=constraint.longest + 1)
    elif arguments.guide:
        raise UnsupportedError(
            "--guide leads to something; say what, with --must-contain, --pattern or --longest"
        )
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
