from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from tslm.runs import queue
from tslm.runs.folder import in_use, locked_run
from tslm.runs.queue import Job, run_queue
from tslm.runs.recipe import read_recipe, write_recipe
from tslm.runs.summary import read_summary
from tslm.training.position import STATE

COUNTED = """
[corpus]
name = "own"
path = ["{text}"]
valid_fraction = 0.2
test_fraction = 0.2

[model]
kind = "unigram"
"""

TRAINED = """
[corpus]
name = "own"
path = ["{text}"]
valid_fraction = 0.2
test_fraction = 0.2

[model]
kind = "recurrent"
rank = 8
embedding = 8

[train]
epochs = 1000000
batch = 2
window = 5
checkpoint_steps = 1000000
"""


@pytest.fixture
def recipes(tmp_path):
    text = tmp_path / "own.txt"
    text.write_text("a b c d\nb c d a\nc a b d\n" * 40)
    for name, recipe in {"counted": COUNTED, "trained": TRAINED}.items():
        (tmp_path / f"{name}.toml").write_text(recipe.format(text=text))
    return tmp_path


def test_jobs_are_done_in_their_own_processes_and_one_failure_stops_no_other(recipes) -> None:
    good = Job(str(recipes / "counted.toml"), recipes / "good")
    bad = Job(str(recipes / "counted.toml"), recipes / "bad", ("model.colour=3",))
    told: list[str] = []
    outcomes = run_queue([bad, good], budget=300.0, workers=2, tell=told.append)
    assert outcomes == {bad.folder: "failed", good.folder: "done"}
    assert "colour" in (bad.folder / "log.txt").read_text()
    summary = read_summary(good.folder)
    assert summary is not None
    assert f"{good.folder}: done" in told
    assert f"{bad.folder}: failed, see log.txt in it" in told


def test_a_budget_is_never_exceeded_and_what_was_broken_off_goes_on(recipes, monkeypatch) -> None:
    monkeypatch.setattr(queue, "GRACE", 6.0)
    job = Job(str(recipes / "trained.toml"), recipes / "long", ("train.threads=1",))
    began = time.monotonic()
    told: list[str] = []
    assert run_queue([job], budget=24.0, workers=2, tell=told.append) == {job.folder: "stopped"}
    assert time.monotonic() - began < 24
    # The state was saved when the queue asked for it: the recipe itself saves none.
    assert (job.folder / STATE).exists()
    assert "the same command goes on" in (job.folder / "log.txt").read_text()
    # Less than a run needs for beginning and saving: said, not passed over.
    assert run_queue([job], budget=5.0, tell=told.append) == {job.folder: "left"}
    assert told[-1] == "1 of 1 runs are left for another time: the budget is used up"


def test_a_run_goes_on_with_the_threads_it_was_begun_with(recipes) -> None:
    job = Job(str(recipes / "trained.toml"), recipes / "run", ("train.epochs=1",))
    assert "--threads" not in job.command(None)
    assert job.command(2)[-2:] == ["--threads", "2"]
    folder = recipes / "run"
    folder.mkdir()
    write_recipe(
        folder / "recipe.toml", read_recipe(recipes / "trained.toml", ["train.epochs=1", "train.threads=1"])
    )
    (folder / STATE).write_bytes(b"")
    for threads in (None, 2):
        assert run_queue([job], budget=300.0, threads=threads) == {folder: "done"}


def test_a_run_that_another_process_trains_is_waited_for(recipes) -> None:
    job = Job(str(recipes / "counted.toml"), recipes / "run")
    held = ExitStack()
    held.enter_context(locked_run(job.folder))
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if "waiting" in line:
            held.close()

    assert run_queue([job], budget=300.0, tell=tell) == {job.folder: "done"}
    assert told[0] == f"{job.folder}: another process trains it; waiting for that"


def test_waiting_for_another_process_ends_with_the_budget(recipes, monkeypatch) -> None:
    monkeypatch.setattr(queue, "GRACE", 0.1)
    job = Job(str(recipes / "counted.toml"), recipes / "run")
    with locked_run(job.folder):
        assert run_queue([job], budget=1.5) == {job.folder: "left"}


def test_nothing_begins_without_a_budget(recipes) -> None:
    job = Job(str(recipes / "counted.toml"), recipes / "none")
    assert run_queue([job], budget=0.0) == {job.folder: "left"}
    assert not job.folder.exists()


def test_ctrl_c_in_a_terminal_lets_the_run_save_its_state(recipes) -> None:
    script = """
import signal
import sys
from pathlib import Path
from tslm.runs.queue import Job, run_queue
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background has it ignored
run_queue([Job(sys.argv[1], Path(sys.argv[2]), ("train.threads=1",))], budget=600.0, tell=lambda line: None)
"""
    queued = subprocess.Popen(
        [sys.executable, "-c", script, str(recipes / "trained.toml"), str(recipes / "run")],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert queued.stderr is not None
    with queued, queued.stderr as lines:
        assert any("epoch 1/" in line for line in lines)
        # A terminal sends it to the whole group.
        os.killpg(queued.pid, signal.SIGINT)
        assert "the same command goes on" in lines.read()


def test_a_run_ends_with_its_queue_even_on_kill_9(recipes) -> None:
    """It saves its state on the way, and the same command goes on from there."""
    script = """
import sys
from pathlib import Path
from tslm.runs.queue import Job, run_queue
run_queue([Job(sys.argv[1], Path(sys.argv[2]), ("train.threads=1",))], budget=600.0, tell=lambda line: None)
"""
    folder = recipes / "run"
    queued = subprocess.Popen(
        [sys.executable, "-c", script, str(recipes / "trained.toml"), str(folder)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert queued.stderr is not None
    with queued, queued.stderr as lines:
        assert any("epoch 1/" in line for line in lines)
        assert in_use(folder)
        queued.kill()
        assert "the same command goes on" in lines.read()  # to its end: nobody holds the other one any more
    assert not in_use(folder)
    assert (folder / STATE).exists()


def test_a_folder_that_cannot_be_made_fails_alone(recipes) -> None:
    (recipes / "file").write_text("no folder")
    bad = Job(str(recipes / "counted.toml"), recipes / "file" / "run")
    good = Job(str(recipes / "counted.toml"), recipes / "good")
    told: list[str] = []
    assert run_queue([bad, good], budget=300.0, tell=told.append) == {
        bad.folder: "failed",
        good.folder: "done",
    }
    assert any("Not a directory" in line for line in told)
