from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import tslm
from tslm.inference.explain import explain
from tslm.serve import app as app_module
from tslm.serve.app import create_app
from tslm.serve.guard import Hosts
from tslm.serve.limits import Limits
from tslm.serve.models import ServedModel, open_models


def test_models_say_what_they_can(client) -> None:
    cards = {card["id"]: card for card in client.get("/v1/models").json()["data"]}
    assert cards["kn"]["fills"]
    assert not cards["kn"]["network"]
    assert not cards["tslm"]["fills"]
    assert cards["tslm"]["network"]
    assert client.get("/v1/health").json() == {"status": "ok"}


@pytest.mark.parametrize("name", ["kn", "tslm"])
def test_score_equals_the_model(client, runs, name) -> None:
    body = {"model": name, "text": "the cat sat\n\na zebra", "alternatives": 3}
    report = client.post("/v1/score", json=body).json()
    model = tslm.load(runs[name])
    assert [len(sentence["words"]) for sentence in report["sentences"]] == [4, 3]
    ids = model.vocabulary.encode_line("the cat sat")[None]
    expected, _ = model.score(ids, model.start(1))
    found = [word["log_probability"] for word in report["sentences"][0]["words"]]
    assert found == pytest.approx(expected[0].tolist(), rel=1e-4)
    assert report["unknown"] == 1
    assert [word["unknown"] for word in report["sentences"][1]["words"]] == [False, True, False]
    nats = -sum(sentence["log_probability"] for sentence in report["sentences"])
    assert report["perplexity"] == pytest.approx(math.exp(nats / 7))
    assert len(report["sentences"][0]["words"][0]["alternatives"]) == 3


