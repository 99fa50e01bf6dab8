"""The learning rate of each step."""

from __future__ import annotations

import math

from tslm.training.config import TrainConfig


def learning_rate(config: TrainConfig, step: int, steps: int, plateaus: int) -> float:
    """Return the rate of a step.

    Args:
        config: the peak, the warm-up and the shape.
        step: the number of the step, from 0.
        steps: how many steps the whole run has.
        plateaus: how often validation has got worse so far.
    """
    warm_up = config.warm_up * steps
    if step < warm_up:
        return config.learning_rate * (step + 1) / warm_up
    if config.schedule == "plateau":
        return config.learning_rate / 4**plateaus
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - warm_up) / max(steps - warm_up, 1)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
