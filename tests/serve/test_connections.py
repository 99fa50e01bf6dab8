"""Clients that do not behave, against a server with short limits in a thread of this process."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import httpx
import pytest

from tslm.inference import generate
from tslm.serve import server as server_module
from tslm.serve.app import create_app
from tslm.serve.limits import Limits
from tslm.serve.models import open_models
from tslm.serve.server import Server, listen, make_server


@dataclass
class InThread:
    port: int
    server: Server
    thread: threading.Thread

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def post(self, path: str, body: dict) -> socket.socket:
        """Ask, with a small buffer for the answer, and do not read it."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect(("127.0.0.1", self.port))
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        client.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        return client

    def healthy(self) -> bool:
        return httpx.get(f"{self.address}/v1/health", timeout=10).status_code == 200


@pytest.fixture
def start(runs) -> Iterator[Callable[..., InThread]]:
    with ExitStack() as stack:

        @contextmanager
        def running(**limits) -> Iterator[InThread]:
            listener = listen("127.0.0.1", 0)
            port = listener.getsockname()[1]
            begun = threading.Event()
            server = make_server(create_app(open_models([runs["kn"]]), Limits(**limits)), begun.set)
            thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
            thread.start()
            assert begun.wait(20)
            try:
                yield InThread(port, server, thread)
            finally:
                server.should_exit = True
                thread.join(20)
                listener.close()
            assert not thread.is_alive()

        yield lambda **limits: stack.enter_context(running(**limits))


def read_all(client: socket.socket) -> bytes:
    received = b""
    while part := client.recv(65536):
        received += part
    return received


def read_until(client: socket.socket, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        part = client.recv(65536)
        assert part, received
        received += part
    return received


LONG = {"length": 1000, "number": 16, "stop": [], "stream": True}


def test_a_head_that_does_not_arrive_is_answered_and_closed(start) -> None:
    running = start(header_seconds=0.3)
    clients = [running.connect() for _ in range(20)]
    for place, client in enumerate(clients):
        client.sendall(b"POST /v1/score HTTP/1.1\r\nhost: loc"[: 2 * place])
    assert running.healthy()
    began = time.monotonic()
    for client in clients:
        answer = read_all(client)
        assert b"408" in answer
        assert json.loads(answer.split(b"\r\n\r\n")[1])["error"]["code"] == 408
        client.close()
    assert time.monotonic() - began < 10
    assert running.healthy()


def test_a_second_head_on_the_same_connection_has_its_time_too(start) -> None:
    running = start(header_seconds=0.3)
    with running.connect() as client:
        client.sendall(b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        read_until(client, b'"ok"}')
        time.sleep(0.5)  # idle between two requests: that is the keep-alive time, not the head's
        client.sendall(b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        read_until(client, b'"ok"}')
        client.sendall(b"GET /v1/hea")
        assert b"408" in read_all(client)


def test_half_open_connections_give_way_to_those_who_ask(start) -> None:
    running = start(connections=16)
    clients = [running.connect() for _ in range(60)]
    for client in clients:
        client.sendall(b"GET / HTTP/1.1\r\n")
    assert all(running.healthy() for _ in range(5))
    assert len(running.server.server_state.connections) <= 16
    for client in clients:
        client.close()


def test_where_all_are_being_answered_one_more_is_told_so(start, monkeypatch) -> None:
    slow_steps(monkeypatch, 0.05)
    running = start(connections=2, workers=4)
    clients = [running.post("/v1/generate", {**LONG, "number": 1}) for _ in range(2)]
    for client in clients:
        assert b"200 OK" in client.recv(100)
    with running.connect() as client:
        client.sendall(b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"503" in read_all(client)
    for client in clients:
        client.close()


def test_readers_that_stop_reading_block_nobody_and_are_hung_up_on(start) -> None:
    running = start(workers=2, send_seconds=0.7)
    readers = [running.post("/v1/generate", LONG) for _ in range(4)]
    for reader in readers:
        assert b"200 OK" in reader.recv(20)
    with httpx.Client(base_url=running.address, timeout=10) as client:
        for _ in range(5):
            assert client.post("/v1/score", json={"text": "the cat"}).status_code == 200
    connections = running.server.server_state.connections
    until = time.monotonic() + 20
    while connections and time.monotonic() < until:
        time.sleep(0.05)
    assert not connections
    for reader in readers:
        reader.close()


def slow_steps(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    draw = generate.Generation._draw

    def slow(self, *arguments):
        time.sleep(seconds)
        return draw(self, *arguments)

    monkeypatch.setattr(generate.Generation, "_draw", slow)


def test_a_signal_in_a_stream_is_told_in_the_stream(start, monkeypatch, capsys) -> None:
    slow_steps(monkeypatch, 0.02)
    monkeypatch.setattr(server_module, "GRACE_SECONDS", 2.0)
    running = start()
    with running.post("/v1/generate", {**LONG, "number": 1}) as client:
        received = client.recv(500)
        running.server.handle_exit(signal.SIGTERM, None)
        received += read_all(client)
        running.thread.join(20)
    events = [
        json.loads(line[6:])
        for line in received.decode().splitlines()
        if line.startswith("data: ") and line.endswith("}")
    ]
    assert events[-1]["error"]["code"] == 503
    assert "stopping" in events[-1]["error"]["message"]
    assert received.endswith(b"0\r\n\r\n")  # the stream was ended, not cut
    assert not capsys.readouterr().err


def test_a_signal_while_nobody_reads_ends_the_server_all_the_same(start, monkeypatch, capsys) -> None:
    monkeypatch.setattr(server_module, "GRACE_SECONDS", 2.0)
    running = start(send_seconds=60.0)
    with running.post("/v1/generate", LONG) as client:
        assert b"200 OK" in client.recv(20)
        time.sleep(0.5)
        running.server.handle_exit(signal.SIGTERM, None)
        running.thread.join(20)
        assert not running.thread.is_alive()
    assert not capsys.readouterr().err


def test_a_fault_in_the_middle_of_a_stream_is_told_in_the_stream(start, monkeypatch, capsys) -> None:
    draw = generate.Generation._draw
    steps = 0

    def broken(self, *arguments):
        nonlocal steps
        steps += 1
        if steps > 100:
            raise RuntimeError("broken")
        time.sleep(0.002)
        return draw(self, *arguments)

    monkeypatch.setattr(generate.Generation, "_draw", broken)
    running = start()
    with running.post("/v1/generate", {**LONG, "number": 1}) as client:
        received = read_until(client, b"0\r\n\r\n")
    assert b'"code": 500' in received
    assert b"broken" not in received  # for the log alone
    assert "broken" in capsys.readouterr().err
    assert running.healthy()


def test_what_is_no_http_is_answered_in_the_same_form(start) -> None:
    running = start()
    with running.connect() as client:
        client.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        answer = read_all(client)
    assert json.loads(answer.split(b"\r\n\r\n")[1])["error"]["code"] == 400
    assert running.healthy()
