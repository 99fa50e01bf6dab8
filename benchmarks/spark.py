"""Counting and scoring on a Spark cluster of this machine's own: processor seconds and peak memory for growing texts.

    python benchmarks/spark.py                                  # 1, 4 and 16 times the text, one and two workers
    python benchmarks/spark.py --tokens 100000 --sizes 1 4      # smaller texts
    python benchmarks/spark.py --tokens 2000 --sizes 1 --workers 1 --trial    # whether it works; nothing is written

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
from typing import Any

import numpy as np
import psutil

from report import Blocks, describe, make_table, read_results, write_blocks, write_results

VOCABULARY = 10_000
ORDER = 5
DAY_MB = 100_000
"""A day of web text."""
TOKENS_PER_PART = 30_000_000
"""About a gigabyte of windows."""


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


def run(arguments: list[object], folder: Path, daemons: list[int]) -> tuple[str, dict[str, float]]:
    """Run a command of ours; return the last line it printed, and its times and memory."""
    began = time.perf_counter()
    with (folder / "errors").open("w") as errors, (folder / "output").open("w") as output:
        command = [sys.executable, "-m", "tslm", *map(str, arguments)]
        process = subprocess.Popen(command, stdout=output, stderr=errors, text=True)
        processor_seconds, peak_gb = watch(process, daemons)
    if process.returncode:
        sys.exit((folder / "errors").read_text())
    seconds = time.perf_counter() - began
    printed = (folder / "output").read_text().splitlines()
    return printed[-1], {"seconds": seconds, "processor_seconds": processor_seconds, "peak_gb": peak_gb}


def measure(text: Path, workers: int, folder: Path) -> dict[str, Any]:
    """Count a text on a fresh cluster, assemble the model here, and score the text on the cluster and here."""
    folder.mkdir()
    counts, model = folder / "counts", folder / "run"
    with cluster(workers, folder) as (address, daemons):
        where: list[object] = ["--engine", "spark", "--master", address]
        for setting in ("spark.executor.memory=1500m", "spark.driver.host=127.0.0.1"):
            where += ["--conf", setting]
        # Nearly every word of generated text follows nearly any other, so single words give no discounts of their own.
        options = ["--min-count", 1, "--partitions", 8, "--discount-fallback", "0.5,1,1.5"]
        job = ["count", *where, "--text", text, "--order", ORDER, *options, "--out", counts]
        counted, counting = run([*job, "--json"], folder, daemons)
        _, assembling = run(["train", "--counts", counts, "--out", model], folder, [])
        _, scoring = run(["score", model, text, *where, "--out", folder / "scores"], folder, daemons)
        _, scoring_here = run(["score", model, text], folder, [])
    return {
        "workers": workers,
        "tokens": json.loads(counted)["tokens"],
        "text_mb": text.stat().st_size / 1e6,
        **counting,
        "shards_mb": sum(path.stat().st_size for path in counts.rglob("*.parquet")) / 1e6,
        "assembling": assembling,
        "scoring": scoring,
        "scoring_here": scoring_here,
    }


def name_row(row: dict[str, Any]) -> str:
    """Return the name under which the machine of a row is kept."""
    return f"{row['tokens']:,} tokens, {row['workers']} worker{'s' * (row['workers'] > 1)}"


def make_blocks(stored: dict[str, Any]) -> Blocks:
    """Return the tables in the docs."""
    rows = stored["cluster"]
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
    measured = describe((name_row(row), stored["machines"][name_row(row)]) for row in rows)
    after = [
        ["workers", "tokens", "assembling", "its peak memory", "scored on the cluster", "by `tslm score`"]
    ]
    for row in (row for row in rows if "scoring" in row):
        rates = [row["tokens"] / row[way]["processor_seconds"] for way in ("scoring", "scoring_here")]
        assembling = row["assembling"]
        times = [f"{assembling['processor_seconds']:.1f} s", f"{assembling['peak_gb']:.2f} GB"]
        after.append(
            [str(row["workers"]), f"{row['tokens']:,}", *times, *(f"{rate:,.0f} tokens/s" for rate in rates)]
        )
    return {
        ("spark.md", "cluster"): f"{make_table([head, *table])}\n\n{measured}",
        ("spark.md", "day"): make_table(extrapolate(rows)),
        ("spark.md", "after"): make_table(after) if len(after) > 1 else "Not measured yet.",
    }


def extrapolate(rows: list[dict[str, Any]]) -> list[list[str]]:
    """What 100 GB of text would take, if it went on as from the smallest to the largest text measured: on paper."""
    head = ["text", "tokens", "processor hours", "hours on 100 cores", "partitions", "shards"]
    single = [row for row in rows if row["workers"] == 1]
    first, last = single[0], single[-1]
    if first["tokens"] == last["tokens"]:
        return [head]
    tokens = DAY_MB * last["tokens"] / last["text_mb"]
    slope = (last["processor_seconds"] - first["processor_seconds"]) / (last["tokens"] - first["tokens"])
    hours = tokens * slope / 3600
    shards = DAY_MB * last["shards_mb"] / last["text_mb"]
    parts = tokens / TOKENS_PER_PART
    numbers = [f"{tokens / 1e9:.0f} billion", f"{hours:,.0f}", f"{hours / 100:.1f}", f"{parts:,.0f}"]
    return [head, [f"{DAY_MB / 1000:.0f} GB", *numbers, f"{shards / 1e6:.1f} TB"]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=1_000_000, help="of the smallest text")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--trial", action="store_true", help="print the figures, and write nothing")
    arguments = parser.parse_args()
    # Rows that this run does not measure are kept.
    rows: list[dict[str, Any]] = read_results("spark")["cluster"]
    with tempfile.TemporaryDirectory() as name:
        for size in arguments.sizes:
            text = Path(name) / f"{size}.txt"
            generate(text, size * arguments.tokens)
            for workers in arguments.workers:
                row = measure(text, workers, Path(name) / f"{size}-{workers}")
                print(row, flush=True)
                if arguments.trial:
                    continue
                rows = [one for one in rows if name_row(one) != name_row(row)] + [row]
                rows.sort(key=lambda one: (one["tokens"], one["workers"]))
                write_results("spark", {"cluster": rows}, [name_row(row)])
                write_blocks(make_blocks(read_results("spark")))


if __name__ == "__main__":
    main()
