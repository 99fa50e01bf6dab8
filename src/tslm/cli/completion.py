"""``tslm completion``: the Tab key of a shell."""

from __future__ import annotations

import argparse
from typing import Any

SHELLS = ("bash", "zsh", "tcsh")

FOLDERS = ("RUN", "FOLDER")
FILES = ("FILE", "RECIPE", "TEXT")
"""What arguments are called that a shell can complete by the files it sees."""

EXAMPLES = """examples:
  tslm completion bash >> ~/.local/share/bash-completion/completions/tslm
  tslm completion zsh > ~/.zfunc/_tslm
  eval "$(tslm completion bash)" """


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "completion",
        help="print a script that completes commands in your shell",
        description="Print a script with which a shell completes the commands, options, files and folders of tslm.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from tslm.cli import parser
    from tslm.errors import UnsupportedError

    try:
        import shtab
    except ImportError as error:
        raise UnsupportedError(
            "completion needs shtab; install it with: pip install 'tslm[completion]'"
        ) from error
    root = parser()
    _say_what_is_a_file(root, shtab)
    print(shtab.complete(root, shell=arguments.shell))
    return 0


def _say_what_is_a_file(parser: argparse.ArgumentParser, shtab: Any) -> None:
    """Tell shtab which arguments of a parser, and of those below it, are files and folders."""
    for action in vars(parser)["_actions"]:
        if isinstance(action.choices, dict):
            for below in action.choices.values():
                _say_what_is_a_file(below, shtab)
        elif action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY
        elif action.metavar in FILES:
            action.complete = shtab.FILE
