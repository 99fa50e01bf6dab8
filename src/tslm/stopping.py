"""Long work asks, between two of its steps, whether anybody still wants it.

A thread cannot be stopped from outside. So whoever starts work that may become unwanted (a server whose client
has hung up or whose time is up) says how to find out, and the work calls ``check_wanted`` as it goes; without
anybody to ask that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from tslm.errors import TslmError


class Unwanted(TslmError):  # noqa: N818
    """Nobody waits for the answer any more."""


_unwanted: ContextVar[Callable[[], bool] | None] = ContextVar("unwanted", default=None)


@contextmanager
def wanted_until(unwanted: Callable[[], bool]) -> Generator[None, None, None]:
    """Let work within the block (and in this thread) stop at its next step once ``unwanted`` says so."""
    token = _unwanted.set(unwanted)
    try:
        yield
    finally:
        _unwanted.reset(token)


def check_wanted() -> None:
    """Go on, or stop here.

    Raises:
        Unwanted: nobody waits for what is being worked out.
    """
    unwanted = _unwanted.get()
    if unwanted is not None and unwanted():
        raise Unwanted("stopped: nobody waits for the answer any more")
