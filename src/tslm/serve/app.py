"""The HTTP application: the page, the API, and an answer in the same form to everything that goes wrong."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tslm import __version__
from tslm.errors import TslmError
from tslm.serve import api, completions
from tslm.serve.guard import LOOPBACK, Guard, Hosts
from tslm.serve.limits import Limits, Refused, error_body
from tslm.serve.models import ServedModel
from tslm.serve.workers import Workers

STATIC = Path(__file__).parent / "static"

HEADERS = [
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
     b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]  # fmt: skip
"""Nothing but the server's own files runs on the page, whatever a text says."""


def create_app(
    models: Mapping[str, ServedModel], limits: Limits | None = None, hosts: Hosts | None = None
) -> FastAPI:
    """Return the application that serves some models.

    Args:
        models: by the names they are served under; the first is the default.
        limits: of size, time and number.
        hosts: the names it answers to; those of this machine for itself where left out.

    Example:
        >>> from tslm.serve.models import open_models
        >>> app = create_app(open_models(["runs/asv-kn5"]))  # then: uvicorn.run(app)
    """
    limits = limits or Limits()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        app.state.workers = Workers(limits)
        yield
        app.state.workers.close()

    app = FastAPI(
        title="tslm",
        version=__version__,
        description="Language models in tensor space: score, generate, fill, explain.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own page loads its scripts from elsewhere; ours works offline
        redoc_url=None,
    )
    app.state.models = dict(models)
    app.state.limits = limits
    app.include_router(api.router)
    app.include_router(completions.router)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(TslmError, _refused_by_model)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _no_such_thing)
    app.add_exception_handler(Exception, _fault)
    app.add_api_route("/", _page, include_in_schema=False)
    app.add_api_route("/docs", _api_page, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_middleware(_Headers)
    app.add_middleware(Guard, limits=limits, hosts=hosts or Hosts(frozenset(LOOPBACK)))
    return app


async def _page() -> FileResponse:
    return FileResponse(STATIC / "index.html")


async def _api_page() -> FileResponse:
    return FileResponse(STATIC / "api.html")


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)  # noqa: S101
    headers = {"Retry-After": "1"} if error.status in (429, 503) else None
    return JSONResponse(error_body(error.status, error.message), error.status, headers)


async def _refused_by_model(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse(error_body(422, str(error)), 422)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    problems: list[Any] = list(error.errors())
    status = 400 if any(problem["type"] == "json_invalid" for problem in problems) else 422
    message = "; ".join(dict.fromkeys(map(_describe, problems[:5])))
    return JSONResponse(error_body(status, message[:2000]), status)


def _describe(problem: Any) -> str:
    """Return what is wrong with a request in the words of whoever sent it."""
    if problem["type"] == "json_invalid":
        return f"the body is no JSON: {problem['ctx']['error']} at character {problem['loc'][-1]}"
    # Where a value may be of several types, pydantic names its own checks among the keys.
    keys = [str(part) for part in problem["loc"][1:] if "[" not in str(part)]
    return f"{'.'.join(keys) or 'the body'}: {problem['msg'].removeprefix('Value error, ')}"


async def _no_such_thing(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101
    headers = dict(error.headers) if error.headers else None
    return JSONResponse(error_body(error.status_code, str(error.detail)), error.status_code, headers)


async def _fault(_: Request, error: Exception) -> JSONResponse:
    # What went wrong is for the log (Starlette raises it again), not for a stranger.
    return JSONResponse(error_body(500, f"a fault of the server ({type(error).__name__}); see its log"), 500)


class _Headers:
    """Adds the security headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)
