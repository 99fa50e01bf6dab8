"""A listening socket and the server on it, stopped by a signal after its last answers."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

try:
    import resource
except ImportError:  # Windows has no limits of this kind
    resource = None

import uvicorn
from fastapi import FastAPI

from tslm.errors import TslmError
from tslm.serve.connections import connection_class
from tslm.serve.limits import Limits

GRACE_SECONDS = 5.0
"""How long answers under way may take when the server is asked to stop."""

SPARE_DESCRIPTORS = 64
"""How many files the server itself may have open, beside its connections."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, bound before any model is opened: a taken port is found at once.

    Raises:
        TslmError: the address is taken or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, for asyncio sends small answers without delay only where it sees TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # From here on clients wait instead of being refused while the models are opened.
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        raise TslmError(
            f"cannot listen on {host}:{port}: {error}; choose another --port or --host"
        ) from error
    return listener


class Server(uvicorn.Server):
    """A server that ends well on Ctrl-C and SIGTERM, instead of dying of the signal once more."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self.app = app
        self.on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so: from here on signals end the server well."""
        await super().startup(sockets)
        self.on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell those whose answers will not be ready in time, and hang up on those who do not listen."""
        self.app.state.workers.finish_within(GRACE_SECONDS - 1)
        hanging = asyncio.get_running_loop().call_later(GRACE_SECONDS - 0.5, self._hang_up)
        await super().shutdown(sockets)
        hanging.cancel()

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop on a signal; leave the handlers as they were."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def make_server(app: FastAPI, on_start: Callable[[], None] = lambda: None) -> Server:
    """Return the server of an application; ``run(sockets=[listener])`` serves."""
    config = uvicorn.Config(
        app,
        http=connection_class(_fit_descriptors(app.state.limits)),
        ws="none",
        log_level="warning",
        use_colors=False,
        access_log=False,
        timeout_graceful_shutdown=math.ceil(GRACE_SECONDS),
        lifespan="on",
    )
    return Server(config, app, on_start)


def serve(
    app: FastAPI,
    listener: socket.socket,
    *,
    threads: int | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal comes.

    Args:
        app: from ``create_app``.
        listener: from ``listen``.
        threads: how many threads each computation may use; with several workers, one is faster.
        on_start: called when the server answers.
    """
    if threads is not None and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    # A warning for every word sent after a client has hung up would fill a log, or a pipe that nobody reads.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    make_server(app, on_start).run(sockets=[listener])


def _fit_descriptors(limits: Limits) -> Limits:
    """Take no more connections than the system lets this process have."""
    if resource is None:
        return limits
    most = max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_DESCRIPTORS)
    return replace(limits, connections=min(limits.connections, most))
