"""Memory that is freed: kept for the next array during training, given back after it."""

from __future__ import annotations

import platform
import resource
from pathlib import Path

import pytest
import torch

from tslm.memory import giving_back, kept_memory

SIZE = 80 << 20
PAGES = SIZE // resource.getpagesize()

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told what to keep")


def make_arrays(number: int) -> int:
    """Make an array and free it, so many times; return how many pages the system brought for them."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(number):
        torch.zeros(SIZE // 4).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> int:
    """Return how many pages this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1])


@glibc
def test_large_arrays_of_a_block_come_from_memory_that_is_kept_and_goes_back_after_it():
    with kept_memory():
        make_arrays(20)  # a few lie beside each other before each finds a place that another has left
        kept = resident()
        assert make_arrays(10) < 2 * PAGES
    assert resident() < kept - PAGES / 2


@glibc
def test_what_some_work_has_freed_goes_back():
    with kept_memory():  # nothing goes back here by itself
        before = resident()
        make_arrays(1)
        assert resident() > before + PAGES / 2
        assert giving_back(lambda: make_arrays(1)) >= 0
        assert resident() < before + PAGES / 2


def test_without_such_a_c_library_the_block_is_done_all_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tslm.memory._c_function", lambda _: None)
    with kept_memory():
        assert giving_back(lambda: 1) == 1
