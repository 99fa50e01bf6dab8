"""Load on the server: throughput, clients that do not behave, a soak of mixed requests, the dearest answers.

python benchmarks/serve.py                       # a fresh TSLM of 64 × 1 and a fresh KN-5 over 2,000 words
python benchmarks/serve.py runs/ptb-kn5 runs/ptb-tslm --seconds 10
python benchmarks/serve.py runs/ptb-kn5 --soak 20000

Nothing leaves this machine: the server listens on 127.0.0.1, and that is where its clients connect.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from report import write_results, write_table

RESULTS = Path(__file__).parent / "results" / "serve.json"
CLIENTS = (1, 8, 64)
BLANKS = 10
CHECKED = 100_000_000
LONG = {"length": 1000, "number": 16, "stop": [], "stream": True}


def requests_for(model: dict, text: str) -> list[tuple[str, dict]]:
    name = model["id"]
    return [
        ("/v1/score", {"model": name, "text": text, "alternatives": 5}),
        ("/v1/generate", {"model": name, "prompt": text, "length": 10, "temperature": 0.8}),
        ("/v1/completions", {"model": name, "prompt": text, "max_tokens": 5}),
    ]


def mixed_requests(models: list[dict], text: str) -> Iterator[tuple[str, dict, tuple[int, ...]]]:
    """Yield requests of every kind for ever, right and wrong ones, each with the answers it may get."""
    choose = random.Random(1)
    words = text.split()
    while True:
        model = choose.choice(models)
        name = {"model": model["id"]}
        kind = choose.random()
        if kind < 0.35:
            line = " ".join(choose.choices(words, k=choose.randrange(1, 30)))
            yield "/v1/score", {**name, "text": line, "alternatives": choose.randrange(6)}, (200,)
        elif kind < 0.65:
            shape = choose.choice([{}, {"temperature": 0.8}, {"top_k": 40}, {"top_p": 0.9}, {"unk": False}])
            body = {"prompt": text, "length": choose.randrange(1, 40), "number": choose.randrange(1, 5)}
            yield "/v1/generate", {**name, **body, **shape, "seed": choose.randrange(1000)}, (200,)
        elif kind < 0.75:
            yield (
                "/v1/completions",
                {**name, "prompt": text, "max_tokens": 8, "logprobs": 2, "echo": True},
                (200,),
            )
        elif kind < 0.85 and model["fills"]:
            line = ["?"] * choose.randrange(1, 5) + choose.choices(words, k=3)
            choose.shuffle(line)
            yield "/v1/fill", {**name, "pattern": " ".join(line), "samples": choose.randrange(3)}, (200,)
        elif kind < 0.9:
            yield "/v1/explain", {**name, "text": " ".join(words[:5])}, (200,)
        elif kind < 0.94:
            yield "/v1/fill", {**name, "pattern": "? " * 60}, (413, 422)
        elif kind < 0.97:
            yield "/v1/score", {**name, "text": "a " * 1000}, (413,)
        else:
            yield "/v1/generate", {"model": "nobody", "length": -1}, (422,)


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


async def soak(address: str, count: int, seconds: float, models: list[dict], text: str) -> dict:
    """Ask mixed requests, eight at a time; return how many were answered as they should be."""
    requests = mixed_requests(models, text)
    answers: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    until = time.perf_counter() + seconds
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:

        async def one() -> None:
            while answers.total() < count and time.perf_counter() < until:
                path, body, expected = next(requests)
                answers[path] += 1
                try:
                    response = await client.post(path, json=body)
                    if response.status_code not in expected:
                        wrong[f"{path} {response.status_code}"] += 1
                except httpx.HTTPError as error:
                    wrong[f"{path} {type(error).__name__}"] += 1

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(8)))
    return {
        "requests": answers.total(),
        "seconds": time.perf_counter() - began,
        "by_path": dict(answers),
        "unexpected": dict(wrong),
    }


def connect(address: str) -> socket.socket:
    parts = urlsplit(address)
    assert parts.hostname == "127.0.0.1"
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def ask(address: str, body: dict) -> socket.socket:
    """Ask for a long stream, with a small buffer for the answer."""
    client = connect(address)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    content = json.dumps(body).encode()
    head = "POST /v1/generate HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    client.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    return client


@contextmanager
def slow_readers(address: str) -> Iterator[int]:
    """Eight clients ask for long streams and read nothing."""
    readers = [ask(address, LONG) for _ in range(8)]
    yield len(readers)
    for reader in readers:
        reader.close()


@contextmanager
def half_open(address: str) -> Iterator[int]:
    """Four hundred clients send half of the head of a request."""
    clients = [connect(address) for _ in range(400)]
    for client in clients:
        client.sendall(b"POST /v1/score HTTP/1.1\r\nhost: 127")
    yield len(clients)
    for client in clients:
        client.close()


@contextmanager
def hang_ups(address: str) -> Iterator[int]:
    """A hundred clients ask for long streams and hang up after the first bytes."""
    for _ in range(100):
        client = ask(address, LONG)
        client.recv(200)
        client.close()
    yield 100


DISTURBANCES = {"slow readers": slow_readers, "half-open connections": half_open, "hang-ups": hang_ups}


def memory_mb(process: int, what: str = "VmRSS") -> float:
    """Return what a process holds in memory, or with ``VmHWM`` the most it has held."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split(f"{what}:")[1].split()[0]) / 1024


