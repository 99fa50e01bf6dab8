"""What stands between the network and the application: whom it answers, how much it reads, and when it lets go."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tslm.serve.limits import Limits, Refused, error_body

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Hosts:
    """The names under which a server may be asked.

    A page of a stranger can make a browser ask this server under the stranger's own name (by pointing that name
    here), or ask it from the stranger's page. The first shows in ``Host``, the second in ``Origin``.
    """

    names: frozenset[str]
    """Names and addresses, in lower case."""
    addresses: bool = False
    """Whether any bare address will do: nobody can point an address elsewhere."""
    anything: bool = False
    """Whether nothing is checked."""
    others: frozenset[str] = frozenset()
    """Names that pages may come from, beside the server's own."""

    @classmethod
    def bound(cls, host: str, others: Iterable[str] = ()) -> Hosts:
        """Return the names of a server bound to an address.

        Args:
            host: the address it is bound to.
            others: more names to answer to; ``*`` for any.
        """
        allowed = frozenset(name.lower() for name in others)
        names = {host.lower(), *allowed}
        everywhere = host in ("0.0.0.0", "::", "")  # noqa: S104
        if everywhere or host.lower() in LOOPBACK or _is_loopback(host):
            names.update(LOOPBACK)
        if everywhere:
            names.add(socket.gethostname().lower())
        return cls(frozenset(names), addresses=everywhere, anything="*" in allowed, others=allowed)

    def check(self, host: str | None, origin: str | None) -> None:
        """Raise for a request that another name or another page made.

        Raises:
            Refused: it did (403).
        """
        if self.anything:
            return
        name = _hostname(host or "")
        if name not in self.names and not (self.addresses and _is_address(name)):
            raise Refused(
                403,
                f"this server does not answer to the host {(host or '')[:100]!r}; "
                f"start it with --allow-host {name[:100] or 'NAME'} where that is its name",
            )
        if origin is None or origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower()):
            return
        page = _hostname(urlsplit(origin).netloc if "://" in origin else "")
        if page not in self.others:
            raise Refused(
                403,
                f"this server does not answer pages of {origin[:100]!r}; "
                f"start it with --allow-host {page[:100] or 'NAME'} where that is meant",
            )


def _hostname(netloc: str) -> str:
    """Return the name or address of ``name:port``, in lower case and without brackets."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return _is_address(name) and ipaddress.ip_address(name).is_loopback


class Guard:
    """Checks who asks, reads a request whole before anything else sees it, and stops it when its client is gone."""

    def __init__(self, app: ASGIApp, limits: Limits, hosts: Hosts) -> None:
        self.app = app
        self.limits = limits
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403, 408, 413 or 415, or hand the whole request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._check_names(scope)
            body = b""
            if scope["method"] not in ("GET", "HEAD"):
                async with asyncio.timeout(self.limits.body_seconds):
                    found = await self._read(scope, receive)
                if found is None:
                    return
                body = found
                _check_type(scope, body)
        except TimeoutError:
            await _answer(send, 408, f"the request did not arrive within {self.limits.body_seconds:g} s")
        except Refused as refused:
            await _answer(send, refused.status, refused.message)
        else:
            await _run_while_connected(self.app, scope, body, receive, send)

    def _check_names(self, scope: Scope) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        self.hosts.check(headers.get(b"host"), headers.get(b"origin"))

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


def _check_type(scope: Scope, body: bytes) -> None:
    """Raise for a body that is not said to be JSON.

    Saying so is more than a form: a page of a stranger cannot send this header without asking first.
    """
    given = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
    kind = given.split(";")[0].strip().lower()
    if (
        body
        and kind != "application/json"
        and not (kind.startswith("application/") and kind.endswith("+json"))
    ):
        told = f"content-type: {given[:100]}" if given else "no content-type"
        raise Refused(415, f"the request came with {told}; send JSON with content-type: application/json")


async def _run_while_connected(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Run the application on a whole request; cancel it when the client hangs up before it has its answer."""
    given = answered = False
    gone = asyncio.Event()

    async def replay() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def watched_send(message: Message) -> None:
        nonlocal answered
        await send(message)
        answered = message["type"] == "http.response.body" and not message.get("more_body", False)

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    work = asyncio.ensure_future(app(scope, replay, watched_send))
    watcher = asyncio.ensure_future(watch())
    try:
        await asyncio.wait({work, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not answered:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            return
        await work
    finally:
        work.cancel()
        watcher.cancel()


async def _answer(send: Send, status: int, message: str) -> None:
    body = json.dumps(error_body(status, message)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    # What is left of the body is not read, so the connection cannot be used again.
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
