from __future__ import annotations

from pathlib import Path

import pytest

from tslm.corpus.synthetic import AutomatonConfig, write_corpus
from tslm.training.watcher import Watcher

RECIPE = """\
[corpus]
name = "automaton"
path = ["{text}"]
min_count = 1

[model]
kind = "recurrent"
rank = 12
embedding = 12
dropout_input = 0.1
dropout_words = 0.05
dropout_output = 0.1

[model.cell]
kind = "tslm"
weight_drop = 0.1
norm_limit = 1.2

[train]
epochs = 2
batch = 8
window = 10
learning_rate = 0.01
checkpoint_steps = 5
metric_steps = 4
average = 0.9
threads = 1

[objective]
frequent = 4
sampled = 4
"""


@pytest.fixture(scope="session")
def recipe_path(tmp_path_factory) -> Path:
    """A recipe for a small model on a text with a known answer: 2 epochs of about 38 steps."""
    folder = tmp_path_factory.mktemp("automaton")
    write_corpus(AutomatonConfig(states=4, words=12, choices=3, line_length=8.0, seed=1), 3000, folder)
    path = folder / "small.toml"
    path.write_text(RECIPE.format(text=folder))
    return path


class Told(Watcher):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def told() -> Told:
    """A watcher that keeps what it is told."""
    return Told()
