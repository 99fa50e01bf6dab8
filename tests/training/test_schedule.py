from __future__ import annotations

import pytest

from tslm.training.config import TrainConfig
from tslm.training.schedule import learning_rate


def rates(**settings) -> list[float]:
    config = TrainConfig(learning_rate=1.0, warm_up=0.1, **settings)
    return [learning_rate(config, step, 100, plateaus=2) for step in range(100)]


@pytest.mark.parametrize("schedule", ["cosine", "constant", "plateau"])
def test_every_schedule_warms_up(schedule) -> None:
    assert rates(schedule=schedule)[:10] == pytest.approx([0.1 * step for step in range(1, 11)])


def test_the_rest_of_each_schedule() -> None:
    cosine = rates(schedule="cosine")
    assert cosine[10] == pytest.approx(1.0)
    assert cosine[55] == pytest.approx(0.5)
    assert 0 < cosine[99] < 0.001
    assert rates(schedule="constant")[50] == 1.0
    assert rates(schedule="plateau")[50] == pytest.approx(1 / 16)
