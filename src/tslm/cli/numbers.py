"""Numbers of the command line, read so that a wrong one is named with what was expected."""

from __future__ import annotations

import math
import re
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


def seconds(text: str) -> float:
    """Read a number of seconds above zero, up to a day."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 86_400:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds above 0 and at most 86400")
    return value


def duration(text: str) -> float:
    """Read the seconds of ``2h``, ``90m``, ``1h30m``, ``45s``, or of a plain number of minutes."""
    number = r"(\d+(?:\.\d+)?)"
    found = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s)?|{number}", text)
    if not text or found is None:
        raise ArgumentTypeError(f"{text!r} is no duration; write 2h, 90m, 1h30m, 45s, or a number of minutes")
    hours, minutes, seconds, plain = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * (minutes + plain) + seconds
