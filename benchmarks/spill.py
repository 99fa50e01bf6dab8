"""Counting more text than fits in memory: time and peak memory on generated text, and DuckDB beside Polars.

    python benchmarks/spill.py                       # 100 million tokens within 4 GiB
    python benchmarks/spill.py --tokens 10000000     # a smaller one
    python benchmarks/spill.py --trial now --tokens 10000000 --memory-gib 0.5   # counting alone, in processor seconds

A trial is kept under its name beside those before it; PYTHONPATH says which code it is of.

Polars is no dependency of the project; its row appears where it is installed.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

VOCABULARY = 10_000
ORDER = 5
EOS = 0


def generate(path: Path, tokens: int, seed: int = 0) -> None:
    """Write lines of about 20 words by Zipf's law, each word depending on the one before it."""
    generator = np.random.default_rng(seed)
    shares = np.cumsum(1 / np.arange(1, VOCABULARY))
    shares /= shares[-1]
    with path.open("wb") as file:
        for start in range(0, tokens, 1_000_000):
            count = min(1_000_000, tokens - start)
            words = 1 + np.searchsorted(shares, generator.random(count))
            # Half of the words follow from the word before, so that n-grams repeat as they do in text.
            follows = generator.random(count) < 0.5
            words[1:][follows[1:]] = 1 + (words[:-1][follows[1:]] * 7919) % (VOCABULARY - 1)
            words[generator.random(count) < 0.05] = EOS
            words.astype(np.int32).tofile(file)


def count(path: Path, memory_gib: float) -> dict[str, float]:
    """Count a generated corpus on disk."""
    from tslm.models.ngram.counting import count_ngrams

    ids = np.memmap(path, np.int32, "r")
    start = time.perf_counter()
    counts = count_ngrams(ids, ORDER, VOCABULARY, EOS, memory_gib=memory_gib)
    return {
        "seconds": time.perf_counter() - start,
        "ngrams": counts.trie.node_count,
        "result_gb": counts.byte_count / 1e9,
    }


def group_with_duckdb(path: Path, memory_gib: float) -> dict[str, float]:
    """Only the sorting of the windows, as count_ngrams does it."""
    from tslm.models.ngram.spill import _sort_windows
    from tslm.progress import track_count

    ids = np.memmap(path, np.int32, "r")
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        windows = _sort_windows(Path(folder), ids, ORDER, VOCABULARY, EOS, memory_gib, track_count)
        rows = sum(words.shape[1] for words in windows)
        return {"seconds": time.perf_counter() - start, "rows": rows}


def group_with_polars(path: Path, memory_gib: float) -> dict[str, float]:
    """The same with Polars' streaming engine, from and to Parquet files."""
    del memory_gib  # Polars takes no limit
    import polars

    from tslm.models.ngram.spill import _make_windows

    ids = np.memmap(path, np.int32, "r")
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        for number, words in enumerate(_make_windows(ids, ORDER, VOCABULARY, EOS)):
            first = words[0] << 28 | words[1] << 14 | words[2]
            second = words[3] << 14 | words[4]
            polars.DataFrame({"c0": first, "c1": second}).write_parquet(f"{folder}/{number:05}.parquet")
        windows = polars.scan_parquet(f"{folder}/*.parquet")
        windows.sort("c0", "c1").sink_parquet(f"{folder}/sorted", engine="streaming")
        rows = polars.scan_parquet(f"{folder}/sorted").select(polars.len()).collect().item()
        return {"seconds": time.perf_counter() - start, "rows": rows}


STEPS = {"count": count, "duckdb": group_with_duckdb, "polars": group_with_polars}


def measure(step: str, path: Path, memory_gib: float) -> dict[str, float]:
    """Run a step in a process of its own and add its peak memory."""
    command = [sys.executable, __file__, "--step", step, "--file", str(path), "--memory-gib", str(memory_gib)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_trial(name: str, tokens: int, memory_gib: float) -> None:
    """Count once, and put the figures in the results and in the docs."""
    from report import write_table

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ids"
        generate(path, tokens)
        result = measure("count", path, memory_gib)
    print(result)
    out = Path(__file__).parent / "results" / "spill.json"
    known = json.loads(out.read_text())
    known.setdefault("trials", {})[name] = {"tokens": tokens, "memory_gib": memory_gib, **result}
    out.write_text(json.dumps(known, indent=2) + "\n")
    rows = [["code", "tokens", "memory allowed", "processor seconds", "seconds", "peak memory"]]
    for title, trial in known["trials"].items():
        rows.append(
            [
                title,
                f"{trial['tokens']:,}",
                f"{trial['memory_gib']} GiB",
                f"{trial['processor_seconds']:.1f}",
                f"{trial['seconds']:.0f}",
                f"{trial['peak_gb']:.2f} GB",
            ]
        )
    write_table("ngram-speed.md", "disk trials", rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=100_000_000)
    parser.add_argument("--engine-tokens", type=int, default=20_000_000, help="for DuckDB beside Polars")
    parser.add_argument("--memory-gib", type=float, default=4.0)
    parser.add_argument("--trial", metavar="NAME", help="count only, and keep the figures under this name")
    parser.add_argument("--step", choices=tuple(STEPS), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        result = STEPS[arguments.step](arguments.file, arguments.memory_gib)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        result["processor_seconds"] = usage.ru_utime + usage.ru_stime
        result["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        print(json.dumps(result))
        return

    if arguments.trial:
        run_trial(arguments.trial, arguments.tokens, arguments.memory_gib)
        return

    from rich.console import Console
    from rich.table import Table

    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ids"
        generate(path, arguments.engine_tokens)
        for engine in ("duckdb", *(("polars",) if find_spec("polars") else ())):
            results[engine] = measure(engine, path, 2.0)
        generate(path, arguments.tokens)
        results["count"] = measure("count", path, arguments.memory_gib)
    settings = {
        "tokens": arguments.tokens,
        "engine_tokens": arguments.engine_tokens,
        "memory_gib": arguments.memory_gib,
        "order": ORDER,
        "vocabulary": VOCABULARY,
    }
    table = Table(title=f"counting on disk, order {ORDER}, {VOCABULARY:,} words")
    for column in ("step", "tokens", "seconds", "peak GB"):
        table.add_column(column, justify="right")
    for name, result in results.items():
        tokens = arguments.tokens if name == "count" else arguments.engine_tokens
        table.add_row(name, f"{tokens:,}", f"{result['seconds']:.1f}", f"{result['peak_gb']:.2f}")
    Console().print(table)
    out = Path(__file__).parent / "results" / "spill.json"
    out.parent.mkdir(exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
    known = json.loads(out.read_text()) if out.exists() else {}
    written = {**known, "machine": machine, "settings": settings, "results": results}
    out.write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    main()
