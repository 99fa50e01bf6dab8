"""Training in one process and in two under torchrun: the losses beside each other, and what it costs.

    python benchmarks/processes.py          # a few minutes; writes results/processes.json and the table in the docs

The same recipe, batch and text (the validation split of Penn Treebank, learnt), no dropout, one thread a process. On a
busy machine the seconds say little; processor seconds are those of all processes, start and torchrun included.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import write_results, write_table

EPOCHS = 2
RECIPE = """[corpus]
name = "own"
path = ["{folder}"]
min_count = 1
[model]
kind = "recurrent"
rank = 128
embedding = 128
[model.cell]
kind = "tslm"
variant = "normalised"
[train]
epochs = {epochs}
batch = 40
window = 35
metric_steps = 1
threads = 1
test = false
"""
LAUNCH = {
    1: ["-m", "tslm"],
    2: ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tslm"],
}


def used() -> float:
    """Return the processor seconds of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def train(recipe: Path, folder: Path, processes: int, epochs: int) -> dict[str, Any]:
    """Train in so many processes; return losses, tokens and times."""
    before, began = used(), time.perf_counter()
    command = ["train", str(recipe), "--out", str(folder), "--set", f"train.epochs={epochs}"]
    subprocess.run(
        [sys.executable, *LAUNCH[processes], *command],
        check=True,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    seconds, processor_seconds = time.perf_counter() - began, used() - before
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "losses": [line["loss"] for line in lines if "epoch" not in line],
        "valid": summary["valid"]["perplexity"],
        "tokens": epochs * summary["corpus"]["train_tokens"],
        "tokens_per_second": summary["tokens_per_second"],
        "seconds": seconds,
        "processor_seconds": processor_seconds,
    }


def main() -> None:
    from tslm.corpus.sources import open_corpus

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        corpus = open_corpus("ptb")
        for split, source in (("train", "valid"), ("valid", "test"), ("test", "test")):
            words = " ".join(corpus.vocabulary.decode(corpus.splits[source][:60_000]))
            (folder / f"{split}.txt").write_text(words.replace(" <eos> ", "\n") + "\n")
        recipe = folder / "own.toml"
        recipe.write_text(RECIPE.format(folder=folder, epochs=EPOCHS))
        rows = {
            processes: train(recipe, folder / f"runs-{processes}", processes, EPOCHS) for processes in (1, 2)
        }
    farthest = max(
        abs(one - two) / one for one, two in zip(rows[1]["losses"], rows[2]["losses"], strict=True)
    )
    results = {str(processes): row for processes, row in rows.items()}
    write_results("processes", {"results": results, "largest_relative_difference": farthest}, ["results"])
    table = [
        [
            "processes",
            "tokens",
            "processor seconds",
            "tokens/s in training",
            "last loss",
            "valid",
            "losses apart",
        ]
    ]
    for processes, row in rows.items():
        table.append(
            [
                str(processes),
                f"{row['tokens']:,}",
                f"{row['processor_seconds']:.1f}",
                f"{row['tokens_per_second']:,.0f}",
                f"{row['losses'][-1]:.6f}",
                f"{row['valid']:.4f}",
                "" if processes == 1 else f"{farthest:.1e}",
            ]
        )
    write_table("training.md", "processes", table)


if __name__ == "__main__":
    main()
