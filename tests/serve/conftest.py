from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from tslm.serve.app import create_app
from tslm.serve.guard import Hosts
from tslm.serve.limits import Limits
from tslm.serve.models import open_models


@dataclass
class Running:
    """A server in a process of its own."""

    address: str
    process: subprocess.Popen[str]


@pytest.fixture(scope="session")
def app(runs) -> FastAPI:
    # The clients of the tests call the server by this name.
    hosts = Hosts.bound("127.0.0.1", ["testserver"])
    return create_app(open_models([runs["kn"], runs["tslm"]]), Limits(body_bytes=20_000, words=50), hosts)


@pytest.fixture(scope="session")
def client(app) -> Iterator[TestClient]:
    # A fault in the server must be an exception here and not a 500.
    with TestClient(app) as client:
        yield client


def start_server(runs, *more: str) -> Running:
    command = [sys.executable, "-m", "tslm", "serve", *(str(runs[name]) for name in ("kn", "tslm", "lstm"))]
    process = subprocess.Popen(
        [*command, "--port", "0", "--json", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise AssertionError(process.communicate()[1])
    return Running(json.loads(line)["address"], process)


@pytest.fixture
def new_server(runs) -> Callable[[], Running]:
    """Starts a server that the test itself ends."""
    return lambda: start_server(runs)


@pytest.fixture(scope="session")
def server(runs) -> Iterator[Running]:
    """The real command, in a process of its own."""
    running = start_server(runs)
    yield running
    running.process.terminate()
    running.process.communicate(timeout=20)
