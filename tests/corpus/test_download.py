"""Downloads from a server on the loopback: cut short, wrong, resumed, refused, offline."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tslm.corpus import named
from tslm.corpus.download import DownloadError, download
from tslm.corpus.named import CorpusFile, Home, NamedCorpus, download_corpus
from tslm.corpus.sources import Corpus, open_corpus
from tslm.errors import CorpusError

DATA = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(DATA).hexdigest()


@dataclass
class Server:
    """What the server gives, how it fails, and what it was asked."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    """After how many bytes to drop the connection, one for each coming answer."""
    statuses: list[int] = field(default_factory=list)
    """What to answer instead, one for each coming request."""
    ranges: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers["Range"]
            state.asked.append((self.path, wanted))
            if state.statuses:
                self.send_error(state.statuses.pop(0))
                return
            if self.path not in state.files:
                self.send_error(404)
                return
            data = state.files[self.path]
            first = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and state.ranges else 0
            if first and first >= len(data):
                self.send_error(416)
                return
            self.send_response(206 if first else 200)
            self.send_header("Content-Length", str(len(data) - first))
            self.end_headers()
            body = data[first:]
            self.wfile.write(body[: state.cuts.pop(0)] if state.cuts else body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.address = f"http://127.0.0.1:{http.server_address[1]}"
        yield state
        http.shutdown()
        thread.join()


def fetch(server: Server, target: Path, *paths: str, size: int = len(DATA), sha256: str = SHA256) -> None:
    addresses = [server.address + path for path in paths or ("/data",)]
    download(addresses, target, size=size, sha256=sha256, pause=0.0)


def test_a_file_arrives_whole(server: Server, tmp_path: Path):
    server.files["/data"] = DATA
    fetch(server, tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == DATA
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert server.asked == [("/data", None)]


def test_a_download_cut_short_goes_on_from_where_it_was(server: Server, tmp_path: Path):
    server.files["/data"] = DATA
    server.cuts = [100_000, 50_000]
    fetch(server, tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == DATA
    assert server.asked == [("/data", None), ("/data", "bytes=100000-"), ("/data", "bytes=150000-")]


def test_a_later_run_goes_on_from_where_an_earlier_one_was(server: Server, tmp_path: Path):
    server.files["/data"] = DATA
    server.cuts = [1000, 1000, 1000]
    with pytest.raises(DownloadError, match=r"cut short at 3,000 of 512,000 bytes"):
        fetch(server, tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["data.part"]
    fetch(server, tmp_path / "data")
    assert server.asked[-1] == ("/data", "bytes=3000-")
    assert (tmp_path / "data").read_bytes() == DATA


def test_a_server_that_cannot_resume_starts_again(server: Server, tmp_path: Path):
    server.files["/data"] = DATA
    server.ranges = False
    server.cuts = [100_000]
    fetch(server, tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == DATA


@pytest.mark.parametrize("wrong", [DATA[:-1] + b"x", DATA + b"x"])
def test_a_wrong_file_is_thrown_away(server: Server, tmp_path: Path, wrong: bytes):
    server.files["/data"] = wrong
    with pytest.raises(
        DownloadError, match=rf"the file has {len(wrong):,} bytes and SHA-256 .*, not 512,000"
    ):
        fetch(server, tmp_path / "data")
    assert list(tmp_path.iterdir()) == []
    assert len(server.asked) == 1  # another try at the same address would not mend it


def test_the_next_address_is_tried(server: Server, tmp_path: Path):
    server.files = {"/wrong": DATA[::-1], "/right": DATA}
    fetch(server, tmp_path / "data", "/none", "/wrong", "/right")
    assert (tmp_path / "data").read_bytes() == DATA
    assert [path for path, _ in server.asked] == ["/none", "/wrong", "/right"]


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path):
    server.files["/data"] = DATA
    server.statuses = [503, 429]
    fetch(server, tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == DATA


def test_a_part_longer_than_the_file_is_thrown_away(server: Server, tmp_path: Path):
    server.files["/data"] = DATA
    (tmp_path / "data.part").write_bytes(DATA * 2)
    fetch(server, tmp_path / "data")
    assert (tmp_path / "data").read_bytes() == DATA


def test_a_missing_file_says_so(server: Server, tmp_path: Path):
    with pytest.raises(DownloadError, match="/data: the server answers 404 Not Found"):
        fetch(server, tmp_path / "data")
    assert len(server.asked) == 1


def test_a_refused_connection_says_so(tmp_path: Path):
    with pytest.raises(DownloadError, match="Connection refused"):
        download(["http://127.0.0.1:9/x"], tmp_path / "data", size=1, sha256="", pause=0.0)


@pytest.fixture
def archived(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NamedCorpus:
    """A small corpus whose home is a zip archive on the server; the cache is this test's own."""
    texts = {"train": b"a b a\nb a\n", "valid": b"a\n", "test": b"b\n"}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for split, data in texts.items():
            archive.writestr(f"inner/{split}.tokens", data)
    server.files["/small/small.zip"] = buffer.getvalue()
    corpus = NamedCorpus(
        name="small",
        title="small",
        files={
            split: CorpusFile(
                name=f"{split}.tokens",
                size=len(data),
                tokens=len(data.split()) + data.count(b"\n"),
                sha256=hashlib.sha256(data).hexdigest(),
            )
            for split, data in texts.items()
        },
        vocabulary=3,
        homes=(
            Home(
                name="small.zip",
                addresses=("http://127.0.0.1:9/small.zip",),
                size=len(buffer.getvalue()),
                sha256=hashlib.sha256(buffer.getvalue()).hexdigest(),
                members={f"{split}.tokens": f"inner/{split}.tokens" for split in texts},
            ),
        ),
    )
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TSLM_DATA", raising=False)
    monkeypatch.setenv("TSLM_MIRROR", server.address)
    monkeypatch.setattr(named, "NAMED", {"small": corpus})
    monkeypatch.setattr("tslm.corpus.sources.NAMED", {"small": corpus})
    monkeypatch.setattr("tslm.corpus.sources.NAMES", ("small",))
    return corpus


