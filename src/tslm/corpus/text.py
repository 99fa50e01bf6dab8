"""Text files, plain or compressed, read as a stream of whole words and checked on the way."""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from tslm.errors import CorpusError

BLOCK_BYTES = 1 << 18
"""How much is read at a time: small enough for the processor's cache, which measured fastest."""

LONGEST_WORD_BYTES = 1 << 20
"""A longer run without a space is taken as a sign that the file is no text."""


@dataclass(frozen=True)
class TextSize:
    """How large a text is, whatever words a rule makes of it; what different rules can be compared by."""

    bytes: int
    """Bytes of UTF-8 as the text stands in its file, newlines included; the last line has one in any case."""

    words: int
    """Words between white space."""

    lines: int
    """Lines."""


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_text(path: Path, on_read: Callable[[int], None] | None = None) -> Iterator[str]:
    """Yield the text of a file piece by piece, cut between words; each line, the last too, ends in a newline.

    A line may be as long as it likes. gzip, xz and zstandard files are recognised by their first bytes. A
    byte-order mark is dropped; the carriage return of CRLF is white space like any other.

    Args:
        path: the file.
        on_read: is told how many bytes of the file (as stored) have been read since the last call.

    Raises:
        CorpusError: the file is missing, damaged, not UTF-8 (with line and byte offset), or has NUL bytes or
            a word of a megabyte; or it has no word at all.
    """
    offset = 0  # of `rest` in the text, for error messages
    line = 1
    rest = b""
    ended = True
    empty = True
    for block in _blocks(path, on_read):
        data = rest + block
        if offset == 0 and data.startswith(_BYTE_ORDER_MARK):
            data = data[len(_BYTE_ORDER_MARK) :]
            offset = len(_BYTE_ORDER_MARK)
        cut = max(data.rfind(b"\n"), data.rfind(b" "), data.rfind(b"\t")) + 1
        if cut == 0 and len(data) > LONGEST_WORD_BYTES:
            raise CorpusError(
                f"{path}, line {line}, byte {offset}: a word of more than {LONGEST_WORD_BYTES:,} bytes; "
                "give text with spaces between words and one sentence per line"
            )
        rest = data[cut:]
        if not cut:
            continue
        piece = data[:cut]
        empty = empty and piece.isspace()
        yield _decode(piece, path, line, offset)
        offset += cut
        line += piece.count(b"\n")
        ended = piece.endswith(b"\n")
    if empty and (not rest or rest.isspace()):
        raise CorpusError(f"{path} is empty; give a text with one sentence per line")
    if rest:
        yield _decode(rest, path, line, offset) + "\n"
    elif not ended:
        yield "\n"


def name_remedy(beginning: bytes) -> str:
    """Return a command that makes UTF-8 of a file that is none, by its first bytes."""
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "iconv -f utf-16 -t utf-8"
    if beginning.startswith(b"\x1f\x8b"):
        return "gunzip -c"
    return "iconv -f latin1 -t utf-8"


def _decode(piece: bytes, path: Path, line: int, offset: int) -> str:
    """Return ``piece`` as text, or raise an error that says where it is no text."""
    try:
        decoded = piece.decode("utf-8")
    except UnicodeDecodeError as error:
        line += piece.count(b"\n", 0, error.start)
        raise CorpusError(
            f"{path}, line {line}, byte {offset + error.start}: byte 0x{piece[error.start]:02x} is not valid "
            f"UTF-8; save the file as UTF-8 (for example: {name_remedy(b'' if offset else piece)})"
        ) from error
    if "\0" in decoded:
        nul = piece.index(b"\0")
        line += piece.count(b"\n", 0, nul)
        raise CorpusError(
            f"{path}, line {line}, byte {offset + nul}: a NUL byte; give plain text saved as UTF-8"
        )
    return decoded


def _blocks(path: Path, on_read: Callable[[int], None] | None) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a file."""
    try:
        with path.open("rb") as handle:
            start = handle.peek(6)  # not read and seek: a pipe has no way back
            done = 0
            for block in _open(start)(handle):
                yield block
                if on_read is not None and handle.seekable():
                    # Told as the place in the stored file, since compressed and plain lengths differ.
                    here = handle.tell()
                    on_read(here - done)
                    done = here
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError, EOFError) as error:
        raise CorpusError(f"{path} is damaged or cut short ({error}); fetch or compress it again") from error
    except OSError as error:
        raise CorpusError(
            f"cannot read {path}: {error.strerror}; check the path and its permissions"
        ) from error


def _open(start: bytes) -> Callable[[io.BufferedReader], Iterator[bytes]]:
    """Return the reader that the first bytes of a file ask for; none of them can start a UTF-8 text."""
    if start.startswith(b"\x1f\x8b"):
        return lambda handle: _plain(gzip.GzipFile(fileobj=handle, mode="rb"))
    if start.startswith(b"\xfd7zXZ\0"):
        return lambda handle: _plain(lzma.LZMAFile(handle))
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        return _zstandard
    return _plain


def _plain(handle: io.BufferedIOBase) -> Iterator[bytes]:
    while block := handle.read(BLOCK_BYTES):
        yield block


def _zstandard(handle: io.BufferedReader) -> Iterator[bytes]:
    """Yield the blocks of all frames; unlike the library's own reader, notice a missing end."""
    reader = zstandard.ZstdDecompressor().decompressobj()
    fed = False
    while data := handle.read(1 << 14):
        while data:
            if reader.eof:
                reader = zstandard.ZstdDecompressor().decompressobj()
            if block := reader.decompress(data):
                yield block
            data = reader.unused_data
        fed = True
    if fed and not reader.eof:
        raise EOFError("the file ends before its last frame")
