"""Encoded corpora in the cache folder, keyed by what they were made from and sealed by their checksums."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tslm.cache import cache_dir, waiting_lock, writing_cache
from tslm.seals import SUMS, Changed, check_seal, read_sums, seal


def prepare_corpus(key: Mapping[str, Any], write: Callable[[Path], None]) -> Path:
    """Return the folder of what ``key`` describes; if it is not there yet, call ``write(folder)`` to fill it.

    The folder appears whole or not at all: it is filled under another name and renamed. Of several processes
    that ask for the same key at once, one writes and the others wait for it. All files are read and their
    checksums compared each time (a gigabyte in less than a second): a number is never taken from a file that has
    changed since it was written, and a damaged folder is filled anew.

    Raises:
        CorpusError: the cache folder cannot be written; or whatever ``write`` raises.
    """
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    home = cache_dir() / "corpora"
    folder = home / name
    if _is_whole(folder):
        return folder
    with writing_cache(), waiting_lock(home / f"{name}.lock"):
        if _is_whole(folder):
            return folder
        if (folder / SUMS).exists():
            print(f"tslm: {folder} has changed since it was written; it is made anew", file=sys.stderr)
        # What a killed process left, and a folder that is damaged.
        for leftover in (*home.glob(f".{name}.*"), folder):
            shutil.rmtree(leftover, ignore_errors=True)
        work = home / f".{name}.{os.getpid()}"
        work.mkdir()
        try:
            write(work)
            seal(work, sorted(path.name for path in work.iterdir()))
            work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return folder


def _is_whole(folder: Path) -> bool:
    """Say whether a prepared folder has all its files, and each as it was written."""
    try:
        sums = read_sums(folder)
        for name in sums:
            check_seal(folder / name)
        return bool(sums) and {path.name for path in folder.iterdir()} == {*sums, SUMS}
    except (OSError, Changed):
        return False
