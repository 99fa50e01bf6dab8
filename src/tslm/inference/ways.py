"""Ways of reading, alone and together: with a cache, learning while reading, mixed with counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tslm.evaluation.perplexity import perplexity
from tslm.evaluation.scoring import Tick
from tslm.inference.caching import Size, choose_cache, list_trials
from tslm.inference.dynamic import KNOWN, TUNED_ON, as_trainable, count_tuning, tune_dynamic
from tslm.inference.inputs import ModelLike, as_run
from tslm.inference.interpolate import tune_linear
from tslm.inference.readers import (
    Heard,
    Reader,
    Said,
    hear,
    ignore,
    prepare_counts,
    read_learning,
    read_plainly,
)
from tslm.inference.reading import ReadingReport, Row, Spent
from tslm.models.cached import CachedConfig, Trial, mix_cache
from tslm.models.gate import Gate, GatedConfig
from tslm.runs.pretrained import name_run

HIDDEN = GatedConfig().hidden

Track = Callable[[str, int], AbstractContextManager[Tick]]
"""Opens a count of so many tokens for a part of the work, such as ``tslm.progress.track_count``."""


class _Way(NamedTuple):
    """A reader, and what is asked of it: what it says by itself, with a cache, or both."""

    reader: Reader
    alone: bool
    cached: bool


class _Mix(NamedTuple):
    """How counts and a model are mixed."""

    weights: NDArray[np.float64]
    gate: Gate
    halves: float


def evaluate_reading(
    run: ModelLike,
    *,
    cache: Size | None = None,
    dynamic: bool = False,
    counts: ModelLike | None = None,
    segment: int = 16,
    data_dir: str | Path | None = None,
    track: Track | None = None,
) -> ReadingReport:
    """Measure what a model gains by each way of reading and by all of them together, on valid and test.

    First the model learns while it reads, then the cache remembers what that model expected, then both are mixed with
    counts, by one weight and by a gate; every combination of what is asked for has its rows. Each is tuned on valid
    with what comes before it, how fast it learns also with the cache at work, and test is then read once.

    Args:
        run: a run folder.
        cache: how many words are remembered, or ``auto`` for what suits valid best; no cache when left out.
        dynamic: whether the model goes on learning from the text it has just scored.
        counts: the run folder of an n-gram model to mix it with.
        segment: how many words are scored before each step of learning.
        data_dir: where to look for named corpora first.
        track: opens a count for each part of the work.

    Raises:
        TslmError: a run or the corpus cannot be read, the model cannot learn, or the models know different words.

    Example:
        >>> report = tslm.evaluate_reading("runs/asv-kn5", cache=500)
        >>> [row.model for row in report.rows if row.split == "test"]
        ['plain', 'cache']
    """
    opened = as_run(run)
    learning = as_trainable(opened.model) if dynamic else None
    trials = () if cache is None else list_trials(opened.model, cache)
    counted = None if counts is None else as_run(counts)
    ask = None if counted is None else prepare_counts(opened, counted)
    corpus = opened.open_corpus(data_dir)
    train, valid, test = (corpus.splits[split] for split in ("train", "valid", "test"))
    number = 2 + (4 + bool(trials)) * dynamic + 3 * (ask is not None)
    track, steps = track or _silently, count(1)

    def step(what: str, total: int) -> AbstractContextManager[Tick]:
        return track(f"{next(steps)} of {number}: {what}", total)

    settings: dict[str, Any] = {}
    ways = {"plain": [_Way(partial(read_plainly, opened.model), alone=True, cached=bool(trials))]}
    if learning is not None:
        from tslm.training.dynamic import Dynamic

        with step("gradients of train", min(KNOWN, len(train))) as tick:
            learner = Dynamic(learning, train[:KNOWN], segment, tick=tick)
        part = valid[:TUNED_ON]
        with step("tuning the learning", count_tuning(len(part))) as tick:
            found = beside = tune_dynamic(learner, part, tick=tick)
        settings |= asdict(found)
        if trials:
            with step("tuning the learning, with a cache", count_tuning(len(part))) as tick:
                beside = tune_dynamic(learner, part, trials, tick=tick)
            settings |= {"cached rate": beside.rate, "cached decay": beside.decay}
        both = found == beside
        ways["dynamic"] = [
            _Way(partial(read_learning, learner, found), alone=True, cached=both and bool(trials))
        ]
        if not both:
            ways["dynamic"].append(_Way(partial(read_learning, learner, beside), alone=False, cached=True))

    caches: dict[str, CachedConfig] = {}
    of_valid: dict[str, Said] = {}
    for name, group in ways.items():
        with step(f"valid, {name}", len(valid) * len(group)) as tick:
            for way in group:
                tried = trials if way.cached else ()
                heard = hear(way.reader(valid, tick), valid, tried)
                if way.cached:
                    caches[name] = choose_cache(heard.scores_N, heard.recalled_SN, tried)
                of_valid |= _tell(name, way, heard, caches.get(name), tried)
    for name, chosen in caches.items():
        own = asdict(chosen)
        settings |= own if name == "plain" else {f"{name} {key}": value for key, value in own.items()}
    rows, mixes = _rows("valid", of_valid), dict[str, _Mix]()
    if ask is not None:
        with step("valid, counts", len(valid)) as tick:
            counting = ask(valid, tick)
        with step("gates", len(valid) * len(of_valid)) as tick:
            for way, said in of_valid.items():
                mixes[way] = _learn_mix(said, counting)
                tick(len(valid))
        rows += _mixed_rows("valid", of_valid, counting, mixes)
        settings["hidden"] = HIDDEN

    of_test: dict[str, Said] = {}
    for name, group in ways.items():
        with step(f"test, {name}", len(test) * len(group)) as tick:
            for way in group:
                tried = ((caches[name].size, caches[name].sharpness),) if way.cached else ()
                heard = hear(way.reader(test, tick), test, tried)
                of_test |= _tell(name, way, heard, caches.get(name), tried)
    rows += _rows("test", of_test)
    if ask is not None:
        with step("test, counts", len(test)) as tick:
            counting = ask(test, tick)
        rows += _mixed_rows("test", of_test, counting, mixes)
    return ReadingReport(
        name_run(opened.folder),
        corpus.name,
        corpus.fingerprint,
        settings,
        tuple(rows),
        None if counted is None else name_run(counted.folder),
    )


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
        TslmError: the run or its corpus cannot be read, or the model cannot learn.
    """

    def track(*_: object) -> AbstractContextManager[Tick]:
        return nullcontext(tick or ignore)

    return evaluate_reading(run, dynamic=True, segment=segment, data_dir=data_dir, track=track)


