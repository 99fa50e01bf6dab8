"""``kill -9`` at seeded points of everything that writes: the same command goes on and ends with the same numbers."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from tests.faults.conftest import die_at, numbers_of, run_child, seeded_points, start_child, train_counted

from tslm.cli import main
from tslm.corpus.sources import open_corpus
from tslm.runs import train as train_module
from tslm.runs.run import load

KILLS = 4
KILLED = -signal.SIGKILL


def test_training_killed_at_any_write_ends_with_the_same_numbers(
    unbroken: Path, tmp_path: Path, tally
) -> None:
    expected = numbers_of(unbroken / "run")
    for call in seeded_points(unbroken / "count", KILLS, seed=1):
        folder = tmp_path / str(call)
        assert run_child(train_counted, unbroken / "recipe.toml", folder, call) == KILLED
        if folder.exists():
            (folder / f".model.safetensors.{2**22 + 1}.tmp").write_bytes(b"half")  # of a process long gone
        assert run_child(train_counted, unbroken / "recipe.toml", folder) == 0
        assert numbers_of(folder) == expected
        assert not list(folder.glob(".*.tmp"))
        assert (folder / "model.safetensors").read_bytes() == (
            unbroken / "run" / "model.safetensors"
        ).read_bytes()
        tally("kill -9 in training", "gone on, the same numbers and weights")


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


def test_the_final_measuring_goes_on_where_it_was(unbroken: Path, tmp_path: Path, tally) -> None:
    counts = tmp_path / "counts"
    recipe = unbroken / "recipe.toml"
    assert run_child(measure, recipe, tmp_path / "run", "valid", counts) == KILLED
    assert run_child(measure, recipe, tmp_path / "run", "test", counts) == KILLED
    assert run_child(measure, recipe, tmp_path / "run", "nothing", counts) == 0
    # Validation was measured to its end once, and so was test.
    assert counts.read_text().split() == ["valid", "valid", "test", "test"]
    assert numbers_of(tmp_path / "run") == numbers_of(unbroken / "run")
    assert not (tmp_path / "run" / "measured.json").exists()
    for _ in range(2):
        tally("kill -9 in the final measuring", "gone on, nothing measured twice")


def test_what_was_measured_and_changed_since_is_measured_again(unbroken: Path, tmp_path: Path, tally) -> None:
    counts = tmp_path / "counts"
    folder = tmp_path / "run"
    assert run_child(measure, unbroken / "recipe.toml", folder, "test", counts) == KILLED
    measured = folder / "measured.json"
    measured.write_text(measured.read_text().replace("1", "2", 1))
    assert run_child(measure, unbroken / "recipe.toml", folder, "nothing", counts) == 0
    assert counts.read_text().split() == ["valid", "test", "valid", "test"]
    assert numbers_of(folder) == numbers_of(unbroken / "run")
    tally("measured.json changed", "measured again, the same numbers")


def import_arpa(path: Path, folder: Path, call: int, count: Path | None = None) -> None:
    from tslm.interop.arpa import import_run

    calls = die_at(call)
    import_run(path, folder)
    if count is not None:
        count.write_text(str(calls.total()))


def test_an_arpa_import_killed_at_any_write_is_done_once_more(runs, tmp_path: Path, tally) -> None:
    arpa = tmp_path / "kn.arpa"
    assert main(["arpa", "export", str(runs["kn"]), str(arpa)]) == 0
    assert run_child(import_arpa, arpa, tmp_path / "unbroken", 0, tmp_path / "count") == 0
    expected = (tmp_path / "unbroken" / "model.safetensors").read_bytes()
    for call in seeded_points(tmp_path / "count", KILLS, seed=2):
        folder = tmp_path / str(call)
        assert run_child(import_arpa, arpa, folder, call) == KILLED
        if not (folder / "summary.json").exists():
            assert run_child(import_arpa, arpa, folder, 0) == 0
        assert load(folder).kind == "backoff"
        assert (folder / "model.safetensors").read_bytes() == expected
        tally("kill -9 in an ARPA import", "done once more, the same table")


def prepare(text: Path, call: int, count: Path | None = None) -> None:
    calls = die_at(call)
    open_corpus(str(text))
    if count is not None:
        count.write_text(str(calls.total()))


def test_preparing_a_corpus_killed_at_any_write_is_done_once_more(
    runs, tmp_path: Path, monkeypatch, tally
) -> None:
    text = runs["kn"].parent / "text.txt"
    expected = open_corpus(str(text))
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "unbroken"))
    assert run_child(prepare, text, 0, tmp_path / "count") == 0
    for call in seeded_points(tmp_path / "count", KILLS, seed=3):
        monkeypatch.setenv("TSLM_CACHE", str(tmp_path / str(call)))
        assert run_child(prepare, text, call) == KILLED
        found = open_corpus(str(text))
        assert found.fingerprint == expected.fingerprint
        assert all(np.array_equal(found.splits[split], expected.splits[split]) for split in expected.splits)
        home = tmp_path / str(call) / "corpora"
        assert not [path for path in home.iterdir() if path.name.startswith(".")]
        tally("kill -9 in corpus preparation", "done once more, the same corpus")


def train_and_wait(recipe: Path, folder: Path, waiting: Path) -> None:
    """Train, and stand still in the middle of it until the file ``waiting`` is gone."""
    from tslm.training.trainer import Trainer

    step = Trainer._step

    def slowly(self, *arguments):
        if self.position.step == 9:
            waiting.touch()
            while waiting.exists():
                time.sleep(0.01)
        return step(self, *arguments)

    Trainer._step = slowly
    train_module.train(recipe, folder)


def train_refused(recipe: Path, folder: Path) -> None:
    from tslm.errors import RunError

    try:
        train_module.train(recipe, folder)
    except RunError as error:
        raise SystemExit(2 if "in use by another process" in str(error) else 3) from error


def test_of_two_trainers_on_one_folder_one_trains(unbroken: Path, tmp_path: Path, tally) -> None:
    folder, waiting = tmp_path / "run", tmp_path / "waiting"
    first = start_child(train_and_wait, unbroken / "recipe.toml", folder, waiting)
    while not waiting.exists():
        assert first.is_alive()
        time.sleep(0.01)
    for _ in range(2):
        assert run_child(train_refused, unbroken / "recipe.toml", folder) == 2
        tally("a second trainer in the same folder", "refused in one line, the first unharmed")
    waiting.unlink()
    first.join(60)
    assert first.exitcode == 0
    assert numbers_of(folder) == numbers_of(unbroken / "run")


def vanish(recipe: Path, folder: Path, told: Path, at: int) -> None:
    """Train, with the folder removed in the middle of it."""
    from tslm.errors import TslmError
    from tslm.training.trainer import Trainer

    step = Trainer._step

    def removing(self, *arguments):
        if self.position.step == at:
            shutil.rmtree(folder)
        return step(self, *arguments)

    Trainer._step = removing
    try:
        train_module.train(recipe, folder)
    except TslmError as error:
        told.write_text(str(error))


@pytest.mark.parametrize("at", [4, 6])  # a metric, or a checkpoint, comes next
def test_a_folder_removed_while_it_is_trained_in_ends_the_run_in_one_line(
    unbroken: Path, tmp_path: Path, at: int, tally
) -> None:
    assert run_child(vanish, unbroken / "recipe.toml", tmp_path / "run", tmp_path / "told", at) == 0
    assert "cannot write" in (tmp_path / "told").read_text()
    assert not (tmp_path / "run").exists()
    assert run_child(train_counted, unbroken / "recipe.toml", tmp_path / "run") == 0
    assert numbers_of(tmp_path / "run") == numbers_of(unbroken / "run")
    tally("folder removed while trained in", "ended in one line; begun anew, the same numbers")
