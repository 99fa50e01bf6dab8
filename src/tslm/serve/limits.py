"""What keeps a server alive: limits on size, waiting, time and the number of things done at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a server."""

    body_bytes: int = 65_536
    """The largest request; a larger one is answered 413."""

    words: int = 400
    """The most words of a text to score, of a prompt, or of a pattern; more are answered 413."""

    explained_words: int = 60
    """The most words of a sentence to explain."""

    generated_words: int = 1_000
    """The most words of one sample."""

    samples: int = 16
    """The most samples of one request."""

    workers: int = 2
    """How many requests are computed at the same time; the others wait."""

    waiting: int = 256
    """How many may wait; one more is answered 429."""

    seconds: float = 30.0
    """How long a request may take, waiting included, before it is answered 503."""

    body_seconds: float = 10.0
    """How long a client may take to send its request before it is answered 408."""


class Refused(Exception):  # noqa: N818
    """A request that is answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass
class _Turn:
    """The right to compute."""

    deadline: float
    """The time at which it must be over."""
    work: asyncio.Future[Any] | None = None
    """What is being computed."""


class Workers:
    """A few threads that compute, and a queue of limited length before them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="tslm")
        self.slots = asyncio.Semaphore(limits.workers)
        self.waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[_Turn, None]:
        """Wait for a turn to compute.

        Raises:
            Refused: too many wait already (429), or the time is over before the turn comes (503).
        """
        deadline = asyncio.get_running_loop().time() + self.limits.seconds
        if self.slots.locked():
            if self.waiting >= self.limits.waiting:
                raise Refused(429, f"{self.waiting} requests are waiting already; try again in a moment")
            self.waiting += 1
            try:
                async with asyncio.timeout_at(deadline):
                    await self.slots.acquire()
            except TimeoutError:
                raise Refused(503, "the server is too busy to answer in time; try again later") from None
            finally:
                self.waiting -= 1
        else:
            await self.slots.acquire()
        turn = _Turn(deadline)
        try:
            yield turn
        finally:
            if turn.work is None or turn.work.done():
                self.slots.release()
            else:
                # A thread cannot be stopped: whoever asked is answered, but the next turn comes when the work is done.
                turn.work.add_done_callback(self._release)

    async def compute(self, work: Callable[[], ResultT]) -> ResultT:
        """Run ``work`` in a thread when its turn comes."""
        async with self.turn() as turn:
            return await self._run(work, turn)

    async def compute_steps(self, steps: Callable[[], Iterator[ResultT]]) -> AsyncGenerator[ResultT, None]:
        """Run an iterator step by step in a thread; whoever stops listening stops it between two steps."""
        async with self.turn() as turn:
            iterator = await self._run(steps, turn)
            end = object()
            while True:
                result: Any = await self._run(lambda: next(iterator, end), turn)
                if result is end:
                    return
                yield result

    async def _run(self, work: Callable[[], ResultT], turn: _Turn) -> ResultT:
        future = asyncio.get_running_loop().run_in_executor(self.pool, work)
        turn.work = future
        try:
            async with asyncio.timeout_at(turn.deadline):
                return await asyncio.shield(future)
        except TimeoutError:
            raise Refused(503, f"this took longer than {self.limits.seconds:g} s; ask for less") from None

    def _release(self, work: asyncio.Future[Any]) -> None:
        self.slots.release()
        if not work.cancelled():
            work.exception()  # nobody is left to hear of it

    def close(self) -> None:
        """Let go of the threads."""
        self.pool.shutdown(wait=False, cancel_futures=True)


class BodyLimit:
    """Reads a request's body before anything else sees it, within a limit of bytes and of seconds."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 413 or 408, or hand the whole body on."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                body = await self._read(scope, receive)
        except TimeoutError:
            await _answer(send, 408, f"the request did not arrive within {self.limits.body_seconds:g} s")
            return
        except Refused as refused:
            await _answer(send, refused.status, refused.message)
            return
        if body is None:
            return
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replay, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body, or None where the client has gone."""
        limit = self.limits.body_bytes
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > limit:
                raise Refused(413, f"the request has {int(value):,} bytes; at most {limit:,} are taken")
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise Refused(413, f"the request has more than {limit:,} bytes")
            if not message.get("more_body", False):
                return b"".join(parts)


def error_body(status: int, message: str) -> dict[str, Any]:
    """Return the body of every error, in the form that OpenAI's clients read."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    # A lone surrogate in a quoted word cannot be sent as UTF-8.
    plain = message.encode("utf-8", "replace").decode("utf-8")
    return {"error": {"message": plain, "type": kind, "code": status}}


async def _answer(send: Send, status: int, message: str) -> None:
    body = json.dumps(error_body(status, message)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    # What is left of the body is not read, so the connection cannot be used again.
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
