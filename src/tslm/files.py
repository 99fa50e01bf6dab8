"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from tslm.errors import InputError, TslmError


@contextmanager
def whole(path: Path) -> Generator[Path, None, None]:
    """Yield a temporary path beside ``path``; when the block ends well, flush it to disk and rename it.

    Whatever happens in between (a full disk, Ctrl-C, ``kill -9``), ``path`` is either the old file or the
    new one, never half of either.

    Raises:
        TslmError: the disk is full or the folder cannot be written.

    Example:
        >>> with whole(Path("ids.bin")) as temporary:
        ...     written = temporary.write_bytes(b"...")
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


def read_path(path: object, what: str) -> Path:
    """Return a path that a user has given.

    Raises:
        InputError: it is neither a string nor a path.
    """
    if isinstance(path, str | os.PathLike):
        return Path(cast("str | os.PathLike[str]", path))
    raise InputError(f"something of type {type(path).__name__} is no {what}; give a string or a pathlib.Path")


def clear_leftovers(folder: Path) -> None:
    """Remove the temporary files that processes which are no more have left in a folder."""
    for path in folder.glob(".*.tmp"):
        number = path.name.rsplit(".", 2)[1]
        if number.isdigit() and (int(number) == os.getpid() or not _lives(int(number))):
            path.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    if os.name == "nt":  # there signal 0 is Ctrl-C, and no question
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's, or one that cannot be asked
    return True


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def read_regular(path: Path, limit: int) -> bytes:
    """Read a file of a folder that may be a stranger's: a regular file, and not a large one.

    A pipe would let its reader wait for ever, and a link to a device need never end.

    Args:
        path: the file.
        limit: the most bytes it may have.

    Raises:
        OSError: it cannot be read, or is no regular file, or is too large.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if found.st_size > limit:
        raise OSError(errno.EFBIG, f"{found.st_size:,} bytes, more than the {limit:,} it may have")
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"more than the {limit:,} bytes it may have")
    return data


def check_folder(folder: Path) -> None:
    """Raise a TslmError where ``folder`` is not a folder and cannot become one.

    Raises:
        TslmError: it, or a part of its path, is a file; or its name is no name for a folder.
    """
    for path in (folder, *folder.parents):
        try:
            if path.is_dir():
                return
            taken = path.exists()
        except OSError as error:
            raise TslmError(
                f"{folder} cannot be a folder: {error.strerror}; choose another folder"
            ) from error
        if taken:
            raise TslmError(f"{path} is a file, not a folder; choose another folder")


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, where it is not there.

    Raises:
        TslmError: it, or a part of its path, is a file; or it cannot be made.
    """
    check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TslmError(f"cannot write in {folder}: {error.strerror}; choose another folder") from error


def to_json(value: Any, indent: int | None = None) -> str:
    """Return plain values as JSON; what is not finite, which JSON cannot say, becomes null."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def finite(value: float) -> float | None:
    """Return the number, or None where JSON has none for it."""
    return value if math.isfinite(value) else None


def plain(value: Any) -> Any:
    """Return values within values, None in the place of every number that JSON has none for."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in cast(dict[str, Any], value).items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in cast(list[Any], value)]
    return value


def _sync(path: Path) -> None:
    """Flush a file or a folder (for a rename) to disk."""
    if os.name == "nt":  # Windows flushes no folder, and a file only through a handle that may write
        if path.is_dir():
            return
        handle = os.open(path, os.O_RDWR)
    else:
        handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
