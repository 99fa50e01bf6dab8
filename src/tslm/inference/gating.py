"""A gate between models, learnt on a validation split, and the mixture as a run of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from tslm.evaluation.perplexity import perplexity
from tslm.evaluation.scoring import Tick
from tslm.inference.evaluate import encode
from tslm.inference.inputs import ModelLike, TextLike, as_run, check_several, read_choice, read_count
from tslm.inference.interpolate import as_part, tune_linear
from tslm.models.gate import GatedConfig, GatedMixture, Sight, even_gate
from tslm.models.parts import Part
from tslm.runs.made import check_place, save_model


@dataclass(frozen=True, kw_only=True)
class Gating:
    """A gated mixture, and what the gate gave on the text it was learnt from.

    Example:
        >>> text = "In the beginning God created the heavens and the earth."
        >>> tslm.gate(["runs/asv-kn5", "runs/asv-kn5"], tune=text).model.kind
        'gated-mixture'
    """

    model: GatedMixture

    fixed: float
    """The perplexity with one weight per part, the best on the text."""

    halves: float
    """That of both halves of the text, each under a gate that has learnt from the other; the halves also say how long
    the gate learns, and nothing else of it."""

    fitted: float
    """That of the text under the gate that has learnt from it."""


def gate(
    runs: Sequence[ModelLike],
    out: str | Path | None = None,
    *,
    sees: Sight = "counts",
    hidden: int = 32,
    tune: TextLike | None = None,
    data_dir: str | Path | None = None,
    tick: Tick | None = None,
) -> Gating:
    """Mix the models of runs by a gate that sees what they know of the words so far.

    Args:
        runs: two or more run folders over the same words.
        out: also save the mixture as a run folder of its own, which needs its parts' folders no more.
        sees: what count tensors and caches know of the history (``counts``), the direction of recurrent states
            (``state``), or ``both``.
        hidden: the units of the gate.
        tune: the text to learn from; the valid split of the first run's corpus when left out, never test.
        data_dir: where to look for named corpora first.
        tick: told how many more tokens have been read.

    Raises:
        TslmError: a run, the corpus or the text cannot be read, the models know different words, or there is nothing
            for the gate to see.
    """
    check_several(runs, "run folders to mix")
    opened = [as_run(run) for run in runs]
    parts = [as_part(run) for run in opened]
    read_choice(sees, get_args(Sight), "sees")
    config = GatedConfig(parts=len(parts), sees=sees, hidden=read_count(hidden, "hidden"))
    check_place(out, GatedMixture.kind, opened[0], parts)
    corpus = opened[0].open_corpus(data_dir) if tune is None or out is not None else None
    if tune is not None:
        ids = encode(opened[0].model, tune).ids
    else:
        assert corpus is not None  # noqa: S101
        ids = corpus.splits["valid"]
    found = fit_gate(config, parts, ids, tick=tick)
    if out is not None:
        assert corpus is not None  # noqa: S101
        kinds = [part.model.kind for part in parts]
        save_model(found.model, Path(out), opened[0], corpus, parts=kinds, tick=tick)
    return found


def fit_gate(
    config: GatedConfig, parts: Sequence[Part], ids: NDArray[np.int32], *, tick: Tick | None = None
) -> Gating:
    """Return the mixture whose gate has learnt from a text (a validation split), state carried across lines."""
    from tslm.training.gate import learn_gate, nats_of

    known_NF, log_NK = observe(GatedMixture(config, parts, even_gate(config, parts)), ids, tick=tick)
    weights = tune_linear(log_NK.T)
    gate, halves = learn_gate(known_NF, log_NK, weights, hidden=config.hidden)
    with np.errstate(divide="ignore"):
        fixed = -float(np.log(np.exp(log_NK) @ weights).sum())
    return Gating(
        model=GatedMixture(config, parts, gate),
        fixed=perplexity(fixed, len(ids)),
        halves=halves,
        fitted=perplexity(nats_of(gate, known_NF, log_NK), len(ids)),
    )


def observe(
    mixture: GatedMixture, ids: NDArray[np.int32], *, tick: Tick | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what a gate sees before each word of a text, and ln p of the word under each part."""
    state = mixture.start(1)
    known: list[NDArray[np.float64]] = []
    scores: list[NDArray[np.float64]] = []
    for begin in range(0, len(ids), mixture.window):
        scores_K1T, known_1TF, state = mixture.score_parts(ids[None, begin : begin + mixture.window], state)
        known.append(known_1TF[0])
        scores.append(scores_K1T[:, 0].T)
        if tick is not None:
            tick(len(known_1TF[0]))
    return np.concatenate(known), np.concatenate(scores)
