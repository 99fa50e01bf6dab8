"""Models side by side on the same text: how far apart, how surely, and where.

Perplexities can be compared where the models choose between the same words. Where they do not, because their text rules
or their vocabularies differ, each is given the raw text, and what is compared is the probability of each word between
white space, whatever pieces a model makes of it; words that one of the models can only take for ``<unk>`` are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.lines import read_split
from tslm.corpus.reading import measure_text
from tslm.corpus.rule import TextRule
from tslm.corpus.sources import Corpus
from tslm.corpus.text import TextSize
from tslm.corpus.vocabulary import EOS
from tslm.errors import CorpusError, InputError, NumberError
from tslm.evaluation.perplexity import bits_per_byte, perplexity, perplexity_per_word
from tslm.evaluation.scoring import Tick, score_text
from tslm.inference.bootstrap import bootstrap, find_places
from tslm.inference.comparison import ComparedModel, Comparison, Difference, Unit
from tslm.inference.inputs import (
    ModelLike,
    TextLike,
    as_run,
    check_several,
    lines_of,
    name_model,
    name_text,
    open_model,
    read_count,
)
from tslm.models.base import LanguageModel


def compare(
    models: Sequence[ModelLike],
    text: TextLike | None = None,
    *,
    split: str = "test",
    names: Sequence[str] | None = None,
    top: int = 5,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 1,
    data_dir: str | Path | None = None,
    tick: Tick | None = None,
) -> Comparison:
    """Set models side by side on the same text, the state carried from line to line.

    Args:
        models: two or more models or run folders; the others are compared with the first.
        text: a string, a list or column of strings, or a ``Path``; a split of the first run's corpus when left out.
        split: which split.
        names: what to call the models; their folders, or their kinds, when left out.
        top: how many words where they differ most.
        resamples: of the bootstrap.
        confidence: of its interval.
        seed: of its draws.
        data_dir: where to look for named corpora first.
        tick: told how many more tokens have been scored.

    Raises:
        TslmError: a model, the corpus or the text cannot be read, or a number is out of range.
    """
    check_several(models, "models or run folders to compare")
    if read_count(top, "top") < 0:
        raise NumberError(f"top = {top} must not be negative")
    if names is not None and len(names) != len(models):
        raise InputError(f"{len(names)} names for {len(models)} models; give one for each, or none")
    opened = [open_model(model) for model in models]
    called = _tell_apart(list(names) if names is not None else [name_model(model) for model in models])
    same = all(_choose_alike(opened[0], model) for model in opened)
    unit: Unit = "token" if same else "word"
    if text is None:
        run = as_run(models[0])
        corpus = run.open_corpus(data_dir)
        title = f"{corpus.name} {split}"
        # Models of the same words can be given the corpus's; others need the text as it was before it was cut.
        source = (
            _Source.of_split(corpus, split)
            if same
            else _Source(list(read_split(run.recipe.corpus, split, data_dir)))
        )
    else:
        source, title = _Source(list(lines_of(text))), name_text(text)
    if not source.size.lines:
        raise CorpusError("the text to compare on has no line; give at least one")
    scored = [_Scored(name, model, source, unit, tick) for name, model in zip(called, opened, strict=True)]
    first = scored[0]
    # Among the same words <unk> is one like any other; otherwise it stands for words that another model has to spell.
    known_U = np.full(len(first.shown), True) if same else ~np.any([one.unknown_U for one in scored], axis=0)
    if not known_U.any():
        raise CorpusError("there is no word in the text that every model knows; give another text")
    differences: list[Difference] = []
    for other in scored[1:]:
        with np.errstate(invalid="ignore"):  # words that both find impossible; the bootstrap says so
            gains_U = np.where(known_U, other.scores_U - first.scores_U, 0.0)
        gain = bootstrap(
            np.bincount(first.lines_U, weights=gains_U),
            np.bincount(first.lines_U, weights=known_U),
            resamples=resamples,
            confidence=confidence,
            seed=seed,
        )
        differences.append(
            Difference(
                name=other.name,
                unit=unit,
                nats=gain.mean,
                low=gain.low,
                high=gain.high,
                better=gain.better,
                places=find_places(
                    first.scores_U, first.scores_U + gains_U, first.lines_U, first.shown, top=top
                ),
            )
        )
    return Comparison(
        text=title,
        models=tuple(one.describe(source.size) for one in scored),
        differences=tuple(differences),
        same_vocabulary=same,
        unit=unit,
        share=float(known_U.mean()),
        confidence=confidence,
        resamples=resamples,
    )


class _Source:
    """A text by lines: raw, or cut into words already for models that would all cut it alike."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self._words = lines, None
        sizes = [measure_text(f"{line}\n", TextRule()) for line in lines]
        self.size = TextSize(sum(size.bytes for size in sizes), sum(size.words for size in sizes), len(lines))

    @classmethod
    def of_split(cls, corpus: Corpus, split: str) -> _Source:
        """Return a split of a corpus."""
        if split not in corpus.splits:
            raise CorpusError(f"no split {split!r}; {corpus.name} has {', '.join(corpus.splits)}")
        source = cls([])
        words: list[list[str]] = [[]]
        for word in corpus.vocabulary.decode(corpus.splits[split]):
            if word == EOS:
                words.append([])
            else:
                words[-1].append(word)
        source._words = words if words[-1] else words[:-1]
        source.size = corpus.sizes[split]
        return source

    def units(self, rule: TextRule, unit: Unit) -> Iterator[tuple[list[str], list[Sequence[str]]]]:
        """Yield of each line the units as people read them, and the words that the rule makes of each."""
        if unit == "word":
            for line in self.lines:
                yield [*line.split(), EOS], [*rule.split_chunks(line), (EOS,)]
        else:
            for words in self._words if self._words is not None else rule.split_many(self.lines):
                yield [*words, EOS], [(word,) for word in (*words, EOS)]


