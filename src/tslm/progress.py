"""Progress on standard error for what takes more than two seconds: a bar, or plain lines off a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

PATIENCE_SECONDS = 2.0
LINE_SECONDS = 10.0


@contextmanager
def track_bytes(description: str, total: int | None) -> Generator[Callable[[int], None], None, None]:
    """Yield a function to be told how many more bytes are done; show them once it has taken two seconds.

    Example:
        >>> with track_bytes("reading ptb.train.txt", total=5_101_618) as advance:
        ...     advance(65_536)
    """

    def write(done: int, rate: float) -> str:
        return f"{done / 1e6:.0f} MB, {rate / 1e6:.1f} MB/s"

    def columns() -> tuple[ProgressColumn, ...]:
        from rich.progress import DownloadColumn, TransferSpeedColumn

        return DownloadColumn(), TransferSpeedColumn()

    with _show(description, total, columns, write) as advance:
        yield advance


@contextmanager
def track_count(
    description: str, total: int | None, unit: str
) -> Generator[Callable[[int], None], None, None]:
    """Yield a function to be told how many more of something are done; show them once it has taken two seconds.

    Example:
        >>> with track_count("sorting", total=929_589, unit="tokens") as advance:
        ...     advance(65_536)
    """

    def write(done: int, rate: float) -> str:
        return f"{done:,} {unit}, {rate:,.0f} {unit}/s"

    def columns() -> tuple[ProgressColumn, ...]:
        from rich.progress import MofNCompleteColumn, TextColumn

        return MofNCompleteColumn(), TextColumn(unit)

    with _show(description, total, columns, write) as advance:
        yield advance


@contextmanager
def _show(
    description: str,
    total: int | None,
    columns: Callable[[], tuple[ProgressColumn, ...]],
    write: Callable[[int, float], str],
) -> Generator[Callable[[int], None], None, None]:
    """Yield a function to be told how much more is done.

    Args:
        description: what is being done.
        total: how much there is to do, where that is known.
        columns: make what a bar shows beside the share and the time that is left.
        write: puts what is done, and how much of it in a second, into words for plain lines.
    """
    started = time.monotonic()
    progress: Progress | None = None
    done = 0
    next_line = started + PATIENCE_SECONDS

    def advance(count: int) -> None:
        nonlocal done, progress, next_line
        done += count
        now = time.monotonic()
        if now < next_line:
            return
        # What draws bars is loaded when there is one to draw: most that is tracked is done before.
        from rich.console import Console

        console = Console(file=sys.stderr)
        if not console.is_terminal:
            share = f" {100 * done / total:.0f} %" if total else ""
            rate = done / (now - started)
            left = f", {(total - done) / rate:.0f} s left" if total and rate else ""
            console.print(f"{description}:{share} {write(done, rate)}{left}", highlight=False, soft_wrap=True)
            next_line = now + LINE_SECONDS
            return
        if progress is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                *columns(),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            progress.add_task(description, total=total)
            progress.start()
        progress.update(progress.task_ids[0], completed=done)

    try:
        yield advance
    finally:
        if progress is not None:
            progress.stop()
