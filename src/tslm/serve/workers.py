"""A few threads that compute, a queue of limited length before them, and an end to work that nobody waits for."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tslm.serve.limits import Limits, Refused
from tslm.stopping import wanted_until

ResultT = TypeVar("ResultT")

SLICE_SECONDS = 0.05
"""How long a stream computes before it sends what it has and lets others have its place."""


@dataclass
class _Task:
    """A request under way."""

    deadline: float
    """The time at which it must be answered."""
    unwanted: threading.Event = field(default_factory=threading.Event)
    """Set when nobody waits for it any more; its thread then stops at the next step."""
    begun: bool = False


class Workers:
    """Threads that compute for as long as somebody waits for it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = ThreadPoolExecutor(limits.workers, thread_name_prefix="tslm")
        self.slots = asyncio.Semaphore(limits.workers)
        self.waiting = 0
        self._finish_by = math.inf
        self._timeouts: set[asyncio.Timeout] = set()

    async def compute(self, work: Callable[[], ResultT]) -> ResultT:
        """Run ``work`` in a thread when its turn comes.

        Raises:
            Refused: too many wait already (429), or the time is up (503).
        """
        return await self._run(self._begin(), work)

    async def compute_steps(self, steps: Callable[[], Iterator[ResultT]]) -> AsyncGenerator[ResultT, None]:
        """Run an iterator in a thread, a slice of time at once; whoever stops listening stops it.

        Nothing is held while the results of a slice are taken: a client that reads slowly keeps nobody waiting.
        """
        task = self._begin()
        iterator = await self._run(task, steps)

        def take() -> tuple[list[ResultT], bool]:
            results: list[ResultT] = []
            until = time.monotonic() + SLICE_SECONDS
            for result in iterator:
                results.append(result)
                if time.monotonic() >= until:
                    return results, False
            return results, True

        ended = False
        while not ended:
            results, ended = await self._run(task, take)
            for result in results:
                yield result

    def finish_within(self, seconds: float) -> None:
        """Let whatever is under way go on for no longer than this: the server is about to stop."""
        self._finish_by = asyncio.get_running_loop().time() + seconds
        for timeout in self._timeouts:
            timeout.reschedule(min(timeout.when() or math.inf, self._finish_by))

    def close(self) -> None:
        """Let go of the threads."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> _Task:
        return _Task(asyncio.get_running_loop().time() + self.limits.seconds)

    async def _run(self, task: _Task, work: Callable[[], ResultT]) -> ResultT:
        await self._take_slot(task)
        loop = asyncio.get_running_loop()

        def guarded() -> ResultT:
            with wanted_until(task.unwanted.is_set):
                return work()

        future = loop.run_in_executor(self.pool, guarded)
        try:
            async with self._until(task):
                return await asyncio.shield(future)
        except TimeoutError:
            raise self._too_late(f"this took longer than {self.limits.seconds:g} s; ask for less") from None
        finally:
            if not future.done():
                task.unwanted.set()
            # A thread cannot be stopped from here: its place is free when it has seen that nobody waits.
            future.add_done_callback(self._give_slot)

    async def _take_slot(self, task: _Task) -> None:
        """Wait for a turn to compute; who has begun is not sent away again because others wait."""
        if not self.slots.locked():
            await self.slots.acquire()
            task.begun = True
            return
        if not task.begun and self.waiting >= self.limits.waiting:
            raise Refused(429, f"{self.waiting} requests are waiting already; try again in a moment")
        self.waiting += 1
        try:
            async with self._until(task):
                await self.slots.acquire()
        except TimeoutError:
            raise self._too_late("the server is too busy to answer in time; try again later") from None
        finally:
            self.waiting -= 1
        task.begun = True

    def _give_slot(self, future: asyncio.Future[Any]) -> None:
        self.slots.release()
        if not future.cancelled():
            future.exception()  # whoever waited has heard of it already

    @asynccontextmanager
    async def _until(self, task: _Task) -> AsyncGenerator[None, None]:
        """Raise a TimeoutError in the block when the time of a task, or of the server, is up."""
        async with asyncio.timeout_at(min(task.deadline, self._finish_by)) as timeout:
            self._timeouts.add(timeout)
            try:
                yield
            finally:
                self._timeouts.discard(timeout)

    def _too_late(self, message: str) -> Refused:
        stopping = asyncio.get_running_loop().time() >= self._finish_by
        return Refused(503, "the server is stopping; ask again when it is back" if stopping else message)
