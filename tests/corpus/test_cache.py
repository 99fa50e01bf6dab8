"""The cache: whole folders or none, one writer at a time, and a clear word when it cannot be written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tslm.cache import hash_file, waiting_lock
from tslm.corpus.sources import open_corpus
from tslm.corpus.store import prepare_corpus
from tslm.errors import CorpusError

SOURCE = str(Path(__file__).resolve().parent.parent.parent / "src")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"some words of line {number % 97}\n" for number in range(20_000)))
    return path


def start(code: str, *arguments: str, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env=os.environ | {"PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


OPEN = """
import os, resource, sys
import tslm.corpus.sources, tslm.corpus.statistics
from tslm.cli import main
{before}
sys.exit(main(["data", "stats", sys.argv[1], "--json"]))
"""


def test_a_prepared_folder_is_not_written_again(cache: Path):
    calls: list[Path] = []

    def write(folder: Path) -> None:
        calls.append(folder)
        (folder / "data").write_bytes(b"12345")
        (folder / "corpus.json").write_text(json.dumps({"bytes": {"data": 5}}))

    first = prepare_corpus({"a": 1}, write)
    assert prepare_corpus({"a": 1}, write) == first
    assert len(calls) == 1
    assert prepare_corpus({"a": 2}, write) != first
    # A folder that lost data is made anew.
    (first / "data").write_bytes(b"123")
    assert prepare_corpus({"a": 1}, write) == first
    assert (first / "data").read_bytes() == b"12345"


def test_nothing_is_left_of_a_text_that_fails_half_way(cache: Path, tmp_path: Path):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"good words\n" * 100_000 + b"\xff\n")
    with pytest.raises(CorpusError, match="line 100001"):
        open_corpus(str(path))
    assert [entry.name for entry in (cache / "corpora").iterdir() if not entry.name.endswith(".lock")] == []


def test_what_a_killed_process_leaves_does_no_harm(cache: Path):
    process = start(
        """
        import os, signal
        from tslm.corpus.store import prepare_corpus
        def write(folder):
            (folder / "data").write_bytes(b"12")
            os.kill(os.getpid(), signal.SIGKILL)
        prepare_corpus({"a": 1}, write)
        """
    )
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert len(list((cache / "corpora").glob(".*"))) == 1  # the half-written folder, under another name

    def write(folder: Path) -> None:
        (folder / "corpus.json").write_text('{"bytes": {}}')

    folder = prepare_corpus({"a": 1}, write)
    assert sorted(path.name for path in folder.iterdir()) == ["checksums.json", "corpus.json"]
    assert list((cache / "corpora").glob(".*")) == []


def test_two_processes_preparing_the_same_corpus_at_once(cache: Path, text: Path):
    expected = open_corpus(str(text))
    (folder,) = [path for path in (cache / "corpora").iterdir() if path.is_dir()]
    lock = folder.with_name(folder.name + ".lock")
    for path in (*folder.iterdir(),):
        path.unlink()
    folder.rmdir()
    # Both are held up until each has said that it waits; then they go for the same corpus together.
    with waiting_lock(lock):
        processes = [start(OPEN.format(before=""), str(text)) for _ in range(2)]
        for process in processes:
            assert process.stderr is not None
            assert "waiting for another process" in process.stderr.readline()
    for process in processes:
        output, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
        assert json.loads(output)[str(text)]["fingerprint"] == expected.fingerprint
    assert [path.name for path in (cache / "corpora").iterdir() if path.is_dir()] == [folder.name]


def test_a_full_cache_folder_is_one_clear_line(cache: Path, text: Path):
    # A limit on file size is a disk that has no room for the ids.
    process = start(
        OPEN.format(before="resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))"), str(text)
    )
    output, errors = process.communicate()
    assert (process.returncode, output) == (2, "")
    assert errors.count("\n") == 1
    assert f"cannot write to the cache folder {cache}: File too large" in errors
    assert "set TSLM_CACHE to another folder" in errors
    assert [path.name for path in (cache / "corpora").iterdir() if path.is_dir()] == []


def test_a_read_only_cache_folder_is_one_clear_line_and_serves_what_it_has(text: Path):
    # As an ordinary user, since root may write anywhere; in a folder that this user can enter.
    # NumPy imports mmap when it first maps a file, argparse locale when it first speaks, and this user may not be able
    # to read the standard library.
    code = OPEN.format(before="import locale, mmap\nif os.geteuid() == 0: os.seteuid(65534)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        cache = folder / "cache"
        cache.mkdir()
        own = folder / "own.txt"
        own.write_bytes(text.read_bytes())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TSLM_CACHE", str(cache))
            cache.chmod(0o555)
            process = start(code, str(own), cwd=folder)
            output, errors = process.communicate()
            assert (process.returncode, output) == (2, "")
            assert errors.count("\n") == 1
            assert f"cannot write to the cache folder {cache}: Permission denied" in errors
            assert "set TSLM_CACHE to another folder" in errors
            cache.chmod(0o755)
            expected = open_corpus(str(own)).fingerprint
            for path in (cache, *(path for path in cache.rglob("*") if path.is_dir())):
                path.chmod(0o555)
            process = start(code, str(own), cwd=folder)
            output, errors = process.communicate()
            assert (process.returncode, errors) == (0, "")
            assert json.loads(output)[str(own)]["fingerprint"] == expected
            for path in (cache, *(path for path in cache.rglob("*") if path.is_dir())):
                path.chmod(0o755)


def test_a_cache_folder_that_is_a_file_is_one_clear_line(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "file"))
    with pytest.raises(CorpusError, match=r"cannot write to the cache folder .*file: .*TSLM_CACHE"):
        open_corpus(str(text))


def test_hashes_are_remembered_for_files_that_have_settled(cache: Path, tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"one")
    fresh = hash_file(path)
    assert not (cache / "hashes").exists()  # changed a moment ago: a second change could go unseen
    os.utime(path, (1, 1))
    assert hash_file(path) == fresh
    (memo,) = (cache / "hashes").iterdir()
    # The memo is what is read from now on, while size and time stay the same ...
    memo.write_text(memo.read_text().replace(fresh, "remembered"))
    assert hash_file(path) == "remembered"
    # ... and no longer: a change of the same length with the old time still changes the inode's own time.
    path.write_bytes(b"two")
    os.utime(path, (1, 1))
    assert hash_file(path) not in ("remembered", fresh)
    memo.write_text("{damaged")
    assert hash_file(path) not in ("remembered", fresh)


@pytest.mark.parametrize("name", ["train.npy", "test.npy", "vocabulary.txt", "corpus.json", "checksums.json"])
def test_a_cache_that_has_changed_is_made_anew(cache: Path, text: Path, name: str, capsys) -> None:
    """Same size, other bytes: what was a wrong number is now the right one."""
    before = open_corpus(str(text))
    ids = {split: np.array(found) for split, found in before.splits.items()}
    [path] = (cache / "corpora").glob(f"*/{name}")
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 2, len(data) // 2 + 8):
        data[place] ^= 1
    path.write_bytes(data)
    after = open_corpus(str(text))
    assert path.read_bytes() != data
    assert after.fingerprint == before.fingerprint
    assert after.vocabulary == before.vocabulary
    for split, found in after.splits.items():
        assert np.array_equal(found, ids[split])
    assert "it is made anew" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("corpus.json", b"[]"),
        ("corpus.json", b'{"bytes": 5}'),
        ("corpus.json", b"[" * 100_000),
        ("test.npy", b""),
        ("test.npy", b"\x93NUMPY\x01\x00v\x00{'descr': 'O'}"),
        ("checksums.json", b"[]"),
        ("checksums.json", b'{"test.npy": 5}'),
        ("checksums.json", b"[" * 100_000),
        ("checksums.json", b"{}"),
    ],
)
def test_headers_and_lists_of_a_wrong_shape_are_made_anew(
    cache: Path, text: Path, name: str, content: bytes
) -> None:
    before = open_corpus(str(text))
    expected = len(before.splits["test"])
    [path] = (cache / "corpora").glob(f"*/{name}")
    path.write_bytes(content)
    after = open_corpus(str(text))
    assert (after.fingerprint, len(after.splits["test"])) == (before.fingerprint, expected)


def test_a_file_too_many_or_too_few_is_made_anew(cache: Path, text: Path) -> None:
    before = open_corpus(str(text))
    [folder] = {path.parent for path in (cache / "corpora").glob("*/corpus.json")}
    (folder / "more").write_bytes(b"")
    assert open_corpus(str(text)).fingerprint == before.fingerprint
    assert not (folder / "more").exists()
    (folder / "valid.npy").unlink()
    assert open_corpus(str(text)).fingerprint == before.fingerprint
    assert (folder / "valid.npy").exists()


@pytest.mark.parametrize("content", [b"[" * 100_000, b"{}", b'{"state": 1, "sha256": 5}', b"\xff"])
def test_a_damaged_note_of_a_hash_is_forgotten(cache: Path, text: Path, content: bytes) -> None:
    os.utime(text, (1_000_000_000, 1_000_000_000))
    expected = hash_file(text)
    [memo] = (cache / "hashes").iterdir()
    memo.write_bytes(content)
    assert hash_file(text) == expected
