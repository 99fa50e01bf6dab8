"""Encoding of a generated text file: tokens per second on one core, peak memory, and the second opening.

Every step runs in a process of its own, so that its peak resident size is its own. The text is random words, the
word of rank r with a probability in proportion to 1 / (r + 2.7)^1.1: more rare words than real text has, in a
vocabulary of the size of WikiText-103's. The rate is given per second of processor time, which other work on the
machine disturbs less, and per second on the clock. The file and the cache live in a temporary folder.

    python benchmarks/encoding.py             # 1 GB
    python benchmarks/encoding.py --megabytes 100 --tokeniser words      # or bpe; written to encoding-words.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

WORDS = 267_000
LINE_WORDS = 25
LIMIT_GB = 1.5
GOAL_TOKENS_PER_SECOND = 2e6
RESULTS = Path(__file__).parent / "results"


def write_text(path: Path, size: int) -> None:
    """Write lines of random words; frequent words are short."""
    random = np.random.default_rng(1)
    words = np.array([spell(rank) for rank in range(WORDS)], dtype=object)
    weight = 1 / (np.arange(1, WORDS + 1) + 2.7) ** 1.1
    cumulative = np.cumsum(weight) / weight.sum()
    with path.open("w", encoding="utf-8") as handle:
        while handle.tell() < size:
            ranks = np.searchsorted(cumulative, random.random((4000, LINE_WORDS)), side="right")
            lines = words[np.minimum(ranks, WORDS - 1)]
            handle.writelines(" ".join(line) + "\n" for line in lines.tolist())


def spell(rank: int) -> str:
    """Return a word for a rank: its number in letters, and up to five letters more."""
    digits = np.base_repr(rank, 25).lower()
    return digits + "zzzzz"[: rank % 6]


def open_once(path: str, tokeniser: str) -> None:
    """Open a corpus, touch the first and last ids, and print the seconds and the peak resident size."""
    from tslm.config import read_config
    from tslm.corpus.sources import CorpusConfig, open_corpus

    started, processor = time.perf_counter(), time.process_time()
    corpus = open_corpus(read_config(CorpusConfig, {"path": path, "tokeniser": tokeniser}, "corpus"))
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    touched = [int(ids[0] + ids[-1]) for ids in corpus.splits.values()]
    print(
        json.dumps(
            {
                "seconds": seconds,
                "processor_seconds": processor,
                "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
                "tokens": sum(len(ids) for ids in corpus.splits.values()),
                "vocabulary": len(corpus.vocabulary),
                "touched": touched,
            }
        )
    )


def run(path: Path, cache: Path, tokeniser: str) -> dict[str, float]:
    environment = os.environ | {"TSLM_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--open", str(path), "--tokeniser", tokeniser]
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--tokeniser", default="spaces", choices=("spaces", "words", "bpe"))
    parser.add_argument("--open", metavar="FILE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.open:
        open_once(arguments.open, arguments.tokeniser)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        write_text(path, arguments.megabytes * 1_000_000)
        size = path.stat().st_size
        # As old as a real corpus would be: a file changed within two seconds is hashed again.
        os.utime(path, (time.time() - 60, time.time() - 60))
        first = run(path, Path(folder) / "cache", arguments.tokeniser)
        second = run(path, Path(folder) / "cache", arguments.tokeniser)
    rate = first["tokens"] / first["processor_seconds"]
    table = Table("opening", "seconds", "processor seconds", "tokens/s", "peak resident GB", box=None)
    for name, row in (("first", first), ("second", second)):
        shown = f"{rate:,.0f}" if name == "first" else ""
        table.add_row(
            name, f"{row['seconds']:.2f}", f"{row['processor_seconds']:.2f}", shown, f"{row['peak_gb']:.2f}"
        )
    console = Console()
    console.print(f"{size / 1e9:.2f} GB, {first['tokens']:,} tokens, vocabulary {first['vocabulary']:,}")
    console.print(table)
    result = {
        "settings": {
            "megabytes": arguments.megabytes,
            "words": WORDS,
            "line_words": LINE_WORDS,
            "tokeniser": arguments.tokeniser,
        },
        "machine": {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "text_bytes": size,
        "tokens": first["tokens"],
        "vocabulary": first["vocabulary"],
        "first": {key: first[key] for key in ("seconds", "processor_seconds", "peak_gb")},
        "second": {key: second[key] for key in ("seconds", "processor_seconds", "peak_gb")},
        "tokens_per_processor_second": rate,
        "tokens_per_second": first["tokens"] / first["seconds"],
        "goals": {"tokens_per_processor_second": GOAL_TOKENS_PER_SECOND, "peak_gb": LIMIT_GB},
    }
    RESULTS.mkdir(exist_ok=True)
    name = "encoding" if arguments.tokeniser == "spaces" else f"encoding-{arguments.tokeniser}"
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if first["peak_gb"] > LIMIT_GB or rate < GOAL_TOKENS_PER_SECOND:
        sys.exit(
            f"missed: the goal is {GOAL_TOKENS_PER_SECOND:,.0f} tokens per processor second "
            f"and at most {LIMIT_GB} GB"
        )


if __name__ == "__main__":
    main()
