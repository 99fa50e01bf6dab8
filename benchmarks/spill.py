"""Counting more text than fits in memory: processor seconds, seconds and peak memory on generated text.

    python benchmarks/spill.py --trial now --tokens 10000000 --memory-gib 0.5

A trial is kept under its name beside those before it; PYTHONPATH says which code it is of.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
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
    start, used, here = time.perf_counter(), time.process_time(), time.thread_time()
    counts = count_ngrams(ids, ORDER, VOCABULARY, EOS, memory_gib=memory_gib)
    used, here = time.process_time() - used, time.thread_time() - here
    return {
        "seconds": time.perf_counter() - start,
        "share_in_threads": 1 - here / used,
        "ngrams": counts.trie.node_count,
        "result_gb": counts.byte_count / 1e9,
    }


def measure(path: Path, memory_gib: float) -> dict[str, float]:
    """Count in a process of its own and add what it used."""
    command = [sys.executable, __file__, "--file", str(path), "--memory-gib", str(memory_gib)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_trial(name: str, tokens: int, memory_gib: float) -> None:
    """Count once, and put the figures in the results and in the docs."""
    from report import write_table

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ids"
        generate(path, tokens)
        result = measure(path, memory_gib)
    print(result)
    out = Path(__file__).parent / "results" / "spill.json"
    known = json.loads(out.read_text())
    known.setdefault("trials", {})[name] = {"tokens": tokens, "memory_gib": memory_gib, **result}
    out.write_text(json.dumps(known, indent=2) + "\n")
    rows = [
        [
            "code",
            "tokens",
            "memory allowed",
            "processor seconds",
            "of it on all cores",
            "seconds",
            "peak memory",
        ]
    ]
    for title, trial in known["trials"].items():
        rows.append(
            [
                title,
                f"{trial['tokens']:,}",
                f"{trial['memory_gib']} GiB",
                f"{trial['processor_seconds']:.1f}",
                f"{trial['share_in_threads']:.0%}" if "share_in_threads" in trial else "",
                f"{trial['seconds']:.0f}",
                f"{trial['peak_gb']:.2f} GB",
            ]
        )
    write_table("ngram-speed.md", "disk trials", rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--memory-gib", type=float, default=0.5)
    parser.add_argument("--trial", metavar="NAME", default="now", help="keep the figures under this name")
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.file:
        run_trial(arguments.trial, arguments.tokens, arguments.memory_gib)
        return
    result = count(arguments.file, arguments.memory_gib)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result["processor_seconds"] = usage.ru_utime + usage.ru_stime
    result["peak_gb"] = usage.ru_maxrss * 1024 / 1e9
    print(json.dumps(result))


if __name__ == "__main__":
    main()