def _silently(*_: object) -> AbstractContextManager[Tick]:
    return nullcontext(ignore)


def _tell(
    name: str, way: _Way, heard: Heard, config: CachedConfig | None, tried: Sequence[Trial]
) -> dict[str, Said]:
    """Return what was heard without the cache and with it, by the names of these ways of reading."""
    told: dict[str, Said] = {}
    if way.alone:
        told[name] = Said(heard.scores_N, np.empty((len(heard.scores_N), 0)), heard.reading)
    if way.cached:
        assert config is not None  # noqa: S101
        place = tried.index((config.size, config.sharpness))
        mixed_N = mix_cache(heard.scores_N, heard.recalled_SN[place], config.weight)
        known_N1 = heard.likeness_SN[place][:, None]
        told[_join(name, "cache")] = Said(mixed_N, known_N1, heard.reading + heard.recalling)
    return told


def _beside(said: Said, counts: Said) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what a gate sees before each word, and ln p of the word under counts and model."""
    known_NF = np.concatenate([counts.known_NF, said.known_NF], axis=1)
    return known_NF, np.stack([counts.scores_N, said.scores_N], axis=1)


def _learn_mix(said: Said, counts: Said) -> _Mix:
    """Return the best weight of counts, and a gate in its place."""
    from tslm.training.gate import learn_gate

    known_NF, log_NK = _beside(said, counts)
    weights = tune_linear(log_NK.T)
    return _Mix(weights, *learn_gate(known_NF, log_NK, weights, hidden=HIDDEN))


def _rows(split: str, told: Mapping[str, Said]) -> list[Row]:
    """Return a row for each way of reading; on valid the time is that of tuning, and is left out."""
    return [_row(way, split, -float(said.scores_N.sum()), said, said.spent) for way, said in told.items()]


def _mixed_rows(split: str, told: Mapping[str, Said], counts: Said, mixes: Mapping[str, _Mix]) -> list[Row]:
    """Return two rows for each way of reading, mixed with counts."""
    from tslm.training.gate import nats_of

    rows: list[Row] = []
    for way, said in told.items():
        begun, mix = Spent.now(), mixes[way]
        known_NF, log_NK = _beside(said, counts)
        with np.errstate(divide="ignore"):
            fixed = -float(np.log(np.exp(log_NK) @ mix.weights).sum())
        gated = nats_of(mix.gate, known_NF, log_NK)
        spent = said.spent + counts.spent + (Spent.now() - begun)
        halves = mix.halves if split == "valid" else None
        rows.append(_row(_join(way, "one weight"), split, fixed, said, spent))
        rows.append(_row(_join(way, "gate, sees counts"), split, gated, said, spent, halves))
    return rows


def _row(model: str, split: str, nats: float, said: Said, spent: Spent, halves: float | None = None) -> Row:
    tokens, tuned = len(said.scores_N), split == "test"
    return Row(
        model=model,
        split=split,
        perplexity=perplexity(nats, tokens),
        tokens=tokens,
        seconds=spent.processor if tuned else None,
        wall=spent.wall if tuned else None,
        halves=halves,
    )


def _join(way: str, more: str) -> str:
    """Return the name of a way of reading with something more: ``dynamic, cache and one weight``."""
    return more if way == "plain" else f"{way.replace(' and ', ', ')} and {more}"
