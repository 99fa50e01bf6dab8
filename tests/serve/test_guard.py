from __future__ import annotations

import asyncio

import pytest

from tslm.serve.guard import Guard, Hosts
from tslm.serve.limits import Limits, Refused

HOSTS = Hosts.bound("127.0.0.1")
SCOPE = {"type": "http", "method": "POST", "headers": [(b"host", b"localhost:8000")]}

LOCAL = Hosts.bound("127.0.0.1")
EVERYWHERE = Hosts.bound("0.0.0.0")  # noqa: S104
PROXIED = Hosts.bound("127.0.0.1", ["Models.Example"])


@pytest.mark.parametrize(
    ("hosts", "host", "origin", "answered"),
    [
        (LOCAL, "127.0.0.1:8000", None, True),
        (LOCAL, "localhost:8000", None, True),
        (LOCAL, "LOCALHOST", None, True),
        (LOCAL, "[::1]:8000", None, True),
        (LOCAL, "evil.example", None, False),
        (LOCAL, "evil.example:8000", None, False),
        (LOCAL, "localhost.evil.example", None, False),
        (LOCAL, "10.0.0.1", None, False),
        (LOCAL, "", None, False),
        (LOCAL, None, None, False),
        (LOCAL, "[::1", None, False),
        (LOCAL, "user@evil.example", None, False),
        (LOCAL, "localhost:8000", "http://localhost:8000", True),
        (LOCAL, "localhost:8000", "https://localhost:8000", True),
        (LOCAL, "localhost:8000", "http://localhost:3000", False),
        (LOCAL, "localhost:8000", "http://evil.example", False),
        (LOCAL, "localhost:8000", "null", False),
        (LOCAL, "localhost:8000", "", False),
        (EVERYWHERE, "192.168.1.5:8000", None, True),
        (EVERYWHERE, "[fe80::1]:8000", None, True),
        (EVERYWHERE, "localhost", None, True),
        (EVERYWHERE, "evil.example", None, False),
        (PROXIED, "models.example", "https://models.example", True),
        (PROXIED, "127.0.0.1:8000", "https://models.example:8443", True),
        (PROXIED, "evil.example", None, False),
        (Hosts.bound("127.0.0.1", ["*"]), "evil.example", "http://evil.example", True),
    ],
)
def test_only_the_servers_own_names_are_answered(hosts, host, origin, answered) -> None:
    if answered:
        hosts.check(host, origin)
        return
    with pytest.raises(Refused, match="--allow-host") as refused:
        hosts.check(host, origin)
    assert refused.value.status == 403


def test_a_stranger_is_answered_over_http_too(client) -> None:
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        response = client.post("/v1/score", json={"text": "the cat"}, headers=headers)
        assert response.status_code == 403
        assert "evil.example" in response.json()["error"]["message"]
    assert client.get("/", headers={"host": "evil.example"}).status_code == 403


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_json_must_be_said_to_be_json(client, kind) -> None:
    headers = {} if kind is None else {"content-type": kind}
    response = client.post("/v1/score", content=b'{"text": "the cat"}', headers=headers)
    assert response.status_code == 415
    assert "content-type: application/json" in response.json()["error"]["message"]
    for good in ("application/json", "Application/JSON; charset=utf-8"):
        response = client.post("/v1/score", content=b'{"text": "the cat"}', headers={"content-type": good})
        assert response.status_code == 200


def test_a_request_whose_client_hangs_up_is_cancelled() -> None:
    ended: list[str] = []

    async def scene() -> None:
        gone = asyncio.Event()

        async def slow(scope, receive, send) -> None:
            assert (await receive())["body"] == b""
            gone.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        async def receive() -> dict:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message) -> None:
            raise AssertionError("nobody is there to answer")

        await asyncio.wait_for(Guard(slow, Limits(), HOSTS)({**SCOPE, "method": "GET"}, receive, send), 5)

    asyncio.run(scene())
    assert ended == ["cancelled"]


def test_a_fault_in_the_application_is_not_swallowed() -> None:
    async def broken(scope, receive, send) -> None:
        raise RuntimeError("broken")

    async def receive() -> dict:
        await asyncio.Event().wait()
        return {}

    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(Guard(broken, Limits(), HOSTS)({**SCOPE, "method": "GET"}, receive, None))


def test_a_client_that_sends_nothing_is_told_so() -> None:
    sent: list[dict] = []

    async def nothing() -> dict:
        await asyncio.Event().wait()
        return {}

    async def send(message) -> None:
        sent.append(message)

    async def never(scope, receive, send) -> None:
        raise AssertionError("the application must not be reached")

    asyncio.run(Guard(never, Limits(body_seconds=0.01), HOSTS)(SCOPE, nothing, send))
    assert sent[0]["status"] == 408


def test_a_client_that_hangs_up_while_sending_is_forgotten() -> None:
    async def gone() -> dict:
        return {"type": "http.disconnect"}

    async def never(*_: object) -> None:
        raise AssertionError("nobody is there to answer")

    asyncio.run(Guard(never, Limits(), HOSTS)(SCOPE, gone, never))
