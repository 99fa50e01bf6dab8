"""Faults that are injected: bits flipped, processes killed, disks filled. All of it bounded and seeded."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tslm.cli import main
from tslm.corpus.sources import open_corpus
from tslm.runs.recipe import read_recipe

TEXT_LINES = 120

RECIPE = """
[corpus]
name = "small"
path = ["{text}"]
valid_fraction = 0.1
test_fraction = 0.1

[model]
kind = "recurrent"
rank = 6
embedding = 6

[train]
epochs = 2
batch = 4
window = 8
learning_rate = 0.01
threads = 1
checkpoint_steps = 7
metric_steps = 5
"""


def write_recipe(folder: Path) -> Path:
    """Write a text and a recipe that trains in a second."""
    choose = random.Random(3).choice
    lines = [
        f"the {choose(('cat', 'dog', 'man'))} {choose(('saw', 'ran to', 'liked'))} {choose(('a', 'the'))} tree"
        for _ in range(TEXT_LINES)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    (folder / "recipe.toml").write_text(RECIPE.format(text=folder / "text.txt"))
    return folder / "recipe.toml"


def flip_bit(path: Path, choose: random.Random) -> None:
    """Change one bit of a file; its length stays the same."""
    data = bytearray(path.read_bytes())
    place = choose.randrange(len(data))
    data[place] ^= 1 << choose.randrange(8)
    path.write_bytes(data)


def numbers_of(folder: Path) -> dict[str, Any]:
    """Return what a run must repeat to the last bit."""
    summary = json.loads((folder / "summary.json").read_text())
    return {
        key: summary[key] for key in ("valid", "test", "parameters", "steps", "best_epoch") if key in summary
    }


TALLY = pytest.StashKey[Counter[tuple[str, str]]]()


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Count what was injected and what came of it; the table stands at the end of the test run."""
    counts = request.config.stash.setdefault(TALLY, Counter())

    def count(injected: str, outcome: str) -> None:
        counts[injected, outcome] += 1

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    counts = config.stash.get(TALLY, Counter())
    if counts:
        terminalreporter.section("faults injected")
    for (injected, outcome), number in sorted(counts.items()):
        terminalreporter.write_line(f"{number:5}  {injected}: {outcome}")


@pytest.fixture
def evaluate(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], str | None]:
    """Evaluate a run as the command line does: its JSON, or None where it was refused in one line."""

    def run(folder: Path) -> str | None:
        capsys.readouterr()
        code = main(["eval", str(folder), "--json"])
        told = capsys.readouterr()
        if code == 0:
            return told.out
        assert code == 2
        assert told.err.startswith("tslm: ")
        assert len(told.err.splitlines()) == 1
        return None

    return run


# A server that has the libraries loaded and forks: a child begins in milliseconds, and has no threads but its own.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["torch._dynamo", "tslm.cli.train", "tslm.runs.train", "tslm.interop.arpa", "tslm.training.trainer"]
)


def run_child(work: Callable[..., None], *arguments: Any, timeout: float = 60) -> int:
    """Run a function in a process of its own; return how that ended: 0, 1 for an exception, -9 when it was killed."""
    child = start_child(work, *arguments)
    child.join(timeout)
    assert child.exitcode is not None, "it did not end"
    return child.exitcode


def start_child(work: Callable[..., None], *arguments: Any) -> Any:
    """Start a function in a process of its own."""
    child = _context.Process(target=_enter, args=(dict(os.environ), work, *arguments))
    child.start()
    return child


def _enter(environment: dict[str, str], work: Callable[..., None], *arguments: Any) -> None:
    os.environ.update(environment)
    work(*arguments)


WRITES = ("fsync", "replace", "rename")
"""The calls between which a file comes to be: a death at any of them is a death at a moment that matters."""


def die_at(call: int) -> Counter[str]:
    """Let this process be killed, as by ``kill -9``, at its nth call that writes; return the calls so far."""
    calls: Counter[str] = Counter()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            if calls.total() == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return wrapped

    for name in WRITES:
        setattr(os, name, counted(name, getattr(os, name)))
    return calls


def seeded_points(count: Path, number: int, seed: int) -> list[int]:
    """Choose calls to die at, given the file in which a run that was left alone has counted its own."""
    # Not every run writes as much: the hash of a text is noted in the cache once the file has settled.
    return sorted(random.Random(seed).sample(range(1, int(count.read_text()) - 3), number))


def train_counted(recipe: Path, folder: Path, call: int = 0, count: Path | None = None) -> None:
    """Train; die at a call that writes, or leave in a file how many there were."""
    from tslm.runs.train import train

    calls = die_at(call)
    train(recipe, folder)
    if count is not None:
        count.write_text(str(calls.total()))


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory, cache_folder: Path) -> Path:
    """A folder with a recipe, its ``run`` that nothing happened to, and the ``count`` of its writes."""
    folder = tmp_path_factory.mktemp("unbroken")
    recipe = write_recipe(folder)
    open_corpus(read_recipe(recipe).corpus)  # or its writes would be counted too
    assert run_child(train_counted, recipe, folder / "run", 0, folder / "count") == 0
    return folder
