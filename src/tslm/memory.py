"""What becomes of memory that is freed: kept where it is wanted again at once, given back where it is not."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

# Of malloc.h, and what glibc itself arrives at after it has seen large arrays.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
USUAL = {TRIM_THRESHOLD: 64 << 20, MMAP_THRESHOLD: 32 << 20}
LARGEST = 2**31 - 1


@cache
def _c_function(name: str) -> Any:
    """Return a function of the C library; None where it has none: glibc has those used here, others do not."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


@contextmanager
def kept_memory() -> Generator[None, None, None]:
    """Keep what is freed in a block for what the block asks for next, and give it back after it.

    The C library gives each array of more than 32 MB back to the system when it is freed, and the next one comes as new
    pages, filled with zeros one by one. A step of training frees and makes the same arrays again and again.
    """
    setting = _c_function("mallopt")
    if setting is None:
        yield
        return
    for threshold in USUAL:
        setting(threshold, LARGEST)
    try:
        yield
    finally:
        for threshold, usual in USUAL.items():
            setting(threshold, usual)
        _give_back()


def giving_back(work: Callable[[], ResultT]) -> ResultT:
    """Do some work, and return what it has freed to the system.

    The C library keeps it for the next request of the same size. A large pattern in each of its threads would be
    held on to for as long as the server lives.
    """
    try:
        return work()
    finally:
        _give_back()


def _give_back() -> None:
    trim = _c_function("malloc_trim")
    if trim is not None:
        trim(0)