def dearest(folder: str) -> dict:
    """Measure what an n-gram model's dearest answers cost, and what it costs to compare files with their checksums."""
    from tslm.inference.generate import Generation
    from tslm.models.ngram.blanks import parse_pattern
    from tslm.runs.run import load
    from tslm.seals import hash_whole

    began = time.process_time()
    model = load(folder)
    opening = time.process_time() - began
    before = memory_mb(os.getpid())
    pattern = parse_pattern(" ".join("?" * BLANKS), model.vocabulary)
    began = time.perf_counter(), time.process_time()
    model.fill(pattern)
    filling = {"seconds": time.perf_counter() - began[0], "processor_seconds": time.process_time() - began[1]}
    filling |= {"blanks": BLANKS, "memory_mb": memory_mb(os.getpid(), "VmHWM") - before}
    drawn, generating = 0, []
    for _ in range(4):  # the first of them fills caches that stay
        began = time.process_time()
        drawn = sum(len(draws) for draws in Generation(model, number=64, length=500, stop=()))
        generating.append(time.process_time() - began)
    with tempfile.NamedTemporaryFile() as file:
        file.write(np.random.default_rng(1).bytes(CHECKED))
        file.flush()
        checking = []
        for _ in range(5):
            began = time.process_time()
            hash_whole(Path(file.name))
            checking.append(time.process_time() - began)
    return {
        "model": {"kind": model.kind, "megabytes": (Path(folder) / "model.safetensors").stat().st_size / 1e6},
        "fill": filling,
        "generate": {"batch": 64, "words": drawn, "words_per_processor_second": drawn / min(generating[1:])},
        "open_processor_ms": opening * 1000,
        "check_processor_ms_per_100_mb": min(checking) * 1000 * 100e6 / CHECKED,
    }


def fresh_runs(folder: Path) -> list[str]:
    """Train two small models on a made-up text: the cost of an answer hardly depends on what was learnt."""
    from tslm.runs.train import train

    choose = random.Random(1)
    words = [f"w{number}" for number in range(2000)]
    weights = [1 / (number + 1) for number in range(2000)]
    lines = [
        " ".join(choose.choices(words, weights, k=choose.randrange(3, 25))) + " the company said it will"
        for _ in range(5000)
    ]
    folder.mkdir()
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    corpus = f'[corpus]\nname = "fresh"\npath = ["{folder / "text.txt"}"]\n'
    (folder / "kn5.toml").write_text(
        f'{corpus}[model]\nkind = "ngram"\ndiscount_fallback = [0.5, 1.0, 1.5]\n'
    )
    (folder / "tslm.toml").write_text(
        f'{corpus}[model]\nkind = "recurrent"\nrank = 64\nembedding = 64\n[train]\nepochs = 1\nthreads = 1\n'
    )
    for name in ("kn5", "tslm"):
        train(folder / f"{name}.toml", folder / name)
    return [str(folder / "kn5"), str(folder / "tslm")]


def show(rows: list[dict], title: str) -> None:
    table = Table(title=title, title_justify="left")
    for name in ("beside", "clients", "requests", "lost", "5xx", "requests/s", "p50 ms", "p99 ms"):
        table.add_column(name, justify="left" if name == "beside" else "right")
    for row in rows:
        table.add_row(
            row.get("beside", ""),
            str(row["clients"]),
            f"{row['requests']:,}",
            str(row["lost"]),
            str(row["errors_5xx"]),
            f"{row['requests_per_second']:.1f}",
            f"{row['p50_ms']:.1f}",
            f"{row['p99_ms']:.1f}",
        )
    Console().print(table)