def test_generate_equals_the_function_and_streams_the_same(client, runs) -> None:
    body = {"model": "tslm", "prompt": "the", "number": 3, "length": 8, "seed": 4, "temperature": 0.9}
    report = client.post("/v1/generate", json=body).json()
    samples = tslm.generate(runs["tslm"], "the", number=3, length=8, seed=4, temperature=0.9)
    assert ["the" + sample["text"] for sample in report["samples"]] == [sample.text for sample in samples]
    texts = ["", "", ""]
    with client.stream("POST", "/v1/generate", json={**body, "stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line]
    for event in events[:-1]:
        texts[event["sample"]] += event["text"]
        assert event["text"] == f" {event['word']}"
    assert texts == [sample["text"] for sample in report["samples"]]
    assert events[-1] == {"done": True, "reasons": [sample["reason"] for sample in report["samples"]]}


def test_explain_equals_the_function(client, runs) -> None:
    body = {"model": "tslm", "text": "the cat sat on", "network": True}
    report = client.post("/v1/explain", json=body).json()
    expected = explain(tslm.load(runs["tslm"]), "the cat sat on")
    for found, row in zip(report["effects"]["matrix"], expected.effects.matrix.tolist(), strict=True):
        assert found == pytest.approx(row, abs=1e-4)
    for found, row in zip(
        report["contributions"]["matrix"], expected.contributions.matrix.tolist(), strict=True
    ):
        assert found == pytest.approx(row, abs=1e-4)
    assert report["cuts"]["ranks"] == pytest.approx(expected.cuts.ranks, rel=1e-3)
    assert report["network"].startswith("<svg") or "<svg" in report["network"][:200]
    plain = client.post("/v1/explain", json={"model": "kn", "text": "the cat", "network": True}).json()
    assert plain["network"] is None
    assert plain["contributions"] is None
    assert "<unk>" in plain["effects"]["method"]


def test_fill(client) -> None:
    report = client.post("/v1/fill", json={"pattern": "the ? sat on the ?", "top": 3, "samples": 2}).json()
    assert [blank["place"] for blank in report["blanks"]] == [1, 5]
    assert len(report["fillings"]) == 3
    assert len(report["samples"]) == 2
    refused = client.post("/v1/fill", json={"model": "tslm", "pattern": "the ?"})
    assert refused.status_code == 422
    assert "cannot fill blanks" in refused.json()["error"]["message"]


def test_page_and_api_page_need_nothing_from_elsewhere(client) -> None:
    folder = Path(app_module.__file__).parent / "static"
    for path in folder.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "//cdn" not in text
        assert "innerHTML" not in text
    for path in ("/", "/docs", "/static/page.js", "/static/page.css", "/static/api.js", "/static/icon.svg"):
        response = client.get(path)
        assert response.status_code == 200
        assert "script-src 'self'" in response.headers["content-security-policy"]
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/nothing").json()["error"]["code"] == 404


def post(client, path: str, content: bytes, **headers: str):
    return client.post(path, content=content, headers={"content-type": "application/json", **headers})


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/v1/score", b"{bad", 400),
        ("/v1/score", b"", 422),
        ("/v1/score", b"[1]", 422),
        ("/v1/score", b'{"text": ""}', 422),
        ("/v1/score", b'{"text": "  \\n "}', 422),
        ("/v1/score", b'{"text": 5}', 422),
        ("/v1/score", b'{"text": "a", "unknown": 1}', 422),
        ("/v1/score", b'{"text": "\\ud800"}', 422),
        ("/v1/completions", b'{"prompt": "a \\ud800", "echo": true, "logprobs": 2}', 422),
        ("/v1/completions", b'{"prompt": ["a", "\\udfff"], "echo": true}', 422),
        ("/v1/completions", b'{"prompt": "a", "stop": "\\ud800"}', 422),
        ("/v1/generate", b'{"prompt": "\\ud800"}', 422),
        ("/v1/fill", b'{"pattern": "\\ud800 ?"}', 422),
        ("/v1/fill", b'{"pattern": "' + b"? " * 21 + b'"}', 413),
        ("/v1/fill", b'{"pattern": "' + b"? " * 60 + b'"}', 413),
        ("/v1/score", b'{"text": "a", "model": "nobody"}', 404),
        ("/v1/score", b'{"text": "a", "model": "\\u0000<script>"}', 404),
        ("/v1/score", b"\xff\xfe", 400),
        ("/v1/score", b'{"text": "' + b"a " * 60 + b'"}', 413),
        ("/v1/score", b'{"text": "' + b"a" * 1_000_000 + b'"}', 413),
        ("/v1/explain", b'{"text": "' + b"a " * 61 + b'"}', 413),
        ("/v1/generate", b'{"temperature": NaN}', 422),
        ("/v1/generate", b'{"temperature": 1e999}', 422),
        ("/v1/generate", b'{"length": 100000}', 422),
        ("/v1/generate", b'{"seed": -1}', 422),
        ("/v1/completions", b'{"prompt": [1, 2]}', 422),
        ("/v1/completions", b'{"prompt": ["a", "b"], "n": 16}', 422),
        ("/v1/completions", b'{"prompt": "a", "stream": true, "logprobs": 1}', 422),
    ],
)
def test_what_is_wrong_is_a_clear_4xx(client, path, content, status) -> None:
    response = post(client, path, content)
    assert response.status_code == status, response.text
    assert response.json()["error"]["message"]
    assert client.post("/v1/score", json={"text": "the cat"}).status_code == 200


def test_what_is_wrong_is_said_in_the_words_of_the_request(client) -> None:
    def said(path: str, content: bytes) -> str:
        return post(client, path, content).json()["error"]["message"]

    assert said("/v1/score", b"{bad").startswith("the body is no JSON: Expecting property name")
    assert said("/v1/score", b"[1]").startswith("the body: ")
    assert said("/v1/completions", b'{"prompt": [1]}') == (
        "prompt: Input should be a valid string; prompt.0: Input should be a valid string"
    )


def test_the_page_of_the_server_names_a_model_that_it_serves() -> None:
    text = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
    [served] = re.findall(r"tslm serve (.+?) +#", text)
    [named] = re.findall(r'completions\.create\(model="(\w+)"', text)
    assert named in [Path(run).name for run in served.split()]


def test_a_body_without_a_length_is_limited_too(client) -> None:
    headers = {"content-type": "application/json"}
    response = client.post("/v1/score", content=(b"x" * 1000 for _ in range(100)), headers=headers)
    assert response.status_code == 413


@pytest.mark.parametrize("temperature", [1e-308, 5e-324, 1e-10, 100])
def test_any_temperature_draws_words(client, temperature) -> None:
    body = {"temperature": temperature, "length": 5, "number": 2}
    for path in ("/v1/generate", "/v1/completions"):
        sent = body if path == "/v1/generate" else {"temperature": temperature, "prompt": "the"}
        assert client.post(path, json=sent).status_code == 200


def test_a_pattern_that_needs_too_much_is_refused_before_it_begins(runs) -> None:
    models = open_models([runs["kn"]], measure=True)
    hosts = Hosts.bound("127.0.0.1", ["testserver"])
    for limits, told in ((Limits(memory_bytes=1000), "MiB"), (Limits(seconds=1e-9), "would take about")):
        with TestClient(create_app(models, limits, hosts)) as client:
            response = client.post("/v1/fill", json={"pattern": "the ? ? ?"})
            assert response.status_code == 413
            assert told in response.json()["error"]["message"]
    with TestClient(create_app(models, Limits(), hosts)) as client:
        assert client.post("/v1/fill", json={"pattern": "? " * 20}).status_code == 200


def test_samples_that_would_take_too_long_are_refused_before_they_begin(runs) -> None:
    models = open_models([runs["kn"]], measure=True)
    hosts = Hosts.bound("127.0.0.1", ["testserver"])
    with TestClient(create_app(models, Limits(seconds=0.001), hosts)) as client:
        for path, body in (
            ("/v1/generate", {"length": 1000, "number": 16}),
            ("/v1/generate", {"length": 1000, "number": 16, "stream": True}),
            ("/v1/completions", {"max_tokens": 1000, "prompt": ["a"] * 16}),
        ):
            response = client.post(path, json=body)
            assert response.status_code == 413
            assert "would take about" in response.json()["error"]["message"]
    with TestClient(create_app(models, Limits(), hosts)) as client:
        assert client.post("/v1/generate", json={"length": 1000, "number": 16}).status_code == 200


def test_a_fault_is_answered_in_the_documented_form(runs, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken: /a/path/of/the/server")

    monkeypatch.setattr(ServedModel, "score", broken)
    hosts = Hosts.bound("127.0.0.1", ["testserver"])
    with TestClient(
        create_app(open_models([runs["kn"]]), None, hosts), raise_server_exceptions=False
    ) as client:
        response = client.post("/v1/score", json={"text": "the cat"})
        assert response.status_code == 500
        assert response.json()["error"]["code"] == 500
        assert "path" not in response.text
        assert client.get("/v1/health").status_code == 200


def test_wrong_method(client) -> None:
    assert client.get("/v1/score").status_code == 405
    assert client.delete("/v1/models").status_code == 405
