"""SHA-256 checksums of a folder's files, kept beside them in ``checksums.json`` and compared when they are read.

What a disk, a network or a hand has changed since it was written is found before a number is computed from it. A file
without a checksum (of an older version, or copied without the list) is taken as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from tslm.errors import RunError
from tslm.files import read_regular, whole, write_text
from tslm.progress import track_bytes

SUMS = "checksums.json"
"""The list: for each file its checksum, and the one it had before."""

_BLOCK_BYTES = 1 << 20
_REMEMBERED = 4


class Changed(RunError):  # noqa: N818
    """A file that is not as it was written."""


def hash_whole(path: Path) -> str:
    """Return the SHA-256 of a file, read from its first byte to its last (1.5 GB/s on the machine it was tried on)."""
    digest = hashlib.sha256()
    with path.open("rb") as file, track_bytes(f"checking {path.name}", path.stat().st_size) as advance:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


@contextmanager
def sealed(path: Path) -> Generator[Path, None, None]:
    """Write a file as ``whole`` does, and its checksum.

    The checksum is written before the file takes its place, beside that of the file before it: at whatever moment the
    process dies, the file is one of the two.

    Raises:
        RunError: the folder is not there (any more).
        TslmError: the disk is full or the folder cannot be written.
    """
    if not path.parent.is_dir():
        raise RunError(f"cannot write {path}: its folder is not there; was it removed or renamed meanwhile?")
    with whole(path) as temporary:
        yield temporary
        _note(path.parent, {path.name: hash_whole(temporary)})


def write_sealed(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all, and its checksum."""
    with sealed(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def seal(folder: Path, names: Iterable[str]) -> None:
    """Write the checksums of files that are in their places already."""
    _note(folder, {name: hash_whole(folder / name) for name in names})


def unseal(folder: Path, names: Iterable[str]) -> None:
    """Forget the checksums of files that are about to be written in another way than by ``sealed``."""
    _note(folder, dict.fromkeys(names))


def check_seal(path: Path, remedy: str = "copy it once more from where it is whole") -> None:
    """Compare a file with its checksum, where there is one.

    Args:
        path: the file.
        remedy: what to do about a damaged one.

    Raises:
        Changed: the file, or the list of checksums, is not as it was written.
    """
    known = read_sums(path.parent).get(path.name)
    if known is None:
        return
    if not path.is_file():  # a pipe would let its reader wait for ever
        raise Changed(f"cannot read {path}: it is missing, or no regular file; {remedy}")
    try:
        found = hash_whole(path)
    except OSError as error:
        raise Changed(f"cannot read {path}: {error.strerror}") from error
    if found not in known:
        raise Changed(
            f"{path} is damaged (SHA-256 {found[:12]}…, not {known[0][:12]}…): it is not as it was written; {remedy} "
            f"(or, if the change is meant, take its line out of {SUMS})"
        )


def read_sums(folder: Path) -> dict[str, list[str]]:
    """Return the checksums of a folder's files; none where there is no list.

    Raises:
        Changed: the list is damaged.
    """
    path = folder / SUMS
    try:
        table: object = json.loads(read_regular(path, 1 << 20))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise Changed(
            f"{path} is damaged ({error}); delete it if the other files are known to be whole"
        ) from error
    sums: dict[str, list[str]] = {}
    for name, known in cast(dict[str, object], table).items() if isinstance(table, dict) else [("", None)]:
        if (
            not isinstance(known, list)
            or not known
            or not all(isinstance(one, str) for one in cast(list[object], known))
        ):
            raise Changed(f"{path} is damaged; delete it if the other files are known to be whole")
        sums[name] = cast(list[str], known)
    return sums


def _note(folder: Path, found: Mapping[str, str | None]) -> None:
    try:
        sums = read_sums(folder)
    except Changed:
        sums = {}  # a damaged list is no reason to lose what is being written
    for name, digest in found.items():
        if digest is None:
            sums.pop(name, None)
            continue
        before = [one for one in sums.get(name, []) if one != digest]
        sums[name] = [digest, *before][:_REMEMBERED]
    write_text(folder / SUMS, json.dumps(sums, indent=1) + "\n")
