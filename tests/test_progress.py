"""Progress: nothing for what is quick, plain lines off a terminal for what is not."""

from __future__ import annotations

import pytest

from tslm import progress


def test_what_is_quick_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.track_count("sorting", 10, "tokens") as advance:
        advance(10)
    assert capsys.readouterr().err == ""


def test_plain_lines_off_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    with progress.track_count("sorting", 4000, "tokens") as advance:
        advance(1000)
        advance(1000)  # within the ten seconds between lines
    line = capsys.readouterr().err
    assert line.startswith("sorting: 25 % 1,000 tokens, ")
    assert line.count("\n") == 1
    with progress.track_bytes("reading " + "a" * 90, None) as advance:
        advance(3_000_000)
    line = capsys.readouterr().err
    assert line.startswith(f"reading {'a' * 90}: 3 MB, ")
    assert line.count("\n") == 1
