"""``kill -9`` at seeded points of everything that writes: the same command goes on and ends with the same numbers."""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.faults.conftest import die_at, numbers_of, run_child, start_child, write_recipe
from tslm.cli import main
from tslm.corpus.sources import open_corpus
from tslm.evaluation import perplexity
from tslm.runs import train as train_module
from tslm.runs.run import load


def train(recipe: Path, folder: Path, call: int = 0) -> None:
    die_at(call)
    train_module.train(recipe, folder)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    recipe = write_recipe(folder)
    assert run_child(train, recipe, folder / "run") == 0
    return folder


def test_training_killed_at_any_write_ends_with_the_same_numbers(unbroken: Path, tmp_path: Path) -> None:
    expected = numbers_of(unbroken / "run")
    kills = 0
    for call in sorted(random.Random(1).sample(range(3, 120), 6)):
        folder = tmp_path / str(call)
        code = run_child(train, unbroken / "recipe.toml", folder, call)
        kills += code == -signal.SIGKILL
        if code == -signal.SIGKILL:
            (folder / f".model.safetensors.{2**22 + 1}.tmp").write_bytes(b"half")  # of a process long gone
            assert run_child(train, unbroken / "recipe.toml", folder) == 0
        assert numbers_of(folder) == expected
        assert not list(folder.glob(".*.tmp"))
        assert (folder / "model.safetensors").read_bytes() == (unbroken / "run" / "model.safetensors").read_bytes()
    assert kills >= 4


def measure(recipe: Path, folder: Path, die_on: str, counts: Path) -> None:
    """Train to the end; be killed when the measuring of a split begins; note what is measured."""
    real = train_module.measure

    def counted(model, corpus, recipe, splits, *more):
        with counts.open("a") as file:
            file.write(f"{splits[0]}\n")
        if splits[0] == die_on:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(model, corpus, recipe, splits, *more)

    train_module.measure = counted
    train_module.train(recipe, folder)


def test_the_final_measuring_goes_on_where_it_was(unbroken: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    recipe = unbroken / "recipe.toml"
    assert run_child(measure, recipe, tmp_path / "run", "test", counts) == -signal.SIGKILL
    assert run_child(measure, recipe, tmp_path / "run", "nothing", counts) == 0
    # Validation was not measured twice, and test was read to its end once.
    assert counts.read_text().split() == ["valid", "test", "test"]
    assert numbers_of(tmp_path / "run") == numbers_of(unbroken / "run")
    assert not (tmp_path / "run" / "measured.json").exists()


def test_what_was_measured_of_another_model_is_not_taken(unbroken: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    folder = tmp_path / "run"
    assert run_child(measure, unbroken / "recipe.toml", folder, "test", counts) == -signal.SIGKILL
    measured = folder / "measured.json"
    measured.write_text(measured.read_text().replace("perplexity", "perplexitY", 1))
    assert run_child(measure, unbroken / "recipe.toml", folder, "nothing", counts) == 0
    assert counts.read_text().split() == ["valid", "test", "valid", "test"]
    assert numbers_of(folder) == numbers_of(unbroken / "run")


def import_arpa(path: Path, folder: Path, call: int) -> None:
    from tslm.interop.arpa import import_run

    die_at(call)
    import_run(path, folder)


def test_an_arpa_import_killed_at_any_write_is_done_once_more(runs, tmp_path: Path) -> None:
    arpa = tmp_path / "kn.arpa"
    assert main(["arpa", "export", str(runs["kn"]), str(arpa)]) == 0
    kills = 0
    for call in sorted(random.Random(2).sample(range(1, 24), 5)):
        folder = tmp_path / str(call)
        killed = run_child(import_arpa, arpa, folder, call) == -signal.SIGKILL
        kills += killed
        if killed and not (folder / "summary.json").exists():
            assert run_child(import_arpa, arpa, folder, 0) == 0
        assert load(folder).table.trie.node_count == load(runs["kn"]).table.trie.node_count
        assert not list(folder.glob(".*.tmp"))
    assert kills >= 3


def prepare(text: Path, call: int, of: str) -> None:
    die_at(call, of)
    open_corpus(str(text))


def test_preparing_a_corpus_killed_anywhere_is_done_once_more(runs, tmp_path: Path, monkeypatch) -> None:
    text = runs["kn"].parent / "text.txt"
    expected = open_corpus(str(text))
    kills = 0
    for number, (of, call) in enumerate([("fsync", 1), ("rename", 1), ("replace", 1), ("stat", 30), ("open", 2)]):
        monkeypatch.setenv("TSLM_CACHE", str(tmp_path / str(number)))
        kills += run_child(prepare, text, call, of) == -signal.SIGKILL
        found = open_corpus(str(text))
        assert found.fingerprint == expected.fingerprint
        assert np.array_equal(found.splits["train"], expected.splits["train"])
        home = tmp_path / str(number) / "corpora"
        assert not [path for path in home.iterdir() if path.name.startswith(".")]
    assert kills >= 2


def test_of_two_trainers_on_one_folder_one_trains(unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    children = [start_child(train, unbroken / "recipe.toml", folder) for _ in range(2)]
    for child in children:
        child.join(60)
    # The other was refused, or came when all was done and read the summary.
    assert sorted(child.exitcode for child in children) in ([0, 0], [0, 1])
    assert numbers_of(folder) == numbers_of(unbroken / "run")


def vanish(recipe: Path, folder: Path, told: Path) -> None:
    """Train, with the folder removed in the middle of it."""
    from tslm.errors import TslmError
    from tslm.training.trainer import Trainer

    step = Trainer._step

    def removing(self, *arguments):
        if self.position.step == 9:
            shutil.rmtree(folder)
        return step(self, *arguments)

    Trainer._step = removing
    try:
        train_module.train(recipe, folder)
    except TslmError as error:
        told.write_text(str(error))


def test_a_folder_removed_while_it_is_trained_in_ends_the_run_in_one_line(unbroken: Path, tmp_path: Path) -> None:
    assert run_child(vanish, unbroken / "recipe.toml", tmp_path / "run", tmp_path / "told") == 0
    assert "cannot write" in (tmp_path / "told").read_text()
    assert run_child(train, unbroken / "recipe.toml", tmp_path / "run") == 0
    assert numbers_of(tmp_path / "run") == numbers_of(unbroken / "run")


def test_the_measuring_loop_is_the_one_that_is_counted() -> None:
    assert train_module.evaluate is perplexity.evaluate
