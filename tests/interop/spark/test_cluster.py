"""The cluster's model is the one that a single machine estimates, to the last bit."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.interop.spark.conftest import QUICK

import tslm
from tslm.corpus.sources import CorpusConfig, open_corpus
from tslm.models.ngram.smoothed import NgramConfig, NgramModel

SOURCE = Path(__file__).resolve().parents[3] / "src"
CONF = [
    *("--conf", "spark.executor.memory=512m"),
    *("--conf", "spark.driver.host=127.0.0.1"),
    *("--conf", "spark.ui.enabled=false"),
    # The text is small: what Spark would compile for it takes longer than the work itself.
    *("--conf", "spark.sql.codegen.wholeStage=false"),
    *("--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
]

pytestmark = pytest.mark.timeout(900)


def run_tslm(
    *commands: Sequence[str | Path], refused: Sequence[str | Path] | None = None, saying: str = ""
) -> list[dict[str, Any]]:
    """Run commands in one process of their own, with one Java machine for all; return what each printed.

    One more may be refused, with a line that has these words.
    """
    arguments = [[*map(str, command), "--json"] for command in commands]
    program = (
        f"from tslm.cli import main\nfor command in {arguments!r}:\n    assert main(command) == 0, command\n"
    )
    if refused is not None:
        program += f"assert main({[*map(str, refused)]!r}) == 2"
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=850,
        env={
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JDK_JAVA_OPTIONS": QUICK,
        },
    )
    assert result.returncode == 0, result.stderr
    assert saying in result.stderr
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def make_text(lines: int, seed: int) -> str:
    """A text with empty lines, lines shorter than the order, capitals, a marker within a line, a carriage return."""
    draw = random.Random(seed)
    words = [f"{'W' if number % 3 else 'w'}é{number}" for number in range(300)]

    def line() -> str:
        length = draw.choice([0, 1, 2, 3, 5, 8, 13])
        return " ".join(words[min(int(draw.paretovariate(0.8)) - 1, 299)] for _ in range(length))

    text = [line() for _ in range(lines)]
    return "\n".join([*text, "wé0 <eos> wé0 Wé1", "wé0 Wé2\r", *text[:50]]) + "\n"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spark")
    (folder / "parts").mkdir()
    parts = [make_text(400, seed) for seed in (1, 2)]
    for number, part in enumerate(parts):
        (folder / "parts" / f"part-{number}.txt").write_text(part, newline="")
        (folder / "parts" / f"part-{number}.gz").write_bytes(gzip.compress(part.encode()))
    (folder / "whole").mkdir()
    for split, text in (("train", "".join(parts)), ("valid", parts[0]), ("test", parts[1])):
        (folder / "whole" / f"{split}.txt").write_text(text, newline="")
    return folder


def estimate_here(folder: Path, corpus: dict[str, Any], model: dict[str, Any]) -> NgramModel:
    config = CorpusConfig(path=(str(folder / "whole"),), **corpus)
    return NgramModel.fit(NgramConfig(**model), open_corpus(config))


def assert_same(found: Any, expected: NgramModel) -> None:
    assert found.vocabulary == expected.vocabulary
    assert found.rule == expected.rule
    for name in ("levels", "keys", "suffixes", "first_children"):
        np.testing.assert_array_equal(
            getattr(found.table.trie, name), getattr(expected.table.trie, name), name
        )
    np.testing.assert_array_equal(found.table.log_probability, expected.table.log_probability)
    np.testing.assert_array_equal(found.table.log_weight, expected.table.log_weight)


def test_a_cluster_counts_and_scores_as_one_machine_does(cluster: str, folder: Path) -> None:
    counts, run, scores = folder / "counts", folder / "run", folder / "scores"
    pattern = folder / "parts" / "part-*.txt"
    on_cluster = ("--engine", "spark", "--master", cluster, *CONF)
    options = ("--order", "4", "--tokeniser", "words", "--lower", "--min-count", "2", "--prune", "0,0,1")
    counted, summary, scored = run_tslm(
        ("count", *on_cluster, "--text", pattern, *options, "--partitions", "2", "--out", counts),
        ("train", "--counts", counts, "--out", run),
        ("score", run, pattern, *on_cluster, "--out", scores),
        refused=("count", *on_cluster, "--text", folder / "missing-*.txt", "--out", folder / "none"),
        saying="there is no text at",
    )
    expected = estimate_here(
        folder, {"tokeniser": "words", "lower": True, "min_count": 2}, {"order": 4, "prune": (0, 0, 1)}
    )
    assert_same(tslm.load(run), expected)
    assert counted["tokens"] == summary["corpus"]["train_tokens"]

    here = tslm.score(run, folder / "whole" / "train.txt").total
    total = scored["total"]
    assert (total["tokens"], total["lines"], total["unknown"]) == (here.tokens, here.lines, here.unknown)
    assert total["nats"] == pytest.approx(here.nats, rel=1e-12)


def test_one_discount_few_words_and_the_words_of_a_run(cluster: str, folder: Path) -> None:
    pattern, run, like = folder / "parts" / "part-*.gz", folder / "few", folder / "like"
    job = ("count", "--engine", "spark", "--master", cluster, *CONF, "--text", pattern, "--partitions", "2")
    single, few = ("--smoothing", "kneser-ney-single"), ("--max-vocabulary", "60")
    run_tslm(
        (*job, "--order", "5", *single, *few, "--out", folder / "counts-few"),
        ("train", "--counts", folder / "counts-few", "--out", run),
        (*job, "--order", "2", "--like", run, "--out", folder / "counts-like"),
        ("train", "--counts", folder / "counts-like", "--out", like),
    )
    words = {"max_vocabulary": 60}
    assert_same(tslm.load(run), estimate_here(folder, words, {"order": 5, "smoothing": "kneser-ney-single"}))
    assert_same(tslm.load(like), estimate_here(folder, words, {"order": 2}))
    assert len(tslm.load(like).vocabulary) == 60
