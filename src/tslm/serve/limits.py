"""The limits of a server, and the one form of every answer that says no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a server."""

    body_bytes: int = 65_536
    """The largest request; a larger one is answered 413."""

    words: int = 400
    """The most words of a text to score, of a prompt, or of a pattern; more are answered 413."""

    explained_words: int = 60
    """The most words of a sentence to explain or of a pattern to fill."""

    blanks: int = 20
    """The most blanks of a pattern: each costs a pass over the whole model, which a word does not."""

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

    memory_bytes: int = 1 << 29
    """How much memory one request may need beside the model, by an estimate; more is answered 413."""

    connections: int = 512
    """How many clients may be connected. One more takes the place of one that has not asked for anything."""

    header_seconds: float = 10.0
    """How long a client may take to send the head of a request before it is answered 408."""

    body_seconds: float = 10.0
    """How long a client may take to send the rest of it before it is answered 408."""

    send_seconds: float = 10.0
    """How long a client may leave an answer unread before it is hung up on."""

    @property
    def estimated_seconds(self) -> float:
        """How long a request may take by an estimate, which must leave room for a slow moment and for others."""
        return self.seconds / 2


class Refused(Exception):  # noqa: N818
    """A request that is answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def error_body(status: int, message: str) -> dict[str, Any]:
    """Return the body of every error, in the form that OpenAI's clients read."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    # A lone surrogate in a quoted word cannot be sent as UTF-8.
    plain = message.encode("utf-8", "replace").decode("utf-8")
    return {"error": {"message": plain, "type": kind, "code": status}}
