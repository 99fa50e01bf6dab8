"""How a text is read, by a model as it is, by one that learns from it or by counts, and what each says of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tslm.errors import UnsupportedError
from tslm.evaluation.scoring import Tick
from tslm.inference.interpolate import as_part
from tslm.inference.reading import Spent
from tslm.models.base import HasVectors, KnowsHistory, LanguageModel
from tslm.models.cached import CachedState, Trial, remember
from tslm.models.interpolation import Interpolation, InterpolationConfig
from tslm.runs.run import Run

if TYPE_CHECKING:  # imported where a model learns, which an n-gram model never does
    from tslm.training.dynamic import Dynamic, DynamicConfig

WINDOW = 4096
"""How many words are read before the cache is asked about them."""

Piece = tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]] | None]
"""ln p of some words, and the vectors from which they were predicted where the model has any."""

Pieces = Generator[Piece, None, None]

Reader = Callable[[NDArray[np.int32], Tick], Pieces]
"""Reads a text from its beginning to its end."""


def ignore(_: int) -> None:
    """Take no notice of how many more tokens have been read."""


def read_plainly(model: LanguageModel[Any], ids: NDArray[np.int32], tick: Tick) -> Pieces:
    """Read a text with a model that stays as it is."""
    state = model.start(1)
    for begin in range(0, len(ids), WINDOW):
        tokens_1T, vectors_1TM = ids[None, begin : begin + WINDOW], None
        if isinstance(model, HasVectors):
            scores_1T, vectors_1TM, state = model.score_vectors(tokens_1T, state)
        else:
            scores_1T, state = model.score(tokens_1T, state)
        yield scores_1T[0], None if vectors_1TM is None else vectors_1TM[0]
        tick(tokens_1T.size)


def read_learning(learner: Dynamic, config: DynamicConfig, ids: NDArray[np.int32], tick: Tick) -> Pieces:
    """Read a text with a model that learns from it, and then has its trained weights back."""
    together = max(1, WINDOW // config.segment)

    def join(pieces: list[tuple[NDArray[Any], NDArray[Any]]]) -> Piece:
        scores, vectors = zip(*pieces, strict=True)
        return np.concatenate(scores), np.concatenate(vectors)

    held: list[tuple[NDArray[Any], NDArray[Any]]] = []
    with learner.restored():
        for piece in learner.read(ids, config, tick=tick):
            held.append(piece)
            if len(held) == together:
                yield join(held)
                held = []
    if held:
        yield join(held)


class Heard(NamedTuple):
    """What a model and its cache say of a text, each by itself."""

    scores_N: NDArray[np.float64]
    """ln p of each word under the model."""
    recalled_SN: NDArray[np.float64]
    """p under the cache with each N and θ; nan while it is empty."""
    likeness_SN: NDArray[np.float64]
    """What a gate may see of the cache before each word, with each N and θ."""
    reading: Spent
    """Time of the model."""
    recalling: Spent
    """Time of the cache."""


def hear(pieces: Pieces, ids: NDArray[np.int32], tried: Sequence[Trial]) -> Heard:
    """Read a text to its end, and ask a cache of what was read about every word, with each N and θ; or none."""
    state = CachedState(None, np.empty((1, 0), np.int64), None)
    scores, recalled, likeness = [np.empty(0)], [np.empty((len(tried), 0))], [np.empty((len(tried), 0))]
    done, recalling, begun = 0, Spent(), Spent.now()
    with closing(pieces):  # whatever happens here, a model that has learnt is given its trained weights back
        for scores_T, vectors_TM in pieces:
            scores.append(scores_T.astype(np.float64))
            tokens_1T, done = ids[None, done : done + len(scores_T)], done + len(scores_T)
            if not tried:
                continue
            paused = Spent.now()
            vectors_1TM = None if vectors_TM is None else vectors_TM[None]
            read, state = remember(tokens_1T, scores_T[None], vectors_1TM, state, tried)
            recalled.append(read.recalled_SBT[:, 0])
            likeness.append(read.likeness_SBT[:, 0])
            recalling += Spent.now() - paused
    reading = Spent.now() - begun - recalling
    return Heard(
        np.concatenate(scores), np.concatenate(recalled, 1), np.concatenate(likeness, 1), reading, recalling
    )


class Said(NamedTuple):
    """What a way of reading says of a text."""

    scores_N: NDArray[np.float64]
    """ln p of each word."""
    known_NF: NDArray[np.float64]
    """What a gate may see before each word."""
    spent: Spent


def prepare_counts(opened: Run, counted: Run) -> Callable[[NDArray[np.int32], Tick], Said]:
    """Return how counts are asked about a text that is given by another model's ids.

    Raises:
        UnsupportedError: they cannot say what they know.
        RunError: the models know different words.
    """
    model: Any = counted.model
    if not isinstance(model, KnowsHistory):
        raise UnsupportedError(
            f"a model of kind {counted.model.kind!r} cannot say how well it knows the words so far; "
            "give --counts the run of an n-gram model"
        )
    even = Interpolation(InterpolationConfig(weights=(0.5, 0.5)), [as_part(opened), as_part(counted)])

    def ask(ids: NDArray[np.int32], tick: Tick) -> Said:
        begun, state = Spent.now(), counted.model.start(1)
        scores, known = list[NDArray[Any]](), list[NDArray[Any]]()
        for begin in range(0, len(ids), WINDOW):
            tokens_1T = even.ids_of(1, ids[None, begin : begin + WINDOW])
            scores_1T, known_1TF, state = model.score_knowing(tokens_1T, state)
            scores.append(scores_1T[0])
            known.append(known_1TF[0])
            tick(scores_1T.size)
        joined = np.concatenate(scores, dtype=np.float64), np.concatenate(known, dtype=np.float64)
        return Said(*joined, Spent.now() - begun)

    return ask
