"""Scoring speed: tokens per second of a TSLM of 256 × 1 over 10,000 words, with the full softmax.

    python benchmarks/score.py                       # a fresh model of that shape and generated text
    python benchmarks/score.py --run runs/ptb-tslm --text ptb.test.txt
    python benchmarks/score.py --memory              # also the peak memory on 10 MB and on 100 MB of text

The limit is the output product alone (batch × 256 by 256 × 10,000), measured in the same process. The share of it that
is reached depends less on how busy the machine is than the rate does.
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
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import tslm
from tslm.corpus.vocabulary import EOS, UNK, Vocabulary
from tslm.inference.inputs import read_lines
from tslm.inference.score import score_lines
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.model import RecurrentModel

RANK, WORDS = 256, 10_000
RESULTS = Path(__file__).parent / "results" / "score.json"


def generate_lines(tokens: int, vocabulary: Vocabulary, seed: int = 0) -> list[str]:
    """Lines of about 21 words, words by Zipf's law."""
    generator = np.random.default_rng(seed)
    shares = 1 / np.arange(1, len(vocabulary) + 1)
    lines, count = [], 0
    while count < tokens:
        length = int(np.clip(generator.normal(21, 10), 1, 80))
        ids = generator.choice(len(vocabulary), length, p=shares / shares.sum())
        lines.append(" ".join(word for word in vocabulary.decode(ids) if word != EOS))
        count += length + 1
    return lines


def fresh_model() -> RecurrentModel:
    vocabulary = Vocabulary((EOS, UNK, *(f"w{number}" for number in range(WORDS - 2))))
    return RecurrentModel(RecurrentConfig(rank=RANK, embedding=RANK), vocabulary).eval()


def best_of(repeats: int, work) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def product_rate(model, rows: int = 512) -> float:
    """Rows per second of the output product alone."""
    weight_VM = model.output_VM.detach()
    latents = torch.randn(rows, weight_VM.shape[1])
    buffer = torch.empty(rows, len(weight_VM))
    with torch.inference_mode():
        return rows / best_of(15, lambda: torch.mm(latents, weight_VM.t(), out=buffer))


def measure_memory(megabytes: int) -> float:
    """Peak memory in MB of a process that scores a file of this size with a small model."""
    command = [sys.executable, __file__, "--child", str(megabytes)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["peak_mb"]


def child(megabytes: int) -> None:
    """Score a generated file with a model that costs next to nothing, so that the reading is what is measured."""
    from tslm.models.ngram.unigram import Unigram

    vocabulary = Vocabulary((EOS, UNK, *(f"w{number}" for number in range(WORDS - 2))))
    model = Unigram(vocabulary, np.full(WORDS, -np.log(WORDS)))
    text = "\n".join(generate_lines(100_000, vocabulary)) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        with path.open("w") as file:
            while file.tell() < megabytes * 1_000_000:
                file.write(text)
        for _ in score_lines(model, read_lines([path])):
            pass
    print(json.dumps({"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", help="a run folder; without it a fresh model")
    parser.add_argument("--text", help="a text file; without it generated text")
    parser.add_argument("--tokens", type=int, default=60_000, help="of generated text")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="also measure the peak memory")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    torch.set_num_threads(arguments.threads)
    model = tslm.load(arguments.run) if arguments.run else fresh_model()
    lines = (
        list(read_lines([arguments.text]))
        if arguments.text
        else generate_lines(arguments.tokens, model.vocabulary)
    )
    tokens = sum(len(line.split()) + 1 for line in lines)
    seconds = best_of(arguments.repeats, lambda: sum(1 for _ in score_lines(model, lines)))
    limit = product_rate(model) if isinstance(model, RecurrentModel) else None
    rate = tokens / seconds
    results = {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "python": platform.python_version(),
        },
        "settings": {
            "threads": arguments.threads,
            "tokens": tokens,
            "words": len(model.vocabulary),
            "kind": model.kind,
        },
        "tokens_per_second": rate,
        "product_limit": limit,
        "share_of_limit": rate / limit if limit else None,
    }
    table = Table("what", "value", title="scoring", title_justify="left")
    table.add_row("tokens per second", f"{rate:,.0f}")
    if limit:
        table.add_row("limit: the output product alone", f"{limit:,.0f}")
        table.add_row("share of the limit", f"{rate / limit:.0%}")
    if arguments.memory:
        results["peak_mb"] = {size: measure_memory(size) for size in (10, 100)}
        for size, peak in results["peak_mb"].items():
            table.add_row(f"peak memory on {size} MB of text", f"{peak:,.0f} MB")
    Console().print(table)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
