"""Memory that was needed once goes back to the system."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


@cache
def _c_library() -> Any:
    return ctypes.CDLL(None) if sys.platform == "linux" else None


def giving_back(work: Callable[[], ResultT]) -> ResultT:
    """Do some work, and return what it has freed to the system.

    The C library keeps it for the next request of the same size. A large pattern in each of its threads would be
    held on to for as long as the server lives.
    """
    try:
        return work()
    finally:
        trim = getattr(_c_library(), "malloc_trim", None)  # glibc has it, musl does not
        if trim is not None:
            trim(0)
