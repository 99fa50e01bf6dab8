"""How fast a model learns while it reads, tuned on a validation split."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tslm.errors import NumberError, UnsupportedError
from tslm.evaluation.scoring import Tick
from tslm.inference.caching import choose_cache
from tslm.inference.readers import hear, ignore, read_learning
from tslm.models.cached import Trial, mix_cache

if TYPE_CHECKING:  # imported where a model learns, which an n-gram model never does
    from tslm.models.trainable import Trainable
    from tslm.training.dynamic import Dynamic, DynamicConfig

RATES = (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
DECAYS = (0.0, 0.003, 0.02, 0.1)
"""The η and λ that may be tried: from the middle on, for as long as the best is at the edge of what was tried."""

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


def tune_dynamic(
    learner: Dynamic, ids: NDArray[np.int32], tried: Sequence[Trial] = (), *, tick: Tick = ignore
) -> DynamicConfig:
    """Return the rate and the decay that give a text its highest probability.

    Args:
        learner: the model.
        ids: the text.
        tried: the N and θ of a cache that is at work too, each time with the weight that suits it; or none.
        tick: told how many more tokens have been read.

    Raises:
        NumberError: with none of them the text has any.
    """
    from tslm.training.dynamic import DynamicConfig

    nats: dict[DynamicConfig, float] = {}

    def cost(config: DynamicConfig) -> float:
        if config not in nats:
            nats[config] = _read(learner, config, ids, tried, tick)
        return nats[config]

    # One after the other: the best rate hardly depends on the pull.
    first = DynamicConfig(decay=DECAYS[_middle(DECAYS)], segment=learner.segment)
    best = climb(RATES, lambda rate: cost(replace(first, rate=rate)))
    found = replace(first, rate=best)
    found = replace(found, decay=climb(DECAYS, lambda decay: cost(replace(found, decay=decay))))
    if nats[found] == math.inf:
        raise NumberError("learning while reading goes astray with every rate; the model may be damaged")
    tick(count_tuning(len(ids)) - len(nats) * len(ids))
    return found


def climb(values: Sequence[float], cost: Callable[[float], float]) -> float:
    """Return the value of a sorted row whose cost is less than its neighbours', from the middle on downhill."""
    place = _middle(values)
    while True:
        best = min(values[max(0, place - 1) : place + 2], key=cost)
        if best == values[place]:
            return best
        place = values.index(best)


def _middle(values: Sequence[float]) -> int:
    return (len(values) - 1) // 2


def _read(
    learner: Dynamic, config: DynamicConfig, ids: NDArray[np.int32], tried: Sequence[Trial], tick: Tick
) -> float:
    """Return −ln p of a text that is learnt from while it is read, with the best of the caches; inf where p is none."""
    heard = hear(read_learning(learner, config, ids, tick), ids, tried)
    if not np.isfinite(heard.scores_N).all():
        return math.inf
    if not tried:
        return -float(heard.scores_N.sum())
    chosen = choose_cache(heard.scores_N, heard.recalled_SN, tried)
    recalled_N = heard.recalled_SN[tried.index((chosen.size, chosen.sharpness))]
    return -float(mix_cache(heard.scores_N, recalled_N, chosen.weight).sum())


def count_tuning(words: int) -> int:
    """Return how many words :func:`tune_dynamic` reads at most of a text of so many; it ticks off what it need not."""
    return words * (len(RATES) + len(DECAYS) - 1)
