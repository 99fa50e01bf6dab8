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

from tests.faults.conftest import numbers_of, run_child, write_recipe


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


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    assert run_child(train, write_recipe(folder), folder / "run", folder / "told") == 0
    return folder


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


def test_a_full_disk_stops_a_run_in_one_line_and_it_goes_on(unbroken: Path, small_disk: Path, tmp_path: Path) -> None:
    folder = small_disk / "run"
    stopped = 0
    for filled in (60_000, 50_000, 40_000, 20_000):
        (small_disk / "filling").write_bytes(b"x" * filled)
        code = run_child(train, unbroken / "recipe.toml", folder, tmp_path / "told")
        if code == 2:
            stopped += 1
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
    unbroken: Path, tmp_path: Path, limit: int
) -> None:
    folder = tmp_path / "run"
    assert run_child(train, unbroken / "recipe.toml", folder, tmp_path / "told", limit) == 2
    assert "cannot write" in (tmp_path / "told").read_text()
    assert run_child(train, unbroken / "recipe.toml", folder, tmp_path / "told") == 0
    assert numbers_of(folder) == numbers_of(unbroken / "run")
