from __future__ import annotations

import errno
import math
import os
import stat
from pathlib import Path

import pytest

from tslm.errors import TslmError
from tslm.files import clear_leftovers, make_folder, to_json, whole, write_text


def test_a_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "text.txt"
    write_text(path, "Grüße\n")
    assert path.read_text(encoding="utf-8") == "Grüße\n"
    assert stat.S_IMODE(path.stat().st_mode) & 0o044  # readable by others, as the umask allows
    assert [entry.name for entry in path.parent.iterdir()] == ["text.txt"]


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    write_text(path, "old")
    with pytest.raises(KeyboardInterrupt), whole(path) as temporary:  # noqa: PT012
        temporary.write_text("ne")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_what_processes_that_are_no_more_have_left_is_cleared(tmp_path: Path) -> None:
    kept = [".text.txt.tmp", ".text.txt.name.tmp", f".text.txt.{os.getppid()}.tmp", "text.txt", "text.1.tmp"]
    cleared = [
        f".text.txt.{os.getpid()}.tmp",
        f".text.txt.{2**22 + 1}.tmp",
    ]  # no process has so high a number
    for name in (*kept, *cleared):
        (tmp_path / name).write_text("half")
    clear_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*kept}


def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    write_text(path, "old")
    with pytest.raises(TslmError, match=r"cannot write .*text.txt: No space left on device"), whole(path):
        raise OSError(28, os.strerror(28))
    assert path.read_text() == "old"


def test_json_says_null_for_what_it_cannot_say() -> None:
    value = {"a": [1.5, math.inf], "b": {"c": math.nan}, "d": ("é", None, True, 3)}
    assert to_json(value) == '{"a": [1.5, null], "b": {"c": null}, "d": ["é", null, true, 3]}'


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TslmError, match="cannot write"):
        write_text(tmp_path / "file" / "text.txt", "")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    with pytest.raises(TslmError, match="file is a file, not a folder"):
        make_folder(tmp_path / "file" / "b")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(TslmError, match=r"cannot write in .*: Read-only file system; choose another folder"):
        make_folder(tmp_path / "new")
