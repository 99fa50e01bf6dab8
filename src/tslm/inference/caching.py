"""A cache for any run: how much it counts and how sharply it recalls are tuned on a validation split."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.evaluation.perplexity import Perplexity
from tslm.evaluation.perplexity import evaluate as evaluate_ids
from tslm.evaluation.scoring import Tick
from tslm.inference.evaluate import encode
from tslm.inference.inputs import ModelLike, TextLike, as_run
from tslm.inference.interpolate import as_part, tune_linear
from tslm.models.base import HasVectors
from tslm.models.cached import CachedConfig, CachedModel
from tslm.models.parts import Part
from tslm.runs.made import save_model
from tslm.tables import html_table, show_duration, show_number, text_table

SHARPNESS = (0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 28.0, 40.0)
"""The θ that are tried; states have length one, so they mean the same for every model."""

SIZE = 2000


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model measured on a split."""

    model: str
    """``plain`` or ``cache``."""
    split: str
    measured: Perplexity
    seconds: float


@dataclass(frozen=True, repr=False)
class CacheReport:
    """What a cache gives and costs.

    Example:
        >>> tslm.evaluate_cache("runs/asv-kn5").config.size
        2000
    """

    run: str
    corpus: str
    config: CachedConfig
    """Tuned on valid."""
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        facts = {"run": self.run, "corpus": self.corpus}
        tuned = {key: getattr(self.config, key) for key in ("size", "weight", "sharpness")}
        rows = [
            {
                "model": row.model,
                "split": row.split,
                "perplexity": row.measured.perplexity,
                "tokens": row.measured.tokens,
                "seconds": row.seconds,
            }
            for row in self.rows
        ]
        return {**facts, "cache": tuned, "results": rows, "protocol": self.rows[0].measured.protocol}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of a table."""
        return ["split", "perplexity", "tokens", "time", "model"], [
            [
                row.split,
                show_number(row.measured.perplexity, 3),
                f"{row.measured.tokens:,}",
                show_duration(row.seconds),
                row.model,
            ]
            for row in self.rows
        ]

    def __repr__(self) -> str:
        tuned = f"weight {self.config.weight:.4f}, sharpness {self.config.sharpness:g}"
        return (
            f"{self.run} on {self.corpus}, cache of {self.config.size:,} words, {tuned}, tuned on valid\n"
            + text_table(*self.table(), left=(0,))
        )

    def _repr_html_(self) -> str:
        """Return the table, for a notebook."""
        return html_table(*self.table())


def with_cache(
    run: ModelLike,
    out: str | Path | None = None,
    *,
    size: int = SIZE,
    tune: TextLike | None = None,
    data_dir: str | Path | None = None,
    tick: Tick | None = None,
) -> CachedModel:
    """Give a run's model a memory of the last words, with the weight and sharpness that suit a text best.

    Args:
        run: a run folder.
        out: also save it as a run folder of its own, which every command opens.
        size: how many words are remembered.
        tune: the text to tune on; the valid split of the run's corpus when left out, never test.
        data_dir: where to look for named corpora first.
        tick: told how many more tokens have been read.

    Raises:
        TslmError: the run, the corpus or the text cannot be read.

    Example:
        >>> model = tslm.with_cache("runs/asv-kn5", tune="In the beginning God created the heavens and the earth.")
        >>> model.config.size
        2000
    """
    opened = as_run(run)
    corpus = opened.open_corpus(data_dir) if tune is None or out is not None else None
    if tune is not None:
        ids = encode(opened.model, tune).ids
    else:
        assert corpus is not None  # noqa: S101
        ids = corpus.splits["valid"]
    cached = tune_cache(as_part(opened), ids, size, tick=tick)
    if out is not None:
        assert corpus is not None  # noqa: S101
        save_model(cached, Path(out), opened, corpus, parts=(opened.model.kind,), tick=tick)
    return cached


def tune_cache(
    part: Part, ids: NDArray[np.int32], size: int, *, window: int = 4096, tick: Tick | None = None
) -> CachedModel:
    """Return the cached model that gives a text its highest probability: all θ in one pass, λ by EM for each."""
    tried = SHARPNESS if isinstance(part.model, HasVectors) else SHARPNESS[:1]
    model = CachedModel(CachedConfig(size=size, weight=0.0), part)
    state = model.start(1)
    plain: list[NDArray[np.float64]] = []
    recalled: list[NDArray[np.float64]] = []
    for begin in range(0, len(ids), window):
        scores_1T, recalled_S1T, state = model.score_parts(ids[None, begin : begin + window], state, tried)
        plain.append(scores_1T[0].astype(np.float64))
        recalled.append(recalled_S1T[:, 0])
        if tick is not None:
            tick(scores_1T.size)
    plain_N, recalled_SN = np.concatenate(plain), np.concatenate(recalled, axis=1)
    best, found = -np.inf, model.config
    for theta, recalled_N in zip(tried, recalled_SN, strict=True):
        with np.errstate(divide="ignore"):
            # While the cache is empty the model stands alone, whatever the weight.
            log_KN = np.stack([plain_N, np.where(np.isnan(recalled_N), plain_N, np.log(recalled_N))])
        weights = tune_linear(log_KN)
        gained = float(np.log(weights @ np.exp(log_KN)).mean())
        if gained > best:
            weight = min(float(weights[1]), 1 - 1e-9)
            best, found = gained, CachedConfig(size=size, weight=weight, sharpness=theta)
    return CachedModel(found, part)


def evaluate_cache(
    run: ModelLike,
    out: str | Path | None = None,
    *,
    size: int = SIZE,
    data_dir: str | Path | None = None,
    tick: Tick | None = None,
) -> CacheReport:
    """Tune a cache on valid, and measure the model without and with it on valid and test.

    Args:
        run: a run folder.
        out: also save the tuned model as a run folder of its own.
        size: how many words are remembered.
        data_dir: where to look for named corpora first.
        tick: told how many more tokens have been read.

    Raises:
        TslmError: the run or its corpus cannot be read.
    """
    opened = as_run(run)
    corpus = opened.open_corpus(data_dir)
    cached = with_cache(opened, out, size=size, data_dir=data_dir, tick=tick)
    rows: list[Row] = []
    for split in ("valid", "test"):
        for name, model in (("plain", opened.model), ("cache", cached)):
            begun = time.perf_counter()
            measured = evaluate_ids(model, corpus.splits[split], reset=False, tick=tick)
            seconds = time.perf_counter() - begun
            rows.append(Row(model=name, split=split, measured=measured, seconds=seconds))
    return CacheReport(str(opened.folder), corpus.name, cached.config, tuple(rows))
