"""A worker that is killed rejoins: torchrun starts the group anew, and the run goes on from its last checkpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tslm.runs.summary import read_summary
from tslm.runs.train import train
from tslm.training.metrics import METRICS

ELASTIC = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "2", "--monitor-interval", "0.1"]

FRESH_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it all attempts share one store, and a worker may wait for ever at the address of one that is dead."""


def find_worker(agent: subprocess.Popen[bytes], rank: int) -> psutil.Process:
    """Return the process of one rank, which is told its rank by its environment."""
    for process in psutil.Process(agent.pid).children():
        if process.environ().get("RANK") == str(rank):
            return process
    raise AssertionError(f"no worker of rank {rank}")


def wait_for_epoch(path: Path, agent: subprocess.Popen[bytes]) -> bytes:
    """Return the lines of metrics up to the first epoch's end, once the next one is under way."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        ends = [place for place, line in enumerate(lines) if b'"epoch"' in line]
        if ends and len(lines) > ends[0] + 1:
            return b"".join(lines[: ends[0] + 1])
        assert agent.poll() is None, "the run ended before a worker could be killed"
        time.sleep(0.02)
    raise AssertionError("no epoch within the time")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_rejoins_and_the_run_goes_on(rank: int, recipe_path: Path, tmp_path: Path) -> None:
    overrides = [
        "train.epochs=4",
        "train.average=0.0",
        "train.metric_steps=1",
        *(
            f"model.{key}=0.0"
            for key in ("dropout_input", "dropout_words", "dropout_output", "cell.weight_drop")
        ),
    ]
    single = train(recipe_path, tmp_path / "one", overrides=overrides)
    folder = tmp_path / "two"
    arguments = [part for override in overrides for part in ("--set", override)]
    command = ["-m", "tslm", "train", str(recipe_path), "--out", str(folder), *arguments]
    with (tmp_path / "log").open("wb") as log:
        agent = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *ELASTIC, *command],
            env={**os.environ, **FRESH_STORE, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
            stdout=log,
            stderr=log,
        )
        try:
            before = wait_for_epoch(folder / METRICS, agent)
            find_worker(agent, rank).send_signal(signal.SIGKILL)
            assert agent.wait(250) == 0, (tmp_path / "log").read_text()
        finally:
            agent.kill()
    # The first epoch was not trained again: its line holds its time, which no second training would repeat.
    after = (folder / METRICS).read_bytes()
    assert after.startswith(before)
    double = read_summary(folder)
    assert double is not None
    assert double.valid.perplexity == pytest.approx(single.valid.perplexity, rel=1e-5)
    steps = [json.loads(line)["step"] for line in after.splitlines() if b'"epoch"' not in line]
    assert steps == list(range(1, len(steps) + 1))
