"""Reading text: whole words whatever the block size, all compressions, and what is no text."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tslm.corpus import text
from tslm.corpus.text import read_text
from tslm.errors import CorpusError

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstandard": zstandard.ZstdCompressor().compress,
}


def write(folder: Path, data: bytes) -> Path:
    path = folder / "text"
    path.write_bytes(data)
    return path


def lines_of(path: Path) -> list[list[str]]:
    joined = "".join(read_text(path))
    assert joined.endswith("\n")
    return [line.split() for line in joined[:-1].split("\n")]


@given(
    lines=st.lists(st.lists(st.text("aäß🎵", min_size=1, max_size=4), max_size=6), min_size=1),
    block=st.integers(1, 40),
    ended=st.booleans(),
)
def test_words_and_lines_are_those_of_the_file_whatever_the_block_size(tmp_path_factory, lines, block, ended):
    if not any(lines) or not (ended or lines[-1]):
        return
    data = "\n".join(" ".join(line) for line in lines) + ("\n" if ended else "")
    path = write(tmp_path_factory.mktemp("text"), data.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "BLOCK_BYTES", block)
        pieces = list(read_text(path))
    assert [word for piece in pieces for word in piece.split()] == data.split()  # no word is cut in two
    assert [line.split() for line in "".join(pieces)[:-1].split("\n")] == lines


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compressed_files_are_read_by_their_content(tmp_path: Path, compression: str):
    data = "ein Satz\nnoch ein längerer Satz\n".encode() * 50_000
    path = write(tmp_path, COMPRESSIONS[compression](data))
    read: list[int] = []
    joined = "".join(read_text(path, read.append))
    assert joined.encode() == data
    assert sum(read) == path.stat().st_size


def test_files_of_several_compressed_parts_are_read_to_the_end(tmp_path: Path):
    for compress in (gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress):
        path = write(tmp_path, compress(b"one\n") + compress(b"two\n"))
        assert lines_of(path) == [["one"], ["two"]]


@pytest.mark.parametrize("compression", ["gzip", "xz", "zstandard"])
def test_a_compressed_file_cut_short_is_refused(tmp_path: Path, compression: str):
    data = COMPRESSIONS[compression](bytes(range(32, 127)) * 3000 + b"\n")
    path = write(tmp_path, data[:-20])
    with pytest.raises(CorpusError, match="damaged or cut short"):
        list(read_text(path))


@pytest.mark.parametrize("compression", ["gzip", "xz", "zstandard"])
def test_a_damaged_compressed_file_is_refused(tmp_path: Path, compression: str):
    data = bytearray(COMPRESSIONS[compression](b"some text and more of it, always changing 1 2 3\n" * 100))
    data[len(data) // 2] ^= 0xFF
    path = write(tmp_path, bytes(data[:8]) + bytes(20) + bytes(data[28:]))
    with pytest.raises(CorpusError, match="damaged or cut short"):
        list(read_text(path))


def test_crlf_and_a_byte_order_mark_change_nothing(tmp_path: Path):
    path = write(tmp_path, b"\xef\xbb\xbfone two\r\nthree\r\n\r\nfour")
    assert lines_of(path) == [["one", "two"], ["three"], [], ["four"]]


def test_a_line_of_ten_megabytes_is_one_line(tmp_path: Path):
    path = write(tmp_path, b"before\n" + b"word " * 2_000_000 + b"\nafter\n")
    lines = lines_of(path)
    assert [len(line) for line in lines] == [1, 2_000_000, 1]


def test_a_word_of_ten_megabytes_is_refused(tmp_path: Path):
    path = write(tmp_path, b"before\nand " + b"x" * 10_000_000 + b"\n")
    with pytest.raises(CorpusError, match=r"line 2, byte 11: a word of more than 1,048,576 bytes"):
        list(read_text(path))


@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_invalid_utf8_is_found_by_line_and_byte(tmp_path: Path, size: int):
    before = b"abc def\n" * size
    path = write(tmp_path, before + "für ".encode() + b"caf\xe9 noir\n")
    place = rf"line {size + 1}, byte {len(before) + 8}: byte 0xe9 is not valid UTF-8"
    with pytest.raises(CorpusError, match=place):
        list(read_text(path))


def test_utf16_is_refused(tmp_path: Path):
    path = write(tmp_path, "some text\n".encode("utf-16"))
    with pytest.raises(CorpusError, match=r"line 1, byte 0: .*save the file as UTF-8"):
        list(read_text(path))


def test_nul_bytes_are_found_by_line_and_byte(tmp_path: Path):
    path = write(tmp_path, b"abc\nde\0f\n")
    with pytest.raises(CorpusError, match=r"line 2, byte 6: a NUL byte"):
        list(read_text(path))


@pytest.mark.parametrize("data", [b"", b"\n\n \n", b"\xef\xbb\xbf", b"\r"])
def test_an_empty_file_is_refused(tmp_path: Path, data: bytes):
    with pytest.raises(CorpusError, match="is empty"):
        list(read_text(write(tmp_path, data)))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_pipe_is_read_like_a_file(tmp_path: Path, compression: str):
    data = b"one two\nthree\n" * 30_000
    os.mkfifo(tmp_path / "pipe")
    writer = Thread(target=(tmp_path / "pipe").write_bytes, args=(COMPRESSIONS[compression](data),))
    writer.start()
    assert "".join(read_text(tmp_path / "pipe", [].append)).encode() == data
    writer.join()


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path):
    with pytest.raises(CorpusError, match="No such file"):
        list(read_text(tmp_path / "none"))
    with pytest.raises(CorpusError, match="Is a directory"):
        list(read_text(tmp_path))
