"""``tslm serve``: models over HTTP, with a page to play with."""

from __future__ import annotations

import argparse
from typing import Any

from tslm.cli.numbers import positive, seconds

EXAMPLES = """examples:
  tslm serve runs/ptb-kn5 runs/ptb-tslm
  tslm serve runs/ptb-kn5 --port 9000
  tslm serve runs/ptb-kn5 --host 0.0.0.0     (everybody who reaches this machine can use it)
  tslm serve runs/ptb-kn5 --allow-host models.example     (behind a proxy of that name)

The page is at the address that is printed, the API's own page at /docs. Stop with Ctrl-C."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "serve",
        help="serve models over HTTP, with a page",
        description="Serve models: a page to play with, a JSON API, and OpenAI-style completions.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folders; the first is the default model")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000; 0 takes a free one")
    parser.add_argument(
        "--workers",
        type=positive,
        default=2,
        metavar="N",
        help="requests computed at the same time (default: 2)",
    )
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=30.0,
        metavar="S",
        help="the longest a request may take (default: 30)",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="also answer requests to this name and pages that come from it, such as a proxy's; * for any",
    )
    parser.add_argument("--json", action="store_true", help="print address and models as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import json
    import sys

    from tslm.errors import UnsupportedError

    try:
        import uvicorn  # noqa: F401  # pyright: ignore[reportUnusedImport]

        from tslm.serve.app import create_app
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"tslm serve needs {error.name}: pip install 'tslm[serve]'") from error
    from tslm.serve.guard import Hosts
    from tslm.serve.limits import Limits
    from tslm.serve.models import open_models
    from tslm.serve.server import listen, serve

    with listen(arguments.host, arguments.port) as socket:
        models = open_models(arguments.runs, measure=True)
        limits = Limits(workers=arguments.workers, seconds=arguments.seconds)
        app = create_app(models, limits, Hosts.bound(arguments.host, arguments.allow_host))
        host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
        address = f"http://{host}:{socket.getsockname()[1]}"
        told = json.dumps({"address": address, "models": list(models)})
        if not arguments.json:
            told = f"serving {', '.join(models)} at {address} (API: {address}/docs); stop with Ctrl-C"
        serve(
            app,
            socket,
            threads=1 if arguments.workers > 1 else None,
            on_start=lambda: print(told, flush=True),
        )
    print("tslm: stopped", file=sys.stderr)
    return 0
