"""The weights of a mix of models, tuned on a text, and the mix as a run of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from tslm.errors import NumberError
from tslm.evaluation.scoring import Tick, score_text
from tslm.inference.evaluate import encode
from tslm.inference.inputs import ModelLike, TextLike, as_run, check_several, read_choice
from tslm.models.interpolation import Form, Interpolation, InterpolationConfig
from tslm.models.parts import Part
from tslm.runs.made import check_place, save_model
from tslm.runs.run import Run
from tslm.shapes import Float

COLUMNS = 64
"""A text is cut into this many columns where all words' probabilities are needed at every token."""


def mix(
    runs: Sequence[ModelLike],
    out: str | Path | None = None,
    *,
    form: Form = "linear",
    tune: TextLike | None = None,
    data_dir: str | Path | None = None,
    tick: Tick | None = None,
) -> Interpolation:
    """Mix the models of runs into one, with the weights that give a text its highest probability.

    Args:
        runs: two or more run folders over the same words.
        out: also save the mix as a run folder of its own, which needs its parts' folders no more.
        form: ``linear`` adds probabilities, Σ λ p; ``log-linear`` multiplies them, Π p^λ, and normalises.
        tune: the text to tune on; the valid split of the first run's corpus when left out, never test.
        data_dir: where to look for named corpora first.
        tick: told how many more tokens have been read.

    Raises:
        TslmError: a run, the corpus or the text cannot be read, or the models know different words.

    Example:
        >>> mixed = tslm.mix(["runs/asv-kn5", "runs/asv-kn5"], tune="In the beginning God created the earth.")
        >>> mixed.config.weights
        (0.5, 0.5)
    """
    check_several(runs, "run folders to mix")
    opened = [as_run(run) for run in runs]
    parts = [as_part(run) for run in opened]
    read_choice(form, get_args(Form), "form")
    check_place(out, Interpolation.kind, opened[0], parts)
    corpus = opened[0].open_corpus(data_dir) if tune is None or out is not None else None
    ids = encode(opened[0].model, tune).ids if tune is not None else None
    if ids is None:
        assert corpus is not None  # noqa: S101
        ids = corpus.splits["valid"]
    tuned = tune_mix(form, parts, ids, tick=tick)
    if out is not None:
        assert corpus is not None  # noqa: S101
        kinds = [part.model.kind for part in parts]
        save_model(tuned, Path(out), opened[0], corpus, parts=kinds, tick=tick)
    return tuned


def tune_mix(
    form: Form, parts: Sequence[Part], ids: NDArray[np.int32], *, tick: Tick | None = None
) -> Interpolation:
    """Return the mix whose weights give a text its highest probability.

    Args:
        form: linear or log-linear.
        parts: the models.
        ids: the text (a validation split), encoded with the first model's vocabulary, state carried across lines.
        tick: told how many more tokens have been read.

    Raises:
        NumberError: every part finds some word of the text impossible.
    """
    even = Interpolation(InterpolationConfig(form=form, weights=(1 / len(parts),) * len(parts)), parts)
    if form == "linear":
        own = [even.ids_of(place, ids) for place in range(len(parts))]
        weights = tune_linear(
            np.stack(
                [score_text(part.model, its, tick=tick)[0] for part, its in zip(parts, own, strict=True)]
            )
        )
    else:
        weights = _tune_log_linear(even, ids, tick)
    return Interpolation(replace(even.config, weights=tuple(weights.tolist())), parts)


def as_part(run: Run) -> Part:
    """Return the model of a run as a part of a mix."""
    return Part(run.model, run.recipe.model)


