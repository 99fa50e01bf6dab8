"""Amplitudes or probabilities: the recursion of Eq. 19 fitted to an artificial language in both readings.

Windows of four words of a text with known structure; perplexity per word on windows of its test text. The best of three
starts by the likelihood of the training windows counts.

    python benchmarks/born.py          # a few minutes
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from report import write_results
from tslm.corpus.synthetic import AutomatonConfig, make_corpus
from tslm.inference.quantum import read_corpus
from tslm.tables import markdown_table
from tslm.tensors.born import fit_sequences

RESULTS = Path(__file__).parent / "results" / "born.json"
READINGS = {
    "entries": {"reading": "entries"},
    "real amplitudes": {"reading": "born"},
    "complex amplitudes": {"reading": "born", "is_complex": True},
}
WORDS = 4


def measure() -> dict[str, Any]:
    config = AutomatonConfig(states=6, words=8, choices=3, line_length=8.0, seed=3)
    corpus = make_corpus(config, tokens=30_000)
    size = len(corpus.vocabulary)
    train, test = (read_corpus(corpus.splits[split], WORDS, size=size) for split in ("train", "test"))
    rows: list[dict[str, Any]] = []
    for rank in (2, 4, 8, 16):
        for name, options in READINGS.items():
            fitted = fit_sequences(
                train.windows_SN,
                size=size,
                rank=rank,
                weights_B=train.probabilities_S,
                steps=300,
                restarts=3,
                **options,
            )
            rows.append(
                {
                    "rank": rank,
                    "reading": name,
                    "parameters": fitted.parameter_count,
                    "train": fitted.perplexity(train.windows_SN, train.probabilities_S),
                    "test": fitted.perplexity(test.windows_SN, test.probabilities_S),
                }
            )
            print(rows[-1], flush=True)
    return {
        "words": WORDS,
        "vocabulary": size,
        "rows": rows,
        "test_windows": math.exp(test.entropy() / WORDS),
    }


def make_table(results: dict[str, Any]) -> str:
    """Return the table of the page ``docs/quantum.md``."""
    cells = {(row["rank"], row["reading"]): row for row in results["rows"]}
    ranks = sorted({rank for rank, _ in cells})
    rows = [
        [
            str(rank),
            *[f"{cells[rank, name]['test']:.2f} ({cells[rank, name]['parameters']})" for name in READINGS],
        ]
        for rank in ranks
    ]
    return markdown_table(["rank", *READINGS], rows)


def main() -> None:
    torch.set_num_threads(1)
    path = write_results("born", measure())
    print(make_table(json.loads(path.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
