"""What a request will cost on this machine: measured once at start-up, estimated before each request begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tslm.errors import NumberError
from tslm.inference.generate import Generation, Sampling
from tslm.models.base import LanguageModel
from tslm.models.ngram.blanks import FillCost, FillsBlanks
from tslm.serve.limits import Limits, Refused
from tslm.stopping import Unwanted, wanted_until

MEASURED_SECONDS = 0.2
"""How long each measurement at start-up takes, about."""

PATTERN = (None, None, None)
"""What is filled to measure: the last of three blanks side by side is a pass over the whole model."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How long a model takes on this machine."""

    plain_step: tuple[float, float]
    """Seconds for one more word of one sample, and of sixteen samples side by side, drawn from the model itself."""

    shaped_step: tuple[float, float]
    """The same where temperature, top-k or top-p change the distribution, so that all of it is needed."""

    fill_term: float
    """Seconds for each n-gram that a blank sums over; zero where the model cannot fill blanks."""

    def generation_seconds(self, number: int, length: int, sampling: Sampling) -> float:
        """Return about how long samples will take."""
        one, sixteen = self.plain_step if sampling.plain else self.shaped_step
        return length * (one + (sixteen - one) * (number - 1) / 15)

    def filling_seconds(self, cost: FillCost) -> float:
        """Return about how long a pattern will take."""
        return cost.terms * self.fill_term


def measure_rates(model: LanguageModel[Any]) -> Rates:
    """Measure a model; takes about a second."""
    plain, shaped = Sampling(), Sampling(temperature=0.9, top_p=0.9)
    return Rates(
        plain_step=(_measure_step(model, 1, plain), _measure_step(model, 16, plain)),
        shaped_step=(_measure_step(model, 1, shaped), _measure_step(model, 16, shaped)),
        fill_term=_measure_filling(model) if isinstance(model, FillsBlanks) else 0.0,
    )


def check_seconds(seconds: float, limits: Limits, what: str) -> None:
    """Raise for a request that will take too long.

    Raises:
        Refused: it will (413).
    """
    if seconds > limits.estimated_seconds:
        raise Refused(
            413,
            f"{what} would take about {seconds:.0f} s on this machine; ask for less "
            f"than {limits.estimated_seconds:.0f} s of work",
        )


def check_filling(cost: FillCost, limits: Limits, rates: Rates | None) -> None:
    """Raise for a pattern that will take too much memory or too long.

    Raises:
        Refused: it will (413).
    """
    if cost.bytes > limits.memory_bytes:
        raise Refused(
            413,
            f"this pattern would need about {cost.bytes / 2**20:,.0f} MiB; at most "
            f"{limits.memory_bytes / 2**20:,.0f} MiB are given to one request: ask for fewer blanks side by side",
        )
    if rates is not None:
        check_seconds(rates.filling_seconds(cost), limits, "this pattern")


def _measure_step(model: LanguageModel[Any], number: int, sampling: Sampling) -> float:
    steps = iter(Generation(model, number=number, length=10**9, stop=(), sampling=sampling))
    try:
        next(steps)  # what is prepared once is not counted
        return _repeat(lambda: next(steps))
    except NumberError:
        return 0.0  # a model that comes to an end where no word is possible: it cannot go on for long either


def _measure_filling(model: FillsBlanks) -> float:
    terms = model.fill_cost(PATTERN).terms
    began = time.perf_counter()
    try:
        with wanted_until(lambda: time.perf_counter() - began > 10 * MEASURED_SECONDS):
            model.fill(PATTERN, span="fragment").best(1)
    except Unwanted:
        pass  # so large a model that even this takes long; the time so far is a lower bound
    return (time.perf_counter() - began) / terms


def _repeat(step: Callable[[], object]) -> float:
    began, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < MEASURED_SECONDS:
        step()
        count += 1
    return elapsed / count
