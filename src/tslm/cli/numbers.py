"""Numbers of the command line, read so that a wrong one is named with what was expected."""

from __future__ import annotations

from argparse import ArgumentTypeError


def positive(text: str) -> int:
    """Read a whole number above zero."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return value
