from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from tslm.cli.numbers import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("0", 0), ("1.5h", 5400), ("5", 300)],
)
def test_durations(text, seconds) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1h", "2d", "h", "1h 30", "nan", "inf"])
def test_what_is_no_duration_is_refused(text) -> None:
    with pytest.raises(ArgumentTypeError, match="no duration"):
        duration(text)
