"""Wall time to the same validation perplexity on PTB: tslm's engine against the usual PyTorch loop.

The other side is written as users of PyTorch's word-language-model example write it: ``nn.Embedding``, ``nn.LSTM``,
``nn.Linear``, full cross entropy, plain SGD from a learning rate of 20 that is divided by four when validation stops
improving, gradients clipped at 0.25, batch 20, window 35. Same sizes (256 × 1).

    TSLM_DATA=… python benchmarks/race.py --goal 145
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from report import machine, write_results
from tslm.corpus.sources import Corpus, open_corpus
from tslm.training.checkpoint import Position
from tslm.training.progress import Watcher
from tslm.training.recipe import make_recipe
from tslm.training.run import train

RECIPE = Path(__file__).parents[1] / "recipes" / "ptb" / "tslm.toml"


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


def race_pytorch(corpus: Corpus, goal: float, limit: float) -> list[dict[str, float]]:
    torch.manual_seed(1)
    model = WordLanguageModel(len(corpus.vocabulary), 256, 0.3)
    data, valid = columns(corpus.splits["train"], 20), columns(corpus.splits["valid"], 10)
    criterion, rate, best, seconds = nn.CrossEntropyLoss(), 20.0, math.inf, 0.0
    history: list[dict[str, float]] = []
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


class History(Watcher):
    def __init__(self) -> None:
        self.entries: list[dict[str, float]] = []

    def epoch(self, position: Position, epochs: int, train: float, valid: float) -> None:
        self.entries.append({"seconds": position.seconds, "valid": valid})
        print(f"tslm: {position.seconds:.0f} s, valid {valid:.1f}", flush=True)


def race_tslm(epochs: int, cell: str) -> list[dict[str, float]]:
    import tomllib

    tables = tomllib.loads(RECIPE.read_text(encoding="utf-8"))
    tables["model"]["cell"] = cell
    tables["train"] |= {"epochs": epochs, "test": False}
    watcher = History()
    with tempfile.TemporaryDirectory() as folder:
        train(make_recipe(tables), Path(folder) / "run", watcher=watcher)
    return watcher.entries


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--goal", type=float, default=145.0, help="the validation perplexity to reach")
    parser.add_argument("--epochs", type=int, default=4, help="epochs of tslm's own schedule")
    parser.add_argument(
        "--limit", type=float, default=1200, help="seconds after which the PyTorch loop gives up"
    )
    arguments = parser.parse_args()
    print(machine())
    corpus = open_corpus("ptb")
    ours = race_tslm(arguments.epochs, "tslm")
    theirs = race_pytorch(corpus, arguments.goal, arguments.limit)
    reached = {
        name: next((entry["seconds"] for entry in entries if entry["valid"] <= arguments.goal), None)
        for name, entries in (("tslm", ours), ("pytorch", theirs))
    }
    ratio = reached["tslm"] / reached["pytorch"] if reached["tslm"] and reached["pytorch"] else None
    print(f"seconds to valid {arguments.goal}: {reached}, ratio {ratio}")
    write_results(
        "race", {"goal": arguments.goal, "tslm": ours, "pytorch": theirs, "reached": reached, "ratio": ratio}
    )
