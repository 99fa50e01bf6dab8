"""What the tests of the recurrences share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tslm.models.recurrent import kernel


@pytest.fixture(params=["loop", "kernel"])
def road(request: pytest.FixtureRequest, cache_folder) -> Iterator[str]:
    """The recurrence as a loop of PyTorch operations and as the compiled kernel."""
    if request.param == "kernel" and shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("no C++ compiler here")
    before = kernel.active()
    kernel.accelerate(request.param == "kernel")
    assert (kernel.active() is not None) == (request.param == "kernel")
    yield request.param
    kernel.accelerate(before is not None)
