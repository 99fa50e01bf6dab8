from __future__ import annotations

import pytest
import torch

from tslm.training.config import TrainConfig
from tslm.training.penalties import PENALTIES, penalise


def test_penalties_are_added_with_their_weights() -> None:
    outputs_TBR = torch.tensor([[[1.0, 2.0]], [[3.0, 2.0]]])
    latents_NKM = torch.tensor([[[3.0]], [[1.0]]])
    loss = torch.tensor(7.0)
    assert penalise(loss, TrainConfig(), outputs_TBR, latents_NKM) is loss
    assert float(penalise(loss, TrainConfig(activation_penalty=2.0), outputs_TBR, latents_NKM)) == 7 + 2 * 5
    assert float(penalise(loss, TrainConfig(change_penalty=0.5), outputs_TBR, latents_NKM)) == 7 + 0.5 * 2
    # A window of one word has no change.
    assert float(penalise(loss, TrainConfig(change_penalty=0.5), outputs_TBR[:1], latents_NKM)) == 7


@pytest.mark.parametrize("name", PENALTIES)
def test_every_penalty_has_a_weight_that_is_off_unless_given(name) -> None:
    assert getattr(TrainConfig(), name) == 0