class _Scored:
    """A model with the log-probability of every unit of the text."""

    def __init__(
        self, name: str, model: LanguageModel[Any], source: _Source, unit: Unit, tick: Tick | None
    ) -> None:
        self.name, self.model = name, model
        self.shown: list[str] = []
        units: list[Sequence[str]] = []
        counts: list[int] = []
        for shown, cut in source.units(model.rule, unit):
            self.shown += shown
            units += cut
            counts.append(len(cut))
        self.lines_U = np.repeat(np.arange(len(counts)), counts)
        ids = model.vocabulary.encode(list(chain.from_iterable(units)))
        self.unknown_N: NDArray[np.bool_] = ids == (
            -1 if model.vocabulary.unk_id is None else model.vocabulary.unk_id
        )
        self.scores_N, _ = score_text(model, ids, tick=tick)
        units_N = np.repeat(np.arange(len(units)), list(map(len, units)))
        self.scores_U = np.bincount(units_N, weights=self.scores_N, minlength=len(units))
        self.unknown_U = np.bincount(units_N, weights=self.unknown_N, minlength=len(units)) > 0

    def describe(self, size: TextSize) -> ComparedModel:
        """Return how the model does."""
        nats = -float(self.scores_N.sum())
        return ComparedModel(
            name=self.name,
            kind=self.model.kind,
            parameters=self.model.parameter_count,
            vocabulary=len(self.model.vocabulary),
            perplexity=perplexity(nats, len(self.scores_N)),
            perplexity_per_word=perplexity_per_word(nats, size),
            bits_per_byte=bits_per_byte(nats, size),
            nats=nats,
            tokens=len(self.scores_N),
            unk_share=float(self.unknown_N.mean()),
        )


def _choose_alike(first: LanguageModel[Any], other: LanguageModel[Any]) -> bool:
    """Say whether two models choose between the same words, cut by the same rule."""
    return first.rule == other.rule and set(first.vocabulary.words) == set(other.vocabulary.words)


def _tell_apart(names: list[str]) -> list[str]:
    """Number names that come twice."""
    return [
        f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]
