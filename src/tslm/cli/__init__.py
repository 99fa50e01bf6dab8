"""The ``tslm`` command: one module per sub-command, each a thin layer over the API."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from tslm.cli.terminal import visible_output
from tslm.errors import Stopped, TslmError

COMMANDS = (
    "demo",
    "data",
    "recipes",
    "train",
    "count",
    "adapt",
    "eval",
    "score",
    "generate",
    "fill",
    "match",
    "compare",
    "explain",
    "tensors",
    "compress",
    "add",
    "serve",
    "decompose",
    "draw",
    "arpa",
    "export",
    "reproduce",
    "doctor",
    "completion",
)


def parser() -> argparse.ArgumentParser:
    """Return the whole command line."""
    from tslm import __version__

    root = argparse.ArgumentParser(
        prog="tslm",
        description="Language models in tensor space: exact n-gram tensors and trainable tensor networks.",
        epilog="examples:\n"
        "  tslm demo --quick\n"
        '  tslm generate asv/gated --prompt "In the beginning"\n'
        "  tslm recipes\n"
        "  tslm train asv/kn5\n"
        "  tslm eval runs/asv-kn5 --split test\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"tslm {__version__}")
    subparsers = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        if find_spec(f"tslm.cli.{name}") is not None:
            import_module(f"tslm.cli.{name}").add(subparsers)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 2 for something the user can put right, 130 for Ctrl-C."""
    with visible_output():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        parsed = parser().parse_args(arguments)
        return parsed.run(parsed)
    except TslmError as error:
        print(f"tslm: {error}", file=sys.stderr)
        return 130 if isinstance(error, Stopped) else 2
    except KeyboardInterrupt:
        print("tslm: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader went away (`tslm … | head`): not an error. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
