"""Whether a step's candidates still stand for all words.

A model can give probability to words that are hardly ever drawn: the loss over candidates then falls while the one over
all words rises, which looks like overfitting and is not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tslm.corpus.streams import Columns
from tslm.models.recurrent.heads.base import score_targets
from tslm.models.trainable import Trainable
from tslm.training.config import ObjectiveConfig
from tslm.training.objective import Objective

WINDOWS = 4
"""How many windows are compared: enough, as each has words from everywhere in the text."""

ESCAPED = 0.1
"""Nats a word above which rare words escape: healthy runs have had about a third of it at most."""


@torch.no_grad()
def measure_escape(
    model: Trainable[Any], objective: Objective, columns: Columns, *, carry: bool = True
) -> float:
    """Return how many nats a word the loss over candidates is below the one over all words, dropout off.

    Args:
        model: one whose loss is the cross entropy that training gives it (``asks``).
        objective: draws the candidates.
        columns: a text that the model does not learn.
        carry: carry the state from window to window, or start anew at each.
    """
    gaps: list[float] = []
    tokens: list[int] = []

    def compare(
        latents_NKM: Tensor,
        log_prior_NK: Tensor | None,
        weight_VM: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
    ) -> Tensor:
        keep = targets_N >= 0
        latents_NKM, targets_N = latents_NKM[keep], targets_N[keep]
        log_prior_NK = None if log_prior_NK is None else log_prior_NK[keep]
        estimate = objective.loss(latents_NKM, log_prior_NK, weight_VM, bias_V, targets_N)
        exact = -score_targets(latents_NKM, log_prior_NK, weight_VM, bias_V, targets_N).mean()
        gaps.append(float(exact - estimate))
        tokens.append(len(targets_N))
        return estimate

    training, device = model.training, next(model.parameters()).device
    model.eval()
    try:
        carried = model.begin(columns.batch)
        for number in range(min(WINDOWS, len(columns))):
            inputs_TB, targets_TB = (tokens_BT.t().contiguous().to(device) for tokens_BT in columns[number])
            window = model.read_window(inputs_TB, targets_TB, carried, compare)
            carried = window.carried if carry else model.begin(columns.batch)
    finally:
        model.train(training)
    return float(np.average(gaps, weights=tokens))


def warn_of_escape(escape: float, config: ObjectiveConfig) -> str:
    """Say what has happened, and what to do about it."""
    return (
        f"warning: rare words escape the {config.frequent:,} + {config.sampled:,} candidates of a step: on valid they "
        f"show a perplexity {100 * (1 - math.exp(-escape)):.0f}% below the true one, and so does train. Raise "
        "objective.sampled and objective.frequent, or leave both out to sum over all words"
    )
