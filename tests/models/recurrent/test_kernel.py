"""The compiled recurrence is run only from files that nobody else can have written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tslm.errors import TslmError
from tslm.models.recurrent import kernel

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None or not hasattr(os, "geteuid"),
    reason="needs a C++ compiler and owners of files",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder in which the name of the compiled kernel is known, and nothing is compiled."""
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path))

    def compile_nothing(compiler: list[str], *arguments: str) -> str:
        if "-o" in arguments:
            Path(arguments[-1]).write_bytes(b"compiled here")
        return "a processor"

    monkeypatch.setattr(kernel, "_call", compile_nothing)
    return tmp_path / "kernels"


def test_what_was_compiled_here_is_run(home: Path) -> None:
    library = kernel._compile()
    assert library.read_bytes() == b"compiled here"
    assert kernel._compile() == library
    assert library.stat().st_mode & 0o077 == home.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
def test_a_folder_that_others_may_write_is_refused(home: Path, mode: int) -> None:
    library = kernel._compile()
    library.write_bytes(b"planted")
    home.chmod(mode)
    with pytest.raises(TslmError, match="kernels can be written by others"):
        kernel._open()


def test_a_file_that_others_may_write_is_refused(home: Path) -> None:
    kernel._compile().chmod(0o766)
    with pytest.raises(TslmError, match=r"\.so can be written by others.*unset TSLM_KERNEL"):
        kernel._open()


def test_what_belongs_to_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel._compile()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(TslmError, match=r"belongs to user \d+, not to you \(12345\)"):
        kernel._open()


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only root can give files away")
def test_a_planted_file_in_a_folder_of_ones_own_is_refused(home: Path) -> None:
    library = kernel._compile()
    os.chown(library, 12345, -1)
    with pytest.raises(TslmError, match="belongs to user 12345"):
        kernel._open()
