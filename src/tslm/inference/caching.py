"""A cache for any run: how much it counts and how sharply it recalls are tuned on a validation split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tslm.evaluation.perplexity import Perplexity
from tslm.evaluation.perplexity import evaluate as evaluate_ids
from tslm.evaluation.scoring import Tick
from tslm.inference.evaluate import encode
from tslm.inference.inputs import ModelLike, TextLike, as_run, read_count
from tslm.inference.interpolate import as_part, tune_linear
from tslm.inference.reading import ReadingReport, Row, measure_row
from tslm.models.base import HasVectors, LanguageModel
from tslm.models.cached import CachedConfig, CachedModel, Trial
from tslm.models.parts import Part
from tslm.runs.made import check_place, save_model
from tslm.runs.pretrained import name_run
from tslm.runs.summary import Split

SHARPNESS = (0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 28.0, 40.0)
"""The θ that are tried; states have length one, so they mean the same for every model."""

SIZES = (500, 1000, 2000, 4000)
"""The N that are tried where none is given: one pass with the largest has them all."""

Size = int | Literal["auto"]
"""How many words a cache remembers; ``auto`` chooses on the text that tunes the rest."""


def list_trials(model: LanguageModel[Any], size: Size) -> tuple[Trial, ...]:
    """Return the N and θ to try for a model; one without vectors has no θ.

    Raises:
        TslmError: the size is none.
    """
    sizes = SIZES if size == "auto" else (CachedConfig(size=read_count(size, "size"), weight=0.0).size,)
    return tuple(product(sizes, SHARPNESS if isinstance(model, HasVectors) else SHARPNESS[:1]))


def with_cache(
    run: ModelLike,
    out: str | Path | None = None,
    *,
    size: Size = "auto",
    tune: TextLike | None = None,
    data_dir: str | Path | None = None,
    tick: Tick | None = None,
) -> CachedModel:
    """Give a run's model a memory of the last words, with the weight and sharpness that suit a text best.

    Args:
        run: a run folder.
        out: also save it as a run folder of its own, which every command opens.
        size: how many words are remembered; by default, what suits that text best of 500 to 4,000.
        tune: the text to tune on; the valid split of the run's corpus when left out, never test.
        data_dir: where to look for named corpora first.
        tick: told how many more tokens have been read.

    Raises:
        TslmError: the run, the corpus or the text cannot be read.

    Example:
        >>> model = tslm.with_cache("runs/asv-kn5", tune="In the beginning God created the heavens and the earth.")
        >>> model.config.size
        500
    """
    opened = as_run(run)
    part = as_part(opened)
    tried = list_trials(part.model, size)
    check_place(out, CachedModel.kind, opened, [part])
    corpus = opened.open_corpus(data_dir) if tune is None or out is not None else None
    if tune is not None:
        ids = encode(opened.model, tune).ids
    else:
        assert corpus is not None  # noqa: S101
        ids = corpus.splits["valid"]
    cached = tune_cache(part, ids, tried, tick=tick)
    if out is not None:
        assert corpus is not None  # noqa: S101
        save_model(cached, Path(out), opened, corpus, parts=(opened.model.kind,), tick=tick)
    return cached


def tune_cache(
    part: Part,
    ids: NDArray[np.int32],
    tried: Sequence[Trial],
    *,
    window: int = 4096,
    tick: Tick | None = None,
) -> CachedModel:
    """Return the cached model that gives a text its highest probability: all N and θ in one pass, λ by EM for each."""
    model = CachedModel(CachedConfig(weight=0.0), part)
    state = model.start(1)
    plain: list[NDArray[np.float64]] = []
    recalled: list[NDArray[np.float64]] = []
    for begin in range(0, len(ids), window):
        read, state = model.read(ids[None, begin : begin + window], state, tried)
        plain.append(read.scores_BT[0].astype(np.float64))
        recalled.append(read.recalled_SBT[:, 0])
        if tick is not None:
            tick(read.scores_BT.size)
    found = choose_cache(np.concatenate(plain), np.concatenate(recalled, axis=1), tried)
    return CachedModel(found, part)


def choose_cache(
    plain_N: NDArray[np.float64], recalled_SN: NDArray[np.float64], tried: Sequence[Trial]
) -> CachedConfig:
    """Return the N, λ and θ that give a text its highest probability.

    Args:
        plain_N: ln p of each word under the model.
        recalled_SN: p under the cache with each N and θ; nan while it is empty.
        tried: these N and θ.
    """
    best, found = -np.inf, CachedConfig(size=tried[0][0], weight=0.0)
    for (size, theta), recalled_N in zip(tried, recalled_SN, strict=True):
        with np.errstate(divide="ignore"):
            # While the cache is empty the model stands alone, whatever the weight.
            log_KN = np.stack([plain_N, np.where(np.isnan(recalled_N), plain_N, np.log(recalled_N))])
        weights = tune_linear(log_KN)
        gained = float(np.log(weights @ np.exp(log_KN)).mean())
        if gained > best:
            weight = min(float(weights[1]), 1 - 1e-9)
            best, found = gained, CachedConfig(size=size, weight=weight, sharpness=theta)
    return found


def evaluate_cache(
    run: ModelLike,
    out: str | Path | None = None,
    *,
    size: Size = "auto",
    data_dir: str | Path | None = None,
    tick: Tick | None = None,
) -> ReadingReport:
    """Tune a cache on valid, and measure the model without and with it on valid and test.

    Args:
        run: a run folder.
        out: also save the tuned model as a run folder of its own.
        size: how many words are remembered; by default, what suits valid best of 500 to 4,000.
        data_dir: where to look for named corpora first.
        tick: told how many more tokens have been read.

    Raises:
        TslmError: the run or its corpus cannot be read.
    """
    opened = as_run(run)
    part = as_part(opened)
    tried = list_trials(part.model, size)
    check_place(out, CachedModel.kind, opened, [part])
    corpus = opened.open_corpus(data_dir)
    cached = tune_cache(part, corpus.splits["valid"], tried, tick=tick)
    rows: list[Row] = []
    measured: dict[Split, Perplexity] = {}
    splits: tuple[Split, ...] = ("valid", "test")
    for split in splits:
        for name, model in (("plain", opened.model), ("cache", cached)):

            def read(
                ids: NDArray[np.int32], split: Split = split, model: LanguageModel[Any] = model
            ) -> float:
                measured[split] = evaluate_ids(model, ids, reset=False, tick=tick)
                return measured[split].nats

            rows.append(measure_row(name, split, read, corpus))
    if out is not None:
        parts = (opened.model.kind,)
        save_model(cached, Path(out), opened, corpus, parts=parts, measured=measured, tick=tick)
    return ReadingReport(
        name_run(opened.folder), corpus.name, corpus.fingerprint, asdict(cached.config), tuple(rows)
    )
