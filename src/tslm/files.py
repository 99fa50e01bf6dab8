"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tslm.errors import TslmError


@contextmanager
def whole(path: Path) -> Generator[Path, None, None]:
    """Yield a temporary path beside ``path``; when the block ends well, flush it to disk and rename it.

    Whatever happens in between (a full disk, Ctrl-C, ``kill -9``), ``path`` is either the old file or the
    new one, never half of either.

    Raises:
        TslmError: the disk is full or the folder cannot be written.

    Example:
        >>> with whole(Path("ids.bin")) as temporary:
        ...     temporary.write_bytes(b"...")
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TslmError(f"cannot write {path}: {reason}; free some space or choose another folder") from error
    finally:
        # Where even the folder cannot be reached, the error above already says so.
        if path.parent.is_dir() and os.access(path.parent, os.W_OK):
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _sync(path: Path) -> None:
    """Flush a file or a folder (for a rename) to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
