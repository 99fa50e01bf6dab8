"""A disk that is full: a real small file system where root can mount one, else a limit on the size of files."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.conftest import numbers_of, run_child

from tslm.corpus.sources import open_corpus
from tslm.errors import TslmError


def train(recipe: Path, folder: Path, told: Path, limit: int = 0) -> None:
    from tslm.errors import TslmError
    from tslm.runs.train import train

    if limit:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write then fails, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        train(recipe, folder)
    except TslmError as error:
        told.write_text(str(error))
        raise SystemExit(2) from error


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    home = tmp_path / "disk"
    home.mkdir()
    mount = shutil.which("mount")
    done = (
        mount is not None
        and os.geteuid() == 0
        and subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=64k", "none", str(home)], capture_output=True, check=False
        ).returncode
        == 0
    )
    if not done:
        pytest.skip("only root can mount a file system")
    yield home
    subprocess.run(["umount", str(home)], check=True)


def test_a_full_disk_stops_a_run_in_one_line_and_it_goes_on(
    unbroken: Path, small_disk: Path, tmp_path: Path, tally
) -> None:
    folder = small_disk / "run"
    stopped = 0
    for filled in (64_000, 56_000, 48_000, 40_000):
        (small_disk / "filling").write_bytes(b"x" * filled)
        code = run_child(train, unbroken / "recipe.toml", folder, tmp_path / "told")
        if code == 2:
            stopped += 1
            tally("disk full (tmpfs of 64 KiB)", "stopped in one line; gone on, the same numbers")
            assert "cannot write" in (tmp_path / "told").read_text()
            assert "No space left" in (tmp_path / "told").read_text()
        else:
            assert code == 0
        (small_disk / "filling").unlink()
    assert stopped
    assert run_child(train, unbroken / "recipe.toml", folder, tmp_path / "told") == 0
    assert numbers_of(folder) == numbers_of(unbroken / "run")
    assert not list(folder.glob(".*.tmp"))


@pytest.mark.parametrize("limit", [200, 1500, 4000])
def test_files_that_may_not_grow_stop_a_run_in_one_line_and_it_goes_on(
    unbroken: Path, tmp_path: Path, limit: int, tally
) -> None:
    folder = tmp_path / "run"
    assert run_child(train, unbroken / "recipe.toml", folder, tmp_path / "told", limit) == 2
    assert "cannot write" in (tmp_path / "told").read_text()
    assert run_child(train, unbroken / "recipe.toml", folder, tmp_path / "told") == 0
    assert numbers_of(folder) == numbers_of(unbroken / "run")
    tally("files that may not grow (RLIMIT_FSIZE)", "stopped in one line; gone on, the same numbers")


def test_a_corpus_that_finds_no_room_is_one_line_and_leaves_nothing(
    unbroken: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch, tally
) -> None:
    monkeypatch.setenv("TSLM_CACHE", str(small_disk / "cache"))
    (small_disk / "filling").write_bytes(b"x" * 61_000)
    text = str(unbroken / "text.txt")
    with pytest.raises(TslmError, match=r"No space left|cannot write"):
        open_corpus(text)
    (small_disk / "filling").unlink()
    assert len(open_corpus(text).splits["train"])
    assert not list((small_disk / "cache" / "corpora").glob(".*"))
    tally("disk full in corpus preparation", "stopped in one line; done once more")
