"""The argument RUN: which model a command is about."""

from __future__ import annotations

import argparse


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the argument to a command."""
    parser.add_argument(
        "run_folder",
        metavar="RUN",
        help="a folder that tslm train wrote, or a model that comes trained: asv/kn5, asv/gated",
    )