def write_docs(results: dict) -> None:
    """Put the figures into the docs."""
    rows = [["clients", "beside them", "requests", "lost", "requests/s", "half within", "99 in 100 within"]]
    for row in (*results["load"], *results["disturbed"]):
        times = [f"{row[key]:,.0f} ms" for key in ("p50_ms", "p99_ms")]
        counts = [f"{row['requests']:,}", str(row["lost"]), f"{row['requests_per_second']:.0f}"]
        rows.append([str(row["clients"]), row.get("beside", "–"), *counts, *times])
    write_table("server.md", "load", rows)
    soaked, dear = results["soak"], results["dearest"]
    wrong = sum(soaked["unexpected"].values())
    memory = f"{soaked['memory_mb_before']:.0f} MB before, {soaked['memory_mb_after']:.0f} MB after"
    fill, generate = dear["fill"], dear["generate"]
    busy = f"{results['settings']['other_load']:.1f} on {results['machines']['load']['cores']} cores"
    costs = [
        ["what", "measured"],
        ["load of the machine by others before it began", busy],
        [
            f"{soaked['requests']:,} mixed requests",
            f"{wrong} answered in another way than they should be; {memory}",
        ],
        [
            f"{fill['blanks']} blanks side by side",
            f"{fill['processor_seconds']:.1f} s, {fill['memory_mb']:.0f} MB",
        ],
        ["words drawn, 64 samples at a time", f"{generate['words_per_processor_second']:,.0f} a second"],
    ]
    write_table("server.md", "costs", costs)
    checks = [
        ["what", "processor time"],
        ["compare 100 MB with its checksum", f"{dear['check_processor_ms_per_100_mb']:.0f} ms"],
        [
            f"open an n-gram model of {dear['model']['megabytes']:.0f} MB",
            f"{dear['open_processor_ms']:.0f} ms",
        ],
    ]
    write_table("architecture.md", "checks", checks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", help="run folders; without them two fresh models")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each number of clients")
    parser.add_argument("--text", default="the company said it will", help="what is scored and gone on from")
    parser.add_argument("--soak", type=int, default=20_000, metavar="N", help="mixed requests at the end")
    parser.add_argument("--soak-seconds", type=float, default=900.0, help="the longest the soak may take")
    parser.add_argument("--docs", action="store_true", help="only write the stored results into the docs")
    parser.add_argument("--dearest", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.dearest:
        print(json.dumps(dearest(arguments.runs[0])))
        return
    if arguments.docs:
        write_docs(json.loads(RESULTS.read_text(encoding="utf-8")))
        return
    with tempfile.TemporaryDirectory() as folder:
        runs = arguments.runs or fresh_runs(Path(folder) / "fresh")
        busy = os.getloadavg()[0]
        # In a process of its own: its memory is that of the model and the pattern alone.
        dear = json.loads(
            subprocess.run(
                [sys.executable, __file__, "--dearest", runs[0]],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
        )
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "tslm", "serve", *runs, "--host", "127.0.0.1", "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            start_up = time.perf_counter() - began
            models = httpx.get(f"{address}/v1/models").json()["data"]
            mix = [entry for model in models for entry in requests_for(model, arguments.text)]
            rows = [asyncio.run(load(address, clients, arguments.seconds, mix)) for clients in CLIENTS]
            disturbed = []
            for name, disturbance in DISTURBANCES.items():
                with disturbance(address) as number:
                    row = asyncio.run(load(address, 8, arguments.seconds, mix))
                disturbed.append({"beside": f"{number} {name}", **row})
            # The first pattern and the first stream fill caches that stay: what counts is growth after them.
            asyncio.run(soak(address, 200, 60, models, arguments.text))
            before = memory_mb(process.pid)
            soaked = asyncio.run(
                soak(address, arguments.soak, arguments.soak_seconds, models, arguments.text)
            )
            soaked |= {"memory_mb_before": before, "memory_mb_after": memory_mb(process.pid)}
        finally:
            process.terminate()
            code = process.wait(timeout=30)
    show(rows, f"server, start-up {start_up:.2f} s")
    show(disturbed, "beside clients that do not behave")
    print(
        f"soak: {soaked['requests']:,} mixed requests in {soaked['seconds']:.0f} s, unexpected: "
        f"{soaked['unexpected'] or 'none'}; memory {soaked['memory_mb_before']:.0f} MB before, "
        f"{soaked['memory_mb_after']:.0f} MB after"
    )
    results = {
        "settings": {
            "models": [model["id"] for model in models],
            "own_runs": bool(arguments.runs),
            "seconds": arguments.seconds,
            "other_load": busy,
        },
        "start_up_seconds": start_up,
        "load": rows,
        "disturbed": disturbed,
        "soak": soaked,
        "dearest": dear,
    }
    write_docs(json.loads(write_results("serve", results).read_text(encoding="utf-8")))
    assert code == 0, f"the server ended with {code}"
    assert all(row["lost"] == 0 for row in (*rows, *disturbed)), "requests were lost"
    assert not soaked["unexpected"], soaked["unexpected"]


if __name__ == "__main__":
    main()
