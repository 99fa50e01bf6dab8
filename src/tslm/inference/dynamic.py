"""How fast a model learns while it reads, tuned on a validation split."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tslm.errors import NumberError, UnsupportedError
from tslm.evaluation.scoring import Tick

if TYPE_CHECKING:  # imported where a model learns, which an n-gram model never does
    from tslm.models.trainable import Trainable
    from tslm.training.dynamic import Dynamic, DynamicConfig

RATES = (3e-5, 1e-4, 3e-4)
DECAYS = (0.003, 0.0, 0.02)
"""The η and λ that are tried."""

TUNED_ON = 10_000
"""How many words of valid choose between them."""

KNOWN = 16_000
"""How many words of train say how large gradients are."""


def as_trainable(model: Any) -> Trainable[Any]:
    """Return a model that can learn while it reads.

    Raises:
        UnsupportedError: it cannot.
    """
    from tslm.models.trainable import Trainable

    if not isinstance(model, Trainable) or not model.asks:
        raise UnsupportedError(
            f"a model of kind {model.kind!r} cannot learn while it reads; give the run of a recurrent model, "
            "or leave --dynamic out"
        )
    return model


def tune_dynamic(learner: Dynamic, ids: NDArray[np.int32], *, tick: Tick | None = None) -> DynamicConfig:
    """Return the rate and the decay that give a text its highest probability.

    Raises:
        NumberError: with none of them the text has any.
    """
    from tslm.training.dynamic import DynamicConfig

    nats: dict[DynamicConfig, float] = {}

    def tried(config: DynamicConfig) -> float:
        if config not in nats:
            with learner.restored():
                found = learner.nats(ids, config, tick=tick)
            nats[config] = found if math.isfinite(found) else math.inf
        return nats[config]

    # One after the other: the best rate hardly depends on the pull.
    configs = [DynamicConfig(rate=rate, decay=DECAYS[0], segment=learner.segment) for rate in RATES]
    best = min(configs, key=tried)
    best = min((replace(best, decay=decay) for decay in DECAYS), key=tried)
    if nats[best] == math.inf:
        raise NumberError("learning while reading goes astray with every rate; the model may be damaged")
    return best


def count_tuning(words: int) -> int:
    """Return how many words :func:`tune_dynamic` reads of a text of so many."""
    return words * (len(RATES) + len(DECAYS) - 1)
