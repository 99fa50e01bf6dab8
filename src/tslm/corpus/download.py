"""Downloads that resume, try again, and are checked before anybody sees the file."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tslm.errors import DownloadError
from tslm.progress import track_bytes

TRIES = 3
FIRST_PAUSE_SECONDS = 0.5
TIMEOUT_SECONDS = 20.0
_BLOCK_BYTES = 1 << 16

# Failures of the network, worth another try. A full disk is an OSError too, and is not among them.
_PASSING = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)


def download(
    addresses: Sequence[str],
    target: Path,
    *,
    size: int,
    sha256: str,
    tries: int = TRIES,
    pause: float | None = None,
) -> None:
    """Fetch a file from the first address that gives the right one.

    What has arrived is kept beside the target (``.part``), and the next try, also of a later run, goes on
    from there. The target appears only when size and SHA-256 are right.

    Args:
        addresses: where the file may be had, the preferred first.
        target: the file to write.
        size: its length in bytes.
        sha256: its SHA-256.
        tries: how often each address is tried.
        pause: seconds before the second try, doubled before each further one; half a second unless given.

    Raises:
        DownloadError: every address failed; says why each of them did.
    """
    pause = FIRST_PAUSE_SECONDS if pause is None else pause
    part = target.with_name(target.name + ".part")
    reasons: dict[str, object] = {}
    for address in addresses:
        for attempt in range(tries):
            if attempt:
                time.sleep(pause * 2 ** (attempt - 1))
            try:
                _fetch(address, part, size)
                _check(part, size, sha256)
            except _FinalError as error:
                reasons[address] = error
                break
            except _PASSING as error:
                reasons[address] = error.reason if isinstance(error, urllib.error.URLError) else error
                continue
            part.replace(target)
            return
    raise DownloadError("; ".join(f"{address}: {reason}" for address, reason in reasons.items()))


class _FinalError(Exception):
    """A failure that another try at the same address will not mend."""


def _fetch(address: str, part: Path, size: int) -> None:
    """Bring ``part`` to its full length, going on from where it ends."""
    have = part.stat().st_size if part.exists() else 0
    if have == size:
        return
    if have > size:
        part.unlink()
        have = 0
    request = urllib.request.Request(address, headers={"User-Agent": "tslm"})  # noqa: S310
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the file there is shorter than what we have: start again
            part.unlink(missing_ok=True)
        elif error.code < 500 and error.code != 429:
            raise _FinalError(f"the server answers {error.code} {error.reason}") from error
        raise
    resumed = response.status == 206
    with (
        response,
        part.open("ab" if resumed else "wb") as handle,
        track_bytes(f"downloading {part.stem}", size) as advance,
    ):
        advance(have if resumed else 0)
        while block := response.read(_BLOCK_BYTES):
            handle.write(block)
            advance(len(block))


def _check(part: Path, size: int, sha256: str) -> None:
    """Raise if the file is not the right one: to go on if it is too short, to start again if it is wrong."""
    have = part.stat().st_size
    if have < size:
        raise ConnectionError(f"the download was cut short at {have:,} of {size:,} bytes")
    found = hashlib.sha256(part.read_bytes()).hexdigest()
    if have > size or found != sha256:
        part.unlink()
        raise _FinalError(
            f"the file has {have:,} bytes and SHA-256 {found[:12]}…, not {size:,} bytes and {sha256[:12]}…"
        )
