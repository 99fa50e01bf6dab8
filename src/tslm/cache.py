"""The cache folder: where it is, who may write it, and the hashes of files already read."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from tslm.errors import CorpusError, TslmError
from tslm.files import write_text
from tslm.progress import track_bytes

CACHE_VARIABLE = "TSLM_CACHE"
"""The environment variable that names another cache folder than the user's."""

_SETTLED_NANOSECONDS = 2_000_000_000
_BLOCK_BYTES = 1 << 20


def cache_dir() -> Path:
    """Return the cache folder: ``TSLM_CACHE``, or the user's cache folder of the operating system."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given).expanduser() if given else user_cache_path("tslm", appauthor=False)


@contextmanager
def writing_cache() -> Generator[None, None, None]:
    """Turn a failure to write within the block into one clear line that says how to choose another folder."""
    try:
        yield
    except (OSError, TslmError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(error, CorpusError) or not isinstance(cause, OSError):
            raise
        reason = cause.strerror or str(cause)
        raise CorpusError(
            f"cannot write to the cache folder {cache_dir()}: {reason}; "
            f"free some space there or set {CACHE_VARIABLE} to another folder"
        ) from error


@contextmanager
def waiting_lock(path: Path) -> Generator[None, None, None]:
    """Hold the lock ``path`` (a file) within the block, waiting for another process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=2)
    except Timeout:
        print(f"waiting for another process to release {path}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, remembered for as long as its size and time of change stay the same.

    A file changed within two seconds before it was read is hashed anew the next time, since a second change
    could go unseen in the clock of the file system.

    Raises:
        CorpusError: the file cannot be read, or changed while it was read.
    """
    try:
        path = path.resolve(strict=True)
        before = _state(path)
        memo = cache_dir() / "hashes" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"
        known = _read_memo(memo)
        if known is not None and known["state"] == before:
            return str(known["sha256"])
        started = time.time_ns()
        digest = hashlib.sha256()
        with path.open("rb") as handle, track_bytes(f"hashing {path.name}", path.stat().st_size) as advance:
            while block := handle.read(_BLOCK_BYTES):
                digest.update(block)
                advance(len(block))
        if _state(path) != before:
            raise CorpusError(f"{path} changed while it was read; try again when it is finished")
    except OSError as error:
        raise CorpusError(
            f"cannot read {path}: {error.strerror}; check the path and its permissions"
        ) from error
    if before[1] + _SETTLED_NANOSECONDS < started:
        # A memo only saves time: a cache that cannot be written says so when a corpus is prepared in it.
        with suppress(TslmError):
            write_text(memo, json.dumps({"state": before, "sha256": digest.hexdigest()}))
    return digest.hexdigest()


def _state(path: Path) -> list[int]:
    """Return what changes when a file is changed: size, time of change, place on disk."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns]


def _read_memo(path: Path) -> dict[str, Any] | None:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return known if isinstance(known, dict) and {"state", "sha256"} <= known.keys() else None  # pyright: ignore[reportUnknownVariableType]
