from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from tslm.config import check, read_config, write_config
from tslm.errors import RecipeError


@dataclass(frozen=True, kw_only=True)
class Settings:
    size: int
    rate: float = 0.5
    flag: bool = False
    shape: Literal["round", "square"] = "round"
    names: tuple[str, ...] = ()
    limit: int | None = None

    def __post_init__(self) -> None:
        check(self.size > 0, f"settings.size = {self.size} must be positive")


def test_plain_values_go_in_and_come_back() -> None:
    values = {"size": 3, "rate": 2, "flag": True, "shape": "square", "names": ["a", "b"], "limit": 7}
    settings = read_config(Settings, values, "settings")
    assert settings == Settings(size=3, rate=2.0, flag=True, shape="square", names=("a", "b"), limit=7)
    assert write_config(settings) == values
    assert "limit" not in write_config(Settings(size=1))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 1, "ratee": 1}, "unknown key 'settings.ratee': did you mean 'rate'"),
        ({}, "missing key 'settings.size'"),
        ({"size": "3"}, "settings.size = '3' is not of type int"),
        ({"size": True}, "settings.size = True is not of type int"),
        ({"size": 1, "shape": "squar"}, "is not one of round, square; did you mean 'square'"),
        ({"size": 1, "names": 3}, "settings.names = 3 is not a list"),
        ({"size": 1, "rate": float("nan")}, "is not a finite number"),
        ({"size": 1, "limit": 1.5}, "settings.limit = 1.5 is not of type int"),
        ({"size": 0}, "settings.size = 0 must be positive"),
    ],
)
def test_wrong_values_are_named(values, message) -> None:
    with pytest.raises(RecipeError, match=message.replace("(", r"\(")):
        read_config(Settings, values, "settings")
