"""``tslm tensors``: a trained exact model as a matrix product state."""

from __future__ import annotations

import argparse
from typing import Any

from tslm.cli.run_folder import add_run

EXAMPLES = """examples:
  tslm tensors runs/asv-gated "in the beginning god created"
  tslm tensors runs/asv-gated --length 8 --words 100 --json
  tslm tensors runs/asv-gated "in the beginning" --out beginning.safetensors

The logits of all sentences of n words are one tensor train: a leg per place, counting the sentence's own words and the
most frequent ones, and a leg for the next word. Cut anywhere, its entropy says how much the words before have to do
with what follows; 'centred' takes off what does not depend on the words read. For one layer of a pure, biased or
bounded TSLM or a gated model, read out by a matrix. In Python: tslm.unroll(...).to_quimb(), .to_tensorly()."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "tensors",
        help="take a trained model apart as a tensor train",
        description="Turn a trained exact model into the tensor train of all sentences of some length.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("sentence", metavar="SENTENCE", nargs="?", help="as people write it")
    parser.add_argument("--length", type=int, metavar="N", help="words of a sentence, where none is given")
    parser.add_argument(
        "--words", type=int, default=50, metavar="K", help="most frequent words in each leg (default: 50)"
    )
    parser.add_argument("--out", metavar="FILE", help="write the cores: .safetensors or .npz")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import sys

    import tslm
    from tslm.files import to_json
    from tslm.inference.inputs import show_unknown

    found = tslm.unroll(
        arguments.run_folder, arguments.sentence, length=arguments.length, words=arguments.words
    )
    if found.unknown:
        print(f"tslm: the sentence has {show_unknown(found.unknown)}", file=sys.stderr)
    if arguments.out:
        found.save(arguments.out)
        print(f"wrote {arguments.out}", file=sys.stderr)
    print(to_json(found.as_json()) if arguments.json else repr(found))
    return 0
