"""Encoded corpora in the cache folder, keyed by what they were made from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tslm.cache import cache_dir, waiting_lock, writing_cache


def prepare_corpus(key: Mapping[str, Any], write: Callable[[Path], None]) -> Path:
    """Return the folder of what ``key`` describes; if it is not there yet, call ``write(folder)`` to fill it.

    The folder appears whole or not at all: it is filled under another name and renamed. Of several processes
    that ask for the same key at once, one writes and the others wait for it.

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
        # What a killed process left, and a folder that lost a file.
        for leftover in (*home.glob(f".{name}.*"), folder):
            shutil.rmtree(leftover, ignore_errors=True)
        work = home / f".{name}.{os.getpid()}"
        work.mkdir()
        try:
            write(work)
            work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return folder


def _is_whole(folder: Path) -> bool:
    """Say whether a prepared folder has all its files at their full length."""
    try:
        description = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in description["bytes"].items())
    except (OSError, ValueError, KeyError):
        return False
