from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tslm.files import read_regular
from tslm.seals import SUMS, Changed, check_seal, read_sums, seal, sealed, write_sealed


def test_a_changed_file_is_found_and_a_new_one_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    write_sealed(path, "first")
    check_seal(path)
    path.write_text("fIrst")
    with pytest.raises(Changed, match=r"recipe\.toml is damaged .*it is not as it was written"):
        check_seal(path)
    write_sealed(path, "second")
    check_seal(path)
    path.unlink()
    with pytest.raises(Changed, match="cannot read"):
        check_seal(path)


def test_a_file_without_a_checksum_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("anything")
    check_seal(tmp_path / "a")
    seal(tmp_path, ["a"])
    (tmp_path / "a").write_text("another")
    with pytest.raises(Changed):
        check_seal(tmp_path / "a")


def test_whenever_the_process_dies_the_file_is_one_of_two(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_sealed(path, "old")

    class Killed(BaseException):
        pass

    def die() -> None:
        with sealed(path) as temporary:
            temporary.write_text("half of the n")
            raise Killed

    with pytest.raises(Killed):
        die()
    check_seal(path)
    # The checksum of the new file is written, and the process dies before the file takes its place.
    seal(tmp_path, ["model"])
    sums = read_sums(tmp_path)
    (tmp_path / SUMS).write_text(json.dumps({"model": ["0" * 64, *sums["model"]]}))
    check_seal(path)
    for number in range(10):
        write_sealed(path, f"text {number}")
    check_seal(path)
    assert len(read_sums(tmp_path)["model"]) <= 4


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": "b"}', '{"a": []}', '{"a": [1]}', "[" * 50_000])
def test_a_damaged_list_is_told_and_written_anew(tmp_path: Path, content: str) -> None:
    write_sealed(tmp_path / "a", "text")
    (tmp_path / SUMS).write_text(content)
    with pytest.raises(Changed, match=r"checksums\.json is damaged"):
        check_seal(tmp_path / "a")
    write_sealed(tmp_path / "a", "text")
    check_seal(tmp_path / "a")


def test_only_regular_files_of_limited_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="5 bytes, more than the 4"):
        read_regular(tmp_path / "file", 4)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "zero", "folder"):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(tmp_path / name, 100)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "nothing", 100)
