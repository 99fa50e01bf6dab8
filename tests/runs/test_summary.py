from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tslm.errors import RunError
from tslm.runs.recipe import origin_of
from tslm.runs.summary import parse_summary, peak_memory_mb, read_summary, write_summary

RESULTS = Path(__file__).parents[2] / "results"
KEPT = sorted(path.parent for path in RESULTS.rglob("summary.json"))


def flat(values, before="") -> dict[str, object]:
    found = {}
    for key, value in values.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found


def test_summaries_of_older_versions_keep_every_value() -> None:
    assert KEPT
    for folder in KEPT:
        old = flat(json.loads((folder / "summary.json").read_text()))
        summary = read_summary(folder)
        assert summary is not None
        new = flat(summary.as_json())
        for key, value in old.items():
            if not key.startswith("recipe.model.") and key != "kind":
                assert new[key] == value, (folder, key)
        assert parse_summary(summary.as_json()) == summary


def test_what_is_written_is_read(runs, tmp_path) -> None:
    for folder in runs.values():
        summary = read_summary(folder)
        assert summary is not None
        write_summary(tmp_path, summary)
        assert read_summary(tmp_path) == summary
        assert (tmp_path / "summary.json").read_bytes() == (folder / "summary.json").read_bytes()
    assert (summary.training is not None) == (origin_of(summary.kind) == "trained")


def test_infinity_and_what_was_not_measured_stay_apart(runs, tmp_path) -> None:
    summary = read_summary(runs["kn"])
    assert summary is not None
    infinite = replace(summary.valid, perplexity=math.inf, perplexity_reset=math.inf, nats=math.inf)
    write_summary(
        tmp_path, replace(summary, valid=infinite, test=replace(summary.test, perplexity_reset=None))
    )
    again = read_summary(tmp_path)
    assert again is not None
    assert again.valid == infinite
    assert again.test.perplexity_reset is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: [values], "no summary of a run"),
        (lambda values: values | {"recipe": 3}, "'recipe' is missing, or no table"),
        (lambda values: values | {"parameters": "many"}, "'parameters' = 'many' is not of type int"),
        (lambda values: values | {"valid": {"perplexity": 3.0}}, "'valid.bits_per_word' is missing"),
        (lambda values: {key: values[key] for key in values if key != "test"}, "'test' is missing"),
        (lambda values: {key: values[key] for key in values if key != "seconds"}, "'seconds' is missing"),
        (lambda values: values | {"corpus": {"name": "x"}}, "'corpus.fingerprint' is missing"),
        (lambda values: values | {"recipe": {"model": {"kind": "ngram", "colour": 3}}}, "model.colour"),
    ],
)
def test_damage_is_named(runs, tmp_path, change, message) -> None:
    values = json.loads((runs["kn"] / "summary.json").read_text())
    (tmp_path / "summary.json").write_text(json.dumps(change(values)))
    with pytest.raises(RunError, match=f"cannot read .*summary.json: .*{message}"):
        read_summary(tmp_path)


@pytest.mark.parametrize("text", ["", "{", '{"kind": "ngram"', "\x00"])
def test_half_a_file_is_named(tmp_path, text) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(RunError, match=r"cannot read .*summary.json"):
        read_summary(tmp_path)


def test_a_run_that_is_not_finished_has_none(tmp_path, runs) -> None:
    assert read_summary(tmp_path) is None
    shutil.copytree(runs["kn"], tmp_path / "kn")
    (tmp_path / "kn" / "summary.json").unlink()
    assert read_summary(tmp_path / "kn") is None


def test_a_system_without_the_resource_module_does_not_say_how_much_memory(monkeypatch) -> None:
    assert peak_memory_mb() > 1
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "")
    assert peak_memory_mb() > 1
    monkeypatch.setitem(__import__("sys").modules, "resource", None)
    assert peak_memory_mb() is None
