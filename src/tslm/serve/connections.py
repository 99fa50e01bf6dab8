"""Connections that keep nobody waiting: limits on their number, on slow requests and on unread answers."""

from __future__ import annotations

import asyncio
import http
import json
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from tslm.serve.limits import Limits, error_body

LINGERING = 64
"""How many clients that were turned away may still be reading why."""

LINGERING_SECONDS = 0.5


class Connection(H11Protocol):
    """A client. It *asks* from its connection, or the first byte of its next request, until the head is complete."""

    limits: ClassVar[Limits] = Limits()
    idle: ClassVar[dict[Connection, None]] = {}
    """Those without a request under way, the one that has been so for longest first."""
    turned_away: ClassVar[set[Connection]] = set()
    """Those that were told that there is no room."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._asking: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take a client in, where there is no room in the place of one that asks for nothing."""
        if len(self.connections) >= self.limits.connections:
            if not self.idle:
                self._turn_away(transport)
                return
            oldest = next(iter(self.idle))
            oldest.transport.abort()
            oldest.leave()
        super().connection_made(transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Read on; the time for the head of a request ends with its last byte."""
        if self in self.turned_away:
            return
        super().data_received(data)
        if self._answering():
            self._stop_asking()
            self.idle.pop(self, None)
        elif self._asking is None and not self.transport.is_closing():
            self._ask()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, unless another answer is under way."""
        if self._answering():
            self.transport.abort()
        else:
            self._refuse(400, msg)

    def on_response_complete(self) -> None:
        """Wait for the next request, and for this answer to be taken."""
        super().on_response_complete()
        if not self._answering():
            self.idle[self] = None
        if self.transport.get_write_buffer_size():
            self._await_reader()

    def pause_writing(self) -> None:
        """Begin to wait for a client that leaves its answer unread."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """Go on: the client reads."""
        super().resume_writing()
        self._stop_sending()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self.leave()
        super().connection_lost(exc)

    def leave(self) -> None:
        """Stop all clocks, and make room."""
        self.turned_away.discard(self)
        self._stop_asking()
        self._stop_sending()
        self.idle.pop(self, None)
        self.connections.discard(self)

    def _turn_away(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        if len(self.turned_away) >= LINGERING:
            transport.abort()
            return
        # Closed at once, with its request unread, the connection would be reset and the answer lost.
        self.turned_away.add(self)
        self._write(503, "too many clients are connected; try again in a moment")
        transport.write_eof()
        self._asking = self.loop.call_later(LINGERING_SECONDS, transport.abort)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def _ask(self) -> None:
        self.idle.pop(self, None)
        self.idle[self] = None
        self._asking = self.loop.call_later(self.limits.header_seconds, self._too_slow)

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _too_slow(self) -> None:
        self._refuse(408, f"the head of the request did not arrive within {self.limits.header_seconds:g} s")

    def _refuse(self, status: int, message: str) -> None:
        self._write(status, message)
        self.transport.close()

    def _write(self, status: int, message: str) -> None:
        body = json.dumps(error_body(status, message)).encode()
        head = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + body)

    def _await_reader(self) -> None:
        if self._sending is None:
            self._sending = self.loop.call_later(self.limits.send_seconds, self._unread)

    def _unread(self) -> None:
        self._sending = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def connection_class(limits: Limits) -> type[Connection]:
    """Return the connections of a server with these limits."""
    return type("LimitedConnection", (Connection,), {"limits": limits, "idle": {}, "turned_away": set()})
