from __future__ import annotations

import time

import pytest

from tslm.errors import RecipeError
from tslm.training import queue
from tslm.training.checkpoint import STATE
from tslm.training.folder import read_summary
from tslm.training.queue import Job, read_duration, run_queue

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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("0", 0), ("1.5h", 5400), ("5", 300)],
)
def test_durations(text, seconds) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1h", "2d", "h", "1h 30", "nan", "inf"])
def test_what_is_no_duration_is_refused(text) -> None:
    with pytest.raises(RecipeError, match="no duration"):
        read_duration(text)


def test_jobs_are_done_in_their_own_processes_and_one_failure_stops_no_other(recipes) -> None:
    good = Job(str(recipes / "counted.toml"), recipes / "good")
    bad = Job(str(recipes / "counted.toml"), recipes / "bad", ("model.colour=3",))
    told: list[str] = []
    outcomes = run_queue([bad, good], budget=300.0, workers=2, tell=told.append)
    assert outcomes == {bad.folder: "failed", good.folder: "done"}
    assert "colour" in (bad.folder / "log.txt").read_text()
    summary = read_summary(good.folder)
    assert summary is not None
    assert any(line == f"{good.folder}: done" for line in told)


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


def test_nothing_begins_without_a_budget(recipes) -> None:
    job = Job(str(recipes / "counted.toml"), recipes / "none")
    assert run_queue([job], budget=0.0) == {job.folder: "left"}
    assert not job.folder.exists()
