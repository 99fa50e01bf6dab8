"""Load on the server: requests per second and latencies at 1, 8 and 64 clients; nothing lost, no 5xx.

python benchmarks/serve.py                       # a fresh model of 64 × 1 over 2,000 words
python benchmarks/serve.py runs/ptb-kn5 runs/ptb-tslm --seconds 10
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results" / "serve.json"
CLIENTS = (1, 8, 64)


def requests_for(model: str, text: str) -> list[tuple[str, dict]]:
    return [
        ("/v1/score", {"model": model, "text": text, "alternatives": 5}),
        ("/v1/generate", {"model": model, "prompt": text, "length": 10, "temperature": 0.8}),
        ("/v1/completions", {"model": model, "prompt": text, "max_tokens": 5}),
    ]


async def load(address: str, clients: int, seconds: float, mix: list[tuple[str, dict]]) -> dict:
    """Let clients ask one request after the other; return what they saw."""
    latencies: list[float] = []
    statuses: Counter[str] = Counter()
    sent = 0
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:
        until = time.perf_counter() + seconds

        async def one(place: int) -> None:
            nonlocal sent
            while time.perf_counter() < until:
                path, body = mix[place % len(mix)]
                place += 1
                sent += 1
                began = time.perf_counter()
                try:
                    response = await client.post(path, json=body)
                    statuses[str(response.status_code)] += 1
                    json.loads(response.content)
                except httpx.HTTPError as error:
                    statuses[type(error).__name__] += 1
                latencies.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(one(place) for place in range(clients)))
        elapsed = time.perf_counter() - began
    return {
        "clients": clients,
        "requests": sent,
        "lost": sent - statuses["200"],
        "errors_5xx": sum(count for status, count in statuses.items() if status.startswith("5")),
        "statuses": dict(statuses),
        "requests_per_second": sent / elapsed,
        "p50_ms": float(np.quantile(latencies, 0.5)) * 1000,
        "p99_ms": float(np.quantile(latencies, 0.99)) * 1000,
    }


def fresh_run(folder: Path) -> str:
    """Write a run folder of an untrained model: the cost of an answer does not depend on what was learnt."""
    from tslm.corpus.sources import CorpusConfig
    from tslm.corpus.vocabulary import EOS, UNK, Vocabulary
    from tslm.models.recurrent.cells.tslm import TslmConfig
    from tslm.models.recurrent.model import RecurrentConfig, RecurrentModel
    from tslm.runs.folder import prepare_folder
    from tslm.runs.recipe import Recipe
    from tslm.training.config import ObjectiveConfig, TrainConfig

    config = RecurrentConfig(rank=64, embedding=64, cell=TslmConfig(variant="bounded"))
    recipe = Recipe(
        corpus=CorpusConfig(),
        kind="recurrent",
        model=config,
        train=TrainConfig(),
        objective=ObjectiveConfig(),
    )
    vocabulary = Vocabulary((EOS, UNK, *(f"w{number}" for number in range(1998))))
    folder.mkdir()
    prepare_folder(folder, recipe, vocabulary)
    RecurrentModel(config, vocabulary).save(folder)
    return str(folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", help="run folders; without them a fresh model")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each number of clients")
    parser.add_argument("--text", default="the company said it will", help="what is scored and gone on from")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = arguments.runs or [fresh_run(Path(folder) / "fresh")]
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "tslm", "serve", *runs, "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            start_up = time.perf_counter() - began
            mix = [entry for model in told["models"] for entry in requests_for(model, arguments.text)]
            rows = [
                asyncio.run(load(told["address"], clients, arguments.seconds, mix)) for clients in CLIENTS
            ]
        finally:
            process.terminate()
            code = process.wait(timeout=30)
    table = Table(title=f"server, start-up {start_up:.2f} s", title_justify="left")
    for name in ("clients", "requests", "lost", "5xx", "requests/s", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            str(row["clients"]),
            f"{row['requests']:,}",
            str(row["lost"]),
            str(row["errors_5xx"]),
            f"{row['requests_per_second']:.1f}",
            f"{row['p50_ms']:.1f}",
            f"{row['p99_ms']:.1f}",
        )
    Console().print(table)
    RESULTS.parent.mkdir(exist_ok=True)
    results = {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "python": platform.python_version(),
        },
        "settings": {"models": len(runs), "own_runs": bool(arguments.runs), "seconds": arguments.seconds},
        "start_up_seconds": start_up,
        "load": rows,
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    assert code == 0, f"the server ended with {code}"
    assert all(row["lost"] == 0 and row["errors_5xx"] == 0 for row in rows), "requests were lost"


if __name__ == "__main__":
    main()