def tune_linear(
    log_KN: Float[np.ndarray, "K N"], *, tolerance: float = 1e-10, limit: int = 10_000
) -> Float[np.ndarray, " K"]:
    """Return the λ that maximise Σ_n ln Σ_k λ_k p_k(n), by expectation maximisation.

    Each step sets λ_k to the mean share of part k in the mixed probability. The problem is concave and no step makes
    it worse, so the end does not depend on the start.

    Args:
        log_KN: ln p of each token under each part.
        tolerance: stop when a step gains less than this many nats per token.
        limit: the largest number of steps.
    """
    best_N = log_KN.max(axis=0)
    if (best_N == -np.inf).any():
        raise NumberError("every model finds some word of the text impossible; add a smoothed model")
    relative_KN = np.exp(log_KN - best_N)
    weights = np.full(len(log_KN), 1 / len(log_KN))
    before = -math.inf
    for _ in range(limit):
        mixed_N = weights @ relative_KN
        gained = float(np.log(mixed_N).mean())
        if gained - before < tolerance:
            break
        before = gained
        weights = weights * (relative_KN @ (1 / mixed_N)) / log_KN.shape[1]
    return weights / weights.sum()


def _tune_log_linear(
    even: Interpolation, ids: NDArray[np.int32], tick: Tick | None
) -> Float[np.ndarray, " K"]:
    """Return the λ that maximise Σ_n (Σ_k λ_k ln p_k(n) − ln Z_n(λ)), by Newton's method; the problem is concave.

    Each step reads the text once, cut into columns so that many distributions are formed at a time; only a column's
    first words see another history than in the whole text.
    """
    return climb(lambda weights: _derivatives(even, weights, ids, tick), len(even.parts))


def climb(
    derive: Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]], count: int
) -> Float[np.ndarray, " K"]:
    """Return the weights, none below zero, at which a concave log-likelihood is highest, by Newton's method.

    Args:
        derive: gives its gradient at some weights, and minus its Hessian.
        count: how many weights there are; they begin equal, with the sum one.

    Raises:
        NumberError: all weights fall to zero.
    """
    weights = np.full(count, 1 / count)
    for _ in range(12):
        gradient, curvature = derive(weights)
        # What is at zero and would go below stays there, and the others step as if it were not.
        free = (weights > 0) | (gradient > 0)
        # A little on the diagonal: two equal models have no one best weight.
        ridge = 1e-9 * np.trace(curvature) * np.eye(count)
        step = np.zeros(count)
        step[free] = np.linalg.solve((curvature + ridge)[np.ix_(free, free)], gradient[free])
        moved = np.maximum(weights + np.clip(step, -0.5, 0.5), 0.0)
        if moved.sum() == 0:
            raise NumberError(
                "no weights above zero help; mix the models linearly: tslm compare --mix linear"
            )
        change = float(np.abs(moved - weights).max())
        weights = moved
        if change < 1e-4:
            break
    return weights


def _derivatives(
    even: Interpolation, weights: NDArray[np.float64], ids: NDArray[np.int32], tick: Tick | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the gradient and minus the Hessian of the mean log-likelihood at the given weights."""
    count = len(even.parts)
    positive = Interpolation(
        InterpolationConfig(form="log-linear", weights=tuple(np.maximum(weights, 1e-12).tolist())), even.parts
    )
    width = max(1, min(COLUMNS, len(ids) // 1000))
    tokens_BT = ids[: len(ids) // width * width].reshape(width, -1)
    gradient, curvature = np.zeros(count), np.zeros((count, count))
    state, rows = positive.start(width), np.arange(width)
    for tokens_B in tokens_BT.T:
        log_KBV = positive.predict_parts(state)
        mixed_BV = positive.mix(log_KBV)
        probability_BV = np.exp(mixed_BV - mixed_BV.max(1, keepdims=True))
        probability_BV /= probability_BV.sum(1, keepdims=True)
        # A word of probability zero has no share in any mean, but 0 · −∞ is not zero.
        log_KBV = np.where(probability_BV > 0, log_KBV, 0.0)
        mean_KB = (log_KBV * probability_BV).sum(2)
        target_KB = log_KBV[:, rows, tokens_B]
        if bool((probability_BV[rows, tokens_B] == 0).any()):
            raise NumberError("some word of the text is impossible for one of the models; use a linear mix")
        gradient += (target_KB - mean_KB).sum(1)
        weighted_KX = (log_KBV * probability_BV).reshape(count, -1)
        curvature += weighted_KX @ log_KBV.reshape(count, -1).T - mean_KB @ mean_KB.T
        _, state = positive.score_parts(tokens_B[:, None], state)
        if tick is not None:
            tick(width)
    return gradient / tokens_BT.size, curvature / tokens_BT.size