def test_an_archive_is_unpacked_and_opened(server: Server, archived: NamedCorpus, tmp_path: Path):
    corpus = open_corpus("small")
    assert corpus.vocabulary.decode(corpus.splits["valid"]) == ["a", "<eos>"]
    folder = tmp_path / "cache" / "data" / "small"
    assert sorted(path.name for path in folder.iterdir()) == ["test.tokens", "train.tokens", "valid.tokens"]
    assert open_corpus("small").fingerprint == corpus.fingerprint
    assert len(server.asked) == 1  # the second time, nothing is fetched


def test_an_archive_without_the_files_is_refused(server: Server, archived: NamedCorpus, tmp_path: Path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("other", b"x")
    server.files["/small/small.zip"] = data = buffer.getvalue()
    home = archived.homes[0]
    wrong = Home(
        name=home.name,
        addresses=home.addresses,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        members=home.members,
    )
    corpus = NamedCorpus(name="small", title="", files=archived.files, vocabulary=3, homes=(wrong,))
    with pytest.raises(CorpusError, match=r"small\.zip cannot be unpacked"):
        download_corpus(corpus)


def test_offline_the_message_names_the_files_and_where_to_put_them(
    archived: NamedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tslm.corpus.download.FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("TSLM_MIRROR", "http://127.0.0.1:9")
    folder = tmp_path / "cache" / "data" / "small"
    with pytest.raises(CorpusError) as caught:
        open_corpus("small")
    message = str(caught.value)
    assert "the corpus small is not on this machine and cannot be downloaded" in message
    assert "Connection refused" in message
    assert f"put train.tokens, valid.tokens, test.tokens into {folder}" in message
    assert "small/ under --data-dir or TSLM_DATA" in message


@pytest.mark.ptb
def test_penn_treebank_is_downloaded_checked_and_opened(
    ptb: Corpus, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = Path(os.environ["TSLM_DATA"]) / "ptb"
    server.files = {f"/ptb/{path.name}": path.read_bytes() for path in source.glob("ptb.*.txt")}
    server.cuts = [1_000_000]
    monkeypatch.setattr("tslm.corpus.download.FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TSLM_MIRROR", server.address)
    monkeypatch.delenv("TSLM_DATA")
    assert open_corpus("ptb").fingerprint == ptb.fingerprint
    assert ("/ptb/ptb.train.txt", "bytes=1000000-") in server.asked
