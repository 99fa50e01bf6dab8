from __future__ import annotations

import asyncio
import threading

import pytest

from tslm.serve.limits import BodyLimit, Limits, Refused, Workers


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
        assert not workers.slots.locked()
        assert [step async for step in workers.compute_steps(lambda: iter("ab"))] == ["a", "b"]
        workers.close()

    asyncio.run(scene())


def test_a_client_that_sends_nothing_is_told_so() -> None:
    sent: list[dict] = []

    async def nothing() -> dict:
        await asyncio.Event().wait()
        return {}

    async def send(message) -> None:
        sent.append(message)

    async def never(scope, receive, send) -> None:
        raise AssertionError("the application must not be reached")

    limit = BodyLimit(never, Limits(body_seconds=0.01))
    asyncio.run(limit({"type": "http", "method": "POST", "headers": []}, nothing, send))
    assert sent[0]["status"] == 408


def test_a_client_that_hangs_up_while_sending_is_forgotten() -> None:
    async def gone() -> dict:
        return {"type": "http.disconnect"}

    async def never(*_: object) -> None:
        raise AssertionError("nobody is there to answer")

    asyncio.run(BodyLimit(never, Limits())({"type": "http", "method": "POST", "headers": []}, gone, never))
