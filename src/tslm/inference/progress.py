"""Progress on standard error for scoring that takes more than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console

PATIENCE_SECONDS = 2.0
LINE_SECONDS = 10.0


@contextmanager
def show_tokens(description: str) -> Generator[Callable[[int], None], None, None]:
    """Yield a function to be told how many more tokens are done; their number is not known beforehand.

    Example:
        >>> with show_tokens("scoring") as tick:
        ...     score_ids(model, ids, tick=tick)
    """
    console = Console(file=sys.stderr)
    started = time.monotonic()
    shown = started + PATIENCE_SECONDS
    done = 0
    status = console.status(description)
    live = False

    def tick(count: int) -> None:
        nonlocal done, shown, live
        done += count
        now = time.monotonic()
        if now < shown:
            return
        line = f"{description}: {done:,} tokens, {done / (now - started):,.0f} tokens/s"
        if console.is_terminal:
            shown = now + 0.2
            status.update(line)
            if not live:
                status.start()
                live = True
        else:
            shown = now + LINE_SECONDS
            console.print(line, highlight=False)

    try:
        yield tick
    finally:
        status.stop()
