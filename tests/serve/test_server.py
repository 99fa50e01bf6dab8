from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
from urllib.parse import urlsplit

import httpx
import pytest

from tslm.errors import TslmError
from tslm.serve.server import listen


def connect(address: str) -> socket.socket:
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def request(path: str, body: dict, length: int | None = None) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: "
    return head.encode() + str(length or len(content)).encode() + b"\r\n\r\n" + content


def test_listens_on_this_machine_alone(server) -> None:
    assert server.address.startswith("http://127.0.0.1:")


def test_clients_that_hang_up_do_not_stop_the_server(server) -> None:
    for _ in range(6):
        # In the middle of the stream: a thousand words are asked for, a few are read.
        with connect(server.address) as client:
            client.sendall(
                request(
                    "/v1/generate",
                    {"model": "lstm", "length": 1000, "number": 16, "stop": [], "stream": True},
                )
            )
            assert b"data:" in client.recv(4096) + client.recv(4096)
        # In the middle of the request.
        with connect(server.address) as client:
            client.sendall(request("/v1/score", {"text": "the"}, length=500))
        # Before anything.
        connect(server.address).close()
    with httpx.Client(base_url=server.address, timeout=30) as client:
        assert client.post("/v1/score", json={"text": "the cat"}).status_code == 200
        assert client.get("/v1/health").status_code == 200


def test_a_megabyte_is_refused_and_the_server_lives_on(server) -> None:
    with httpx.Client(base_url=server.address, timeout=30) as client:
        for _ in range(3):
            # The server may close before all of it is sent.
            with contextlib.suppress(httpx.WriteError, httpx.ReadError):
                assert client.post("/v1/score", json={"text": "a " * 500_000}).status_code == 413
        assert client.post("/v1/score", json={"text": "the cat"}).status_code == 200


def test_noise_is_not_http(server) -> None:
    with connect(server.address) as client:
        client.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        assert b"400" in client.recv(1000)
    assert httpx.get(f"{server.address}/v1/health").status_code == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ends_well_on_a_signal_while_it_answers(new_server, number) -> None:
    running = new_server()
    with connect(running.address) as client:
        client.sendall(request("/v1/generate", {"length": 300, "number": 4, "stop": [], "stream": True}))
        received = client.recv(4096)
        running.process.send_signal(number)
        while b"0\r\n\r\n" not in received:
            part = client.recv(65536)
            if not part:
                break
            received += part
    began = time.monotonic()
    _, errors = running.process.communicate(timeout=20)
    assert running.process.returncode == 0, errors
    assert "Traceback" not in errors
    assert b'"done": true' in received  # the answer under way was given whole
    assert time.monotonic() - began < 20


def test_a_taken_port_is_told_at_once() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(TslmError, match="cannot listen on"):
        listen("127.0.0.1", taken.getsockname()[1])
