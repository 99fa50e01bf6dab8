"""What a probabilistic model costs: a step of training, and blanks in a sentence.

    python benchmarks/probabilistic.py --train ptb/probabilistic     # a few windows of its recipe
    python benchmarks/probabilistic.py --train ptb/probabilistic --set model.rank=4096
    python benchmarks/probabilistic.py --fill runs/ptb-probabilistic

All times are processor time of one thread: a busy machine changes them little. Memory is the process's largest. The
tables in docs/probabilistic.md show what has been measured so far.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

import tslm
from report import write_results, write_table
from tslm.corpus.sources import open_corpus
from tslm.models.registry import model_class
from tslm.runs.recipe import read_recipe
from tslm.training.config import ObjectiveConfig
from tslm.training.distributed import Group
from tslm.training.trainer import Trainer
from tslm.training.watcher import Watcher

SENTENCE = "the company said it expects to report a loss for the third quarter because of lower prices"


def seconds(work: Callable[[], object], times: int) -> float:
    """Return the median processor time."""
    taken: list[float] = []
    for _ in range(times):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def measure_training(name: str, overrides: Sequence[str], windows: int) -> dict[str, object]:
    """Train for some windows as the recipe says."""
    import tempfile

    recipe = read_recipe(name, overrides)
    corpus = open_corpus(recipe.corpus)
    torch.manual_seed(1)
    began = time.process_time()
    model = model_class(recipe.kind)(recipe.model, corpus.vocabulary)  # type: ignore[call-arg]
    model.prepare(corpus)  # type: ignore[attr-defined]
    prepared = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(model, recipe.train, ObjectiveConfig(), corpus, Path(folder), Group(), Watcher())
        model.train()  # type: ignore[attr-defined]
        turns = trainer.columns.windows()
        trainer._step(*next(turns))
        one = seconds(lambda: trainer._step(*next(turns)), windows)
    tokens = recipe.train.batch * recipe.train.window
    return {
        "recipe": name,
        "rank": recipe.model.rank,
        "clusters": recipe.model.clusters,
        "prepare_seconds": prepared,
        "tokens_per_second": tokens / one,
        "epoch_seconds": one * len(trainer.columns),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure_filling(run: str, times: int) -> dict[str, object]:
    """Fill one blank and ten, apart and side by side; the matrix W is made before and told by itself."""
    model = tslm.load(run)
    words = SENTENCE.split()
    one = " ".join("?" if place == 5 else word for place, word in enumerate(words))
    apart = " ".join(
        "?" if place % 2 and place < 20 else word for place, word in enumerate((words + words)[:20])
    )
    beside = " ".join([*words[:4], *["?"] * 10, *words[14:]])
    began = time.process_time()
    tslm.fill(model, one)
    first = time.process_time() - began
    return {
        "run": run,
        "rank": model.config.rank,  # type: ignore[attr-defined]
        "first_seconds": first,
        "one_blank_seconds": seconds(lambda: tslm.fill(model, one), times),
        "ten_blanks_apart_seconds": seconds(lambda: tslm.fill(model, apart, top=1), times),
        "ten_blanks_side_by_side_seconds": seconds(lambda: tslm.fill(model, beside, top=1), times),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def show(path: Path) -> None:
    """Write all that has been measured into the page."""
    parts = json.loads(path.read_text(encoding="utf-8"))
    rows = sorted(
        (part for name, part in parts.items() if name.startswith("training ")), key=lambda part: part["rank"]
    )
    head = ["recipe", "states", "clusters", "clusters found in", "tokens/s", "an epoch", "memory"]
    table = [
        [
            f"`{row['recipe']}`",
            f"{row['rank']:,}",
            f"{row['clusters']:,}",
            f"{row['prepare_seconds']:.0f} s",
            f"{row['tokens_per_second']:,.0f}",
            f"{row['epoch_seconds']:.0f} s",
            f"{row['memory_mib']:,.0f} MiB",
        ]
        for row in rows
    ]
    write_table("probabilistic.md", "training", [head, *table])
    if (filling := parts.get("filling")) is not None:
        head = ["states", "W, once", "one blank", "ten blanks apart", "ten side by side", "memory"]
        keys = ("first", "one_blank", "ten_blanks_apart", "ten_blanks_side_by_side")
        row = [f"{filling['rank']:,}", *(f"{1000 * filling[key + '_seconds']:,.0f} ms" for key in keys)]
        write_table("probabilistic.md", "filling", [head, [*row, f"{filling['memory_mib']:,.0f} MiB"]])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", metavar="RECIPE")
    parser.add_argument("--set", metavar="TABLE.KEY=VALUE", action="append", default=[], dest="overrides")
    parser.add_argument("--fill", metavar="RUN")
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--times", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts: dict[str, object] = {}
    if arguments.train:
        name = " ".join([arguments.train, *arguments.overrides])
        parts[f"training {name}"] = measure_training(arguments.train, arguments.overrides, arguments.windows)
    if arguments.fill:
        parts["filling"] = measure_filling(arguments.fill, arguments.times)
    print(parts)
    path = write_results("probabilistic", parts)
    print(path)
    show(path)


if __name__ == "__main__":
    main()
