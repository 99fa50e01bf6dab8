"""Learning while reading, tuned on a validation split and measured beside the model alone."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.errors import UnsupportedError
from tslm.evaluation.perplexity import evaluate as evaluate_ids
from tslm.evaluation.scoring import Tick
from tslm.inference.inputs import ModelLike, as_run
from tslm.inference.reading import ReadingReport, Row, measure_row

RATES = (3e-5, 1e-4, 3e-4)
DECAYS = (0.003, 0.0, 0.02)
"""The η and λ that are tried."""

TUNED_ON = 10_000
"""How many words of valid choose between them."""

KNOWN = 16_000
"""How many words of train say how large gradients are."""


def evaluate_dynamic(
    run: ModelLike,
    *,
    segment: int = 16,
    data_dir: str | Path | None = None,
    tick: Tick | None = None,
) -> ReadingReport:
    """Measure a trained model that goes on learning from the text it has just scored, beside the model alone.

    Args:
        run: the run folder of a recurrent model.
        segment: how many words are scored before each step.
        data_dir: where to look for named corpora first.
        tick: told how many more tokens have been read.

    Raises:
        TslmError: the run or its corpus cannot be read, or the model has no gradients.
    """
    from tslm.models.trainable import Trainable
    from tslm.training.dynamic import Dynamic, DynamicConfig

    opened = as_run(run)
    model: Any = opened.model
    if not isinstance(model, Trainable):
        raise UnsupportedError(
            f"a model of kind {opened.model.kind!r} is not trained by gradients; take --cache"
        )
    corpus = opened.open_corpus(data_dir)
    reader = Dynamic(model, corpus.splits["train"][:KNOWN], segment, tick=tick)
    part = corpus.splits["valid"][:TUNED_ON]

    def tried(config: DynamicConfig) -> float:
        with reader.restored():
            nats = reader.nats(part, config, tick=tick)
        return nats if math.isfinite(nats) else math.inf

    # One after the other: the best rate hardly depends on the pull.
    found = min((DynamicConfig(rate=rate, decay=DECAYS[0], segment=segment) for rate in RATES), key=tried)
    found = min((replace(found, decay=decay) for decay in DECAYS), key=tried)

    def plainly(ids: NDArray[np.int32]) -> float:
        return evaluate_ids(model, ids, reset=False, tick=tick).nats

    def learning(ids: NDArray[np.int32]) -> float:
        with reader.restored():
            return reader.nats(ids, found, tick=tick)

    rows: list[Row] = []
    for split in ("valid", "test"):
        rows.append(measure_row("plain", split, plainly, corpus))
        rows.append(measure_row("dynamic", split, learning, corpus))
    return ReadingReport(str(opened.folder), corpus.name, corpus.fingerprint, asdict(found), tuple(rows))
