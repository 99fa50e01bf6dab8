"""A listening socket and the server on it, stopped by a signal after its last answers."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
import uvicorn

from tslm.errors import TslmError

GRACE_SECONDS = 5
"""How long answers under way may take when the server is asked to stop."""


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

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self.on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so: from here on signals end the server well."""
        await super().startup(sockets)
        self.on_start()

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


def serve(
    app: Any,
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
    if threads is not None:
        torch.set_num_threads(threads)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_SECONDS, lifespan="on"
    )
    Server(config, on_start).run(sockets=[listener])
