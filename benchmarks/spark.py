"""Counting on a Spark cluster of this machine's own: processor seconds and peak memory for growing texts.

    python benchmarks/spark.py                                  # 1, 4 and 16 times the text, one and two workers
    python benchmarks/spark.py --tokens 100000 --sizes 1 4      # a smaller trial

Needs Java and the extra ``spark``. Processor seconds are those of all processes together: driver, executors, Python
workers, without master and worker daemons. Memory is the largest sum over all of them at one time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

from report import write_results, write_table

VOCABULARY = 10_000
ORDER = 5


def generate(path: Path, tokens: int) -> None:
    """Write lines of about 20 words by Zipf's law, half of the words following from the one before."""
    generator = np.random.default_rng(0)
    shares = np.cumsum(1 / np.arange(1, VOCABULARY))
    words = 1 + np.searchsorted(shares / shares[-1], generator.random(tokens))
    follows = generator.random(tokens) < 0.5
    words[1:][follows[1:]] = 1 + (words[:-1][follows[1:]] * 7919) % (VOCABULARY - 1)
    ends = np.flatnonzero(generator.random(tokens) < 0.05)
    lines = np.split(words, ends)
    path.write_text("".join(" ".join(map(str, line.tolist())) + "\n" for line in lines))


@contextmanager
def cluster(workers: int, folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield the address of a cluster, and the processes of its master and workers."""
    import pyspark

    start = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    log = folder / "master.log"
    deploy = "org.apache.spark.deploy"
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("wb") as output:
            command = [
                start,
                f"{deploy}.master.Master",
                "--host",
                "127.0.0.1",
                "--port",
                "0",
                "--webui-port",
                "0",
            ]
            daemons.append(subprocess.Popen(command, stdout=output, stderr=output, env=environment))
        while not (found := re.search(r"spark://127\.0\.0\.1:\d+", log.read_text())):
            time.sleep(0.2)
        for number in range(workers):
            options = [
                "--cores",
                "1",
                "--memory",
                "2g",
                "--webui-port",
                "0",
                "--work-dir",
                str(folder / str(number)),
            ]
            command = [start, f"{deploy}.worker.Worker", *options, found.group(0)]
            null = subprocess.DEVNULL
            daemons.append(subprocess.Popen(command, stdout=null, stderr=null, env=environment))
        while log.read_text().count("Registering worker") < workers:
            time.sleep(0.2)
        yield found.group(0), [daemon.pid for daemon in daemons]
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            daemon.wait()


def watch(process: subprocess.Popen[str], daemons: list[int]) -> tuple[float, float]:
    """Wait for a process; return processor seconds and peak gigabytes of it and of what the daemons start for it."""
    seconds: dict[tuple[int, float], float] = {}
    peak = 0
    roots = [psutil.Process(pid) for pid in (process.pid, *daemons)]
    while process.poll() is None:
        held = 0
        for root in roots:
            try:
                family = root.children(recursive=True) + ([root] if root.pid == process.pid else [])
            except psutil.Error:
                continue
            for one in family:
                try:
                    times = one.cpu_times()
                    seconds[one.pid, one.create_time()] = times.user + times.system
                    held += one.memory_info().rss
                except psutil.Error:
                    continue
        peak = max(peak, held)
        time.sleep(0.25)
    return sum(seconds.values()), peak / 1e9


def measure(text: Path, workers: int, folder: Path) -> dict[str, float]:
    """Count a text on a fresh cluster."""
    folder.mkdir()
    with cluster(workers, folder) as (address, daemons):
        arguments = [
            "--master",
            address,
            "--text",
            text,
            "--order",
            ORDER,
            "--min-count",
            1,
            "--partitions",
            8,
        ]
        settings = [
            "--conf",
            "spark.executor.memory=1500m",
            "--conf",
            "spark.driver.host=127.0.0.1",
            "--json",
        ]
        began = time.perf_counter()
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tslm",
                "count",
                *map(str, arguments),
                "--out",
                folder / "counts",
                *settings,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        processor_seconds, peak_gb = watch(process, daemons)
        assert process.stdout is not None
        counted = json.loads(process.stdout.read().splitlines()[-1])
        size = sum(path.stat().st_size for path in (folder / "counts").rglob("*.parquet"))
    return {
        "workers": workers,
        "tokens": counted["tokens"],
        "text_mb": text.stat().st_size / 1e6,
        "seconds": time.perf_counter() - began,
        "processor_seconds": processor_seconds,
        "peak_gb": peak_gb,
        "shards_mb": size / 1e6,
    }


def write_page(rows: list[dict[str, float]]) -> None:
    head = ["workers", "tokens", "text", "processor seconds", "seconds", "peak memory", "shards"]
    table = [
        [
            f"{row['workers']:.0f}",
            f"{row['tokens']:,.0f}",
            f"{row['text_mb']:.1f} MB",
            f"{row['processor_seconds']:.0f}",
            f"{row['seconds']:.0f}",
            f"{row['peak_gb']:.1f} GB",
            f"{row['shards_mb']:.1f} MB",
        ]
        for row in rows
    ]
    write_table("spark.md", "cluster", [head, *table])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=1_000_000, help="of the smallest text")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        for size in arguments.sizes:
            text = Path(name) / f"{size}.txt"
            generate(text, size * arguments.tokens)
            for workers in arguments.workers:
                rows.append(measure(text, workers, Path(name) / f"{size}-{workers}"))
                print(rows[-1], flush=True)
                write_results("spark", {"load": os.getloadavg()[1], "cluster": rows})
                write_page(rows)


if __name__ == "__main__":
    main()
