"""An unattended queue of training runs: one after the other (or a few side by side), never longer than a budget.

Every run is its own process, so its peak of memory is its own and nothing that goes wrong in one reaches the next. What
is finished is skipped and what was broken off goes on, so the same command after a restart simply continues.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tslm.files import read_regular
from tslm.runs import parent
from tslm.runs.folder import RECIPE, in_use

GRACE = 10.0
"""Seconds that a run has for saving its state once it is asked to stop."""

LOG = "log.txt"
"""Where runs side by side write what they would show."""

# Ctrl-C in a terminal reaches a whole group, and a run takes a second signal as a wish to stop unsaved.
OWN_GROUP: dict[str, Any] = (
    {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    if sys.platform == "win32"
    else {"process_group": 0}
)

Outcome = Literal["done", "stopped", "failed", "left"]


@dataclass(frozen=True)
class Job:
    """One run of the queue: a recipe with its changes, and the folder it lives in."""

    recipe: str
    folder: Path
    overrides: tuple[str, ...] = ()

    def command(self, threads: int | None) -> list[str]:
        """Return the command that runs it, or goes on with it."""
        changes = [part for override in self.overrides for part in ("--set", override)]
        begun = self._begun_threads()
        # A run repeats bit for bit with the threads it was begun with, and goes on with no others.
        limit = (
            []
            if begun is None and threads is None
            else ["--threads", str(threads if begun is None else begun)]
        )
        run = ["train", self.recipe, "--out", str(self.folder), "--json"]
        return [sys.executable, "-m", "tslm", *run, *changes, *limit]

    def _begun_threads(self) -> int | None:
        try:
            recipe = tomllib.loads(read_regular(self.folder / RECIPE, 1 << 20).decode("utf-8"))
            return int(recipe["train"]["threads"])
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            RecursionError,
        ):  # not begun, or for the run itself to complain of
            return None


@contextmanager
def signals_like_ctrl_c() -> Generator[None, None, None]:
    """Let SIGTERM and a closed terminal end the block like Ctrl-C, unless nohup has them ignored."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # Windows has no SIGHUP.
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ends = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in ends}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_queue(
    jobs: Sequence[Job],
    *,
    budget: float,
    workers: int = 1,
    threads: int | None = None,
    tell: Callable[[str], None] = print,
) -> dict[Path, Outcome]:
    """Run jobs in their order until all are done or the budget is used up.

    Args:
        jobs: what to run.
        budget: seconds; runs are asked to stop, with their state saved, in time to end before it is over.
        workers: how many run side by side; with more than one, each writes ``log.txt`` into its folder.
        threads: how many threads each computes with; None leaves that to the recipe.
        tell: is told what begins and how it ends.

    Returns:
        How each folder was left: ``done``, ``stopped`` (goes on next time), ``failed``, or ``left`` (not begun).
    """
    deadline = time.monotonic() + budget
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    outcomes: dict[Path, Outcome] = {job.folder: "left" for job in jobs}
    stopping = threading.Event()

    def work() -> None:
        while deadline - time.monotonic() > 2 * GRACE and not stopping.is_set():
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            if in_use(job.folder):  # as when the queue before this one was killed, and its run lived on
                tell(f"{job.folder}: another process trains it; waiting for that")
                while in_use(job.folder):
                    if time.monotonic() > deadline - 2 * GRACE or stopping.wait(1.0):
                        return
            tell(f"{job.folder}: begins, or goes on where it was")
            try:
                outcome = _run(job, deadline, stopping, threads, quiet=workers > 1)
            except OSError as error:
                outcome = "failed"
                tell(f"{job.folder}: {error}")
            outcomes[job.folder] = outcome
            told = workers > 1 and (job.folder / LOG).exists()
            tell(f"{job.folder}: {outcome}{f', see {LOG} in it' if outcome == 'failed' and told else ''}")

    crew = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for worker in crew:
        worker.start()
    try:
        for worker in crew:
            worker.join()
    finally:
        # Ctrl-C, or the end: no run outlives its queue.
        stopping.set()
        for worker in crew:
            worker.join(GRACE)
    left = sum(outcome == "left" for outcome in outcomes.values())
    if left and budget > 0:
        tell(f"{left} of {len(jobs)} runs are left for another time: the budget is used up")
    return outcomes


def _run(
    job: Job, deadline: float, stopping: threading.Event, threads: int | None, *, quiet: bool
) -> Outcome:
    """Run one job in its own process; ask it to stop when time is nearly up, and end it when it is."""
    job.folder.mkdir(parents=True, exist_ok=True)
    # One pool of threads per run: waiting for one another's cores costs more than a second core brings.
    environment = os.environ | ({"OMP_NUM_THREADS": str(threads)} if threads else {}) | {parent.VARIABLE: "1"}
    with (
        (job.folder / LOG).open("a", encoding="utf-8") if quiet else nullcontext() as file,
        subprocess.Popen(  # noqa: S603
            job.command(threads),
            # Nothing is written to it: when this process is no more, however it ended, the run sees its end.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=file,
            env=environment,
            **OWN_GROUP,
        ) as process,
    ):
        while process.poll() is None and time.monotonic() < deadline - GRACE and not stopping.wait(0.1):
            pass
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(GRACE - 1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            return "done" if process.returncode == 0 else "stopped"
    return "done" if process.returncode == 0 else "stopped" if process.returncode == 130 else "failed"
