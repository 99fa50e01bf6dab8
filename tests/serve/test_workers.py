from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tslm.serve.limits import Limits, Refused
from tslm.serve.workers import Workers
from tslm.stopping import check_wanted


def test_one_more_than_may_wait_is_refused() -> None:
    async def scene() -> None:
        workers = Workers(Limits(workers=1, waiting=1))
        gate = threading.Event()
        first = asyncio.create_task(workers.compute(gate.wait))
        second = asyncio.create_task(workers.compute(lambda: 2))
        while workers.waiting < 1:
            await asyncio.sleep(0)
        with pytest.raises(Refused) as refused:
            await workers.compute(lambda: 3)
        assert refused.value.status == 429
        gate.set()
        assert await first
        assert await second == 2
        assert await workers.compute(lambda: 4) == 4
        workers.close()

    asyncio.run(scene())


def test_what_takes_too_long_is_refused_and_its_turn_ends_with_it() -> None:
    async def scene() -> None:
        workers = Workers(Limits(workers=1, seconds=0.05))
        gate = threading.Event()
        slow = asyncio.create_task(workers.compute(gate.wait))
        while not workers.slots.locked():
            await asyncio.sleep(0)
        with pytest.raises(Refused) as waited:
            await workers.compute(lambda: 1)
        assert waited.value.status == 503
        with pytest.raises(Refused) as computed:
            await slow
        # Answered in time, while the thread is still at work and keeps its place.
        assert computed.value.status == 503
        assert workers.slots.locked()
        gate.set()
        while workers.slots.locked():
            await asyncio.sleep(0)
        assert await workers.compute(lambda: 5) == 5
        workers.close()

    asyncio.run(scene())


def test_steps_end_when_nobody_listens() -> None:
    async def scene() -> None:
        workers = Workers(Limits(workers=1))
        steps = workers.compute_steps(lambda: iter(range(1_000_000)))
        assert await anext(steps) == 0
        assert await anext(steps) == 1
        await steps.aclose()
        await asyncio.sleep(0)
        assert not workers.slots.locked()
        assert [step async for step in workers.compute_steps(lambda: iter("ab"))] == ["a", "b"]
        workers.close()

    asyncio.run(scene())


def test_work_that_takes_too_long_is_stopped_between_two_steps() -> None:
    async def scene() -> None:
        workers = Workers(Limits(workers=1, seconds=0.05))
        steps = 0

        def work() -> None:
            nonlocal steps
            while True:
                check_wanted()
                steps += 1
                time.sleep(0.001)

        with pytest.raises(Refused) as refused:
            await workers.compute(work)
        assert refused.value.status == 503
        while workers.slots.locked():
            await asyncio.sleep(0)
        done = steps
        await asyncio.sleep(0.05)
        assert steps == done > 0
        workers.close()

    asyncio.run(scene())


def test_work_whose_client_is_gone_is_stopped_between_two_steps() -> None:
    async def scene() -> None:
        workers = Workers(Limits(workers=1))
        begun = threading.Event()

        def work() -> None:
            while True:
                begun.set()
                check_wanted()
                time.sleep(0.001)

        task = asyncio.create_task(workers.compute(work))
        while not begun.is_set():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await workers.compute(lambda: 1) == 1  # the only place is free again
        workers.close()

    asyncio.run(scene())


def test_a_stream_that_nobody_reads_keeps_nobody_waiting() -> None:
    async def scene() -> None:
        workers = Workers(Limits(workers=1))
        streams = [workers.compute_steps(lambda: iter(range(10**9))) for _ in range(3)]
        for stream in streams:
            assert await anext(stream) == 0
        # Three streams are under way, none is read from, and there is one worker.
        assert await asyncio.wait_for(workers.compute(lambda: 7), 5) == 7
        assert not workers.slots.locked()
        for stream in streams:
            assert await anext(stream) == 1
            await stream.aclose()
        workers.close()

    asyncio.run(scene())


def test_a_stream_that_has_begun_is_not_sent_away() -> None:
    async def scene() -> None:
        workers = Workers(Limits(workers=1, waiting=1))
        stream = workers.compute_steps(lambda: iter("ab"))
        assert await anext(stream) == "a"
        gate = threading.Event()
        others = [asyncio.create_task(workers.compute(gate.wait)) for _ in range(2)]
        while workers.waiting < 1:
            await asyncio.sleep(0)
        rest = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        gate.set()
        assert await rest == "b"
        assert all(await asyncio.gather(*others))
        workers.close()

    asyncio.run(scene())


def test_a_server_that_stops_tells_those_who_wait() -> None:
    async def scene() -> None:
        workers = Workers(Limits(workers=1))
        gate = threading.Event()
        tasks = [asyncio.create_task(workers.compute(gate.wait)) for _ in range(2)]
        while workers.waiting < 1:
            await asyncio.sleep(0)
        workers.finish_within(0.02)
        for task in tasks:
            with pytest.raises(Refused, match="the server is stopping") as refused:
                await task
            assert refused.value.status == 503
        gate.set()
        workers.close()

    asyncio.run(scene())
