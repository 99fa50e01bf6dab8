from __future__ import annotations

import pytest
import torch
from torch import nn

from tslm.training.config import TrainConfig
from tslm.training.schedule import learning_rate, make_optimiser


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


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_matrices_decay_and_vectors_do_not(optimiser) -> None:
    model = nn.Linear(3, 2)
    config = TrainConfig(optimiser=optimiser, weight_decay=0.5, learning_rate=0.1)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    chosen = make_optimiser(config, model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    chosen.step()
    torch.testing.assert_close(model.weight.detach(), 0.95 * before["weight"])
    assert torch.equal(model.bias.detach(), before["bias"])
