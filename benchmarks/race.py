"""Wall time to the same validation perplexity on PTB: tslm's engine against the usual PyTorch loop.

The other side is written as users of PyTorch's word-language-model example write it: ``nn.Embedding``, ``nn.LSTM``,
``nn.Linear``, full cross entropy, plain SGD from a learning rate of 20 that is divided by four when validation stops
improving, gradients clipped at 0.25, batch 20, window 35. Same sizes (256 × 1).

The recipes of LSTM, TSLM and gated TSLM run a short schedule to its end, with the products and the kernel that the
options say; what each reaches there is the goal that the loop has to reach too, so no goal is chosen by hand. The loop
always runs in single precision and as PyTorch has it, with the same number of threads, and ends at the hardest goal. It
is read at the ends of its epochs, so it may have passed a goal well before: the last column of the table takes the time
between two of them, as if the logarithm of perplexity fell evenly.

    TSLM_DATA=… python benchmarks/race.py                                  # everything
    TSLM_DATA=… python benchmarks/race.py --cells gated --kernel           # one cell, beside what was raced before
    TSLM_DATA=… python benchmarks/race.py --cells pytorch                  # the usual loop alone, to the hardest goal
    TSLM_DATA=… python benchmarks/race.py --show                           # the documentation from the last race
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from report import Blocks, describe, machine, make_table, read_results, write_blocks, write_results
from tslm.corpus.sources import Corpus, open_corpus
from tslm.models.recurrent import kernel
from tslm.reports.curves import COLOURS, to_svg
from tslm.runs.recipe import make_recipe
from tslm.runs.train import train
from tslm.training.position import Position
from tslm.training.watcher import Watcher

RECIPES = Path(__file__).parents[1] / "recipes" / "ptb"
RESULTS = Path(__file__).parent / "results" / "race.json"

History = list[dict[str, float]]

CELLS = ("lstm", "tslm", "gated")
NAMES = {"lstm": "LSTM", "tslm": "TSLM", "gated": "TSLM, gated", "pytorch": "the usual loop, LSTM"}


class WordLanguageModel(nn.Module):
    def __init__(self, words: int, size: int, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(words, size)
        self.rnn = nn.LSTM(size, size)
        self.decoder = nn.Linear(size, words)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, tokens: Tensor, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(tokens)), hidden)
        return self.decoder(self.drop(output)).flatten(0, 1), hidden


def columns(ids, batch: int) -> Tensor:
    usable = len(ids) // batch * batch
    return torch.from_numpy(ids[:usable].astype("int64")).view(batch, -1).t().contiguous()


@torch.no_grad()
def validate(model: nn.Module, data: Tensor) -> float:
    model.eval()
    total, hidden, criterion = 0.0, None, nn.CrossEntropyLoss()
    for start in range(0, len(data) - 1, 35):
        targets = data[start + 1 : start + 36]
        logits, hidden = model(data[start : start + len(targets)], hidden)
        total += len(targets) * criterion(logits, targets.reshape(-1)).item()
    return math.exp(total / (len(data) - 1))


def race_pytorch(corpus: Corpus, goal: float, limit: float) -> History:
    torch.manual_seed(1)
    model = WordLanguageModel(len(corpus.vocabulary), 256, 0.3)
    data, valid = columns(corpus.splits["train"], 20), columns(corpus.splits["valid"], 10)
    criterion, rate, best, seconds = nn.CrossEntropyLoss(), 20.0, math.inf, 0.0
    history: History = []
    while seconds < limit:
        model.train()
        hidden, began = None, time.perf_counter()
        for start in range(0, len(data) - 1, 35):
            targets = data[start + 1 : start + 36]
            model.zero_grad()
            if hidden is not None:
                hidden = tuple(part.detach() for part in hidden)
            logits, hidden = model(data[start : start + len(targets)], hidden)
            criterion(logits, targets.reshape(-1)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(parameter.grad, alpha=-rate)
        seconds += time.perf_counter() - began
        perplexity = validate(model, valid)
        history.append({"seconds": seconds, "valid": perplexity})
        print(f"PyTorch loop: {seconds:.0f} s, valid {perplexity:.1f}", flush=True)
        if perplexity <= goal:
            break
        if perplexity > best:
            rate /= 4
        best = min(best, perplexity)
    return history


class Noted(Watcher):
    def __init__(self, cell: str) -> None:
        self.cell = cell
        self.entries: History = []

    def epoch(self, position: Position, epochs: int, train: float, valid: float) -> None:
        self.entries.append({"seconds": position.seconds, "valid": valid})
        print(f"tslm, {self.cell}: {position.seconds:.0f} s, valid {valid:.1f}", flush=True)


def race_tslm(cell: str, epochs: int, precision: str) -> History:
    tables = tomllib.loads((RECIPES / f"{cell}.toml").read_text(encoding="utf-8"))
    tables["train"] |= {"epochs": epochs, "test": False, "precision": precision}
    watcher = Noted(cell)
    with tempfile.TemporaryDirectory() as folder:
        train(make_recipe(tables), Path(folder) / "run", watcher=watcher)
    return watcher.entries


def make_blocks(stored: dict[str, Any]) -> Blocks:
    """Return the table of the documentation."""
    races = stored["races"]
    histories = {name: race["history"] for name, race in races.items()}
    pytorch = histories["pytorch"]
    last = pytorch[-1]
    table = [
        ["cell", "products", "kernel", "valid perplexity", "tslm", "the usual loop", "ratio", "interpolated"]
    ]
    for cell in (cell for cell in CELLS if cell in races):
        settings, goal = races[cell]["settings"], goal_of(histories[cell])
        ours, theirs = seconds_to(goal, histories[cell]), seconds_to(goal, pytorch)
        between = seconds_between(goal, pytorch)
        assert ours is not None
        beside = f"{theirs:.0f} s" if theirs else f"not in {last['seconds']:.0f} s ({last['valid']:.1f})"
        ratio = f"{ours / theirs:.2f}" if theirs else f"below {ours / last['seconds']:.2f}"
        finer = f"{ours / between:.2f}" if between else ""
        used = "yes" if settings["kernel"] else "no"
        table.append(
            [NAMES[cell], settings["precision"], used, f"{goal:.1f}", f"{ours:.0f} s", beside, ratio, finer]
        )
    measured = describe((NAMES[name], stored["machines"][name]) for name in races)
    return {("training.md", "race"): f"{make_table(table)}\n\n{measured}"}


def draw(histories: dict[str, History]) -> None:
    """Write the figure "perplexity against minutes" of the documentation."""
    figure = Figure(figsize=(6.5, 4.0), layout="constrained")
    axes = figure.subplots()
    for name, colour in zip(NAMES, COLOURS, strict=False):
        entries = histories.get(name, [])
        if not entries:
            continue
        minutes, valid = [entry["seconds"] / 60 for entry in entries], [entry["valid"] for entry in entries]
        axes.plot(minutes, valid, color=colour, marker="o", label=NAMES[name])
    axes.set(xlabel="minutes of training", ylabel="valid perplexity", yscale="log")
    ticks = [100, 120, 150, 200, 250]
    axes.set_yticks(ticks, labels=[str(tick) for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_title("Penn Treebank, an epoch each mark")
    axes.legend()
    path = Path(__file__).parents[1] / "docs" / "images" / "perplexity-against-minutes.svg"
    path.write_text(to_svg(figure), encoding="utf-8")


def goal_of(entries: History) -> float:
    return min(entry["valid"] for entry in entries)


def seconds_to(goal: float, entries: History) -> float | None:
    return next((entry["seconds"] for entry in entries if entry["valid"] <= goal), None)


def seconds_between(goal: float, entries: History) -> float | None:
    """Return when the goal was reached, if the logarithm of perplexity falls evenly between the ends of epochs."""
    for before, after in pairwise(entries):
        if after["valid"] <= goal < before["valid"]:
            share = math.log(before["valid"] / goal) / math.log(before["valid"] / after["valid"])
            return before["seconds"] + share * (after["seconds"] - before["seconds"])
    return None


def race(racers: list[str], races: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> None:
    """Run some of the racers and put what they did among ``races``, the usual loop last."""
    for cell in (cell for cell in CELLS if cell in racers):
        kernel.accelerate(arguments.kernel)
        settings = {key: getattr(arguments, key) for key in ("epochs", "precision", "kernel")}
        history = race_tslm(cell, arguments.epochs, arguments.precision)
        races[cell] = {"settings": settings, "history": history}
    if "pytorch" in racers:
        goal = min(goal_of(found["history"]) for name, found in races.items() if name != "pytorch")
        history = race_pytorch(open_corpus("ptb"), goal, arguments.limit)
        races["pytorch"] = {"settings": {"goal": goal}, "history": history}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cells",
        nargs="+",
        choices=(*CELLS, "pytorch"),
        default=[*CELLS, "pytorch"],
        metavar="CELL",
        help="who races, of lstm, tslm, gated and pytorch, the usual loop; others stay as they were raced before",
    )
    parser.add_argument("--epochs", type=int, default=4, help="epochs of tslm's own schedule")
    parser.add_argument(
        "--limit", type=float, default=1200, help="seconds after which the PyTorch loop gives up"
    )
    parser.add_argument(
        "--precision", default="bfloat16", choices=("single", "bfloat16"), help="of tslm's products"
    )
    parser.add_argument("--kernel", action="store_true", help="let tslm's recurrences use the accelerator")
    parser.add_argument("--show", action="store_true", help="write the documentation from the last race only")
    arguments = parser.parse_args()
    print(machine())
    found = read_results("race")["races"] if RESULTS.exists() else {}
    if not arguments.show:
        race(arguments.cells, found, arguments)
        write_results("race", {"races": found}, measured=arguments.cells)
    stored = read_results("race")
    if len({json.dumps(known | {"load": None}) for known in stored["machines"].values()}) > 1:
        print(
            "not all of them raced on the same machine with the same threads: no ratio is to be made of them"
        )
    elif "pytorch" in found:
        blocks = make_blocks(stored)
        print(*blocks.values())
        write_blocks(blocks)
        draw({name: part["history"] for name, part in found.items()})
