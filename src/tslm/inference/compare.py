"""Models side by side on the same text: how far apart, how surely, and where.

Perplexities can be compared where the models choose between the same words. Where they do not, the bits that each needs
per byte of the text can, as long as no model takes ``<unk>`` for an answer. Where one does, nothing can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.rule import TextRule
from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import EOS
from tslm.errors import CorpusError
from tslm.evaluation.perplexity import perplexity
from tslm.evaluation.scoring import Tick, score_text
from tslm.inference.bootstrap import Place, bootstrap, find_places
from tslm.inference.inputs import (
    ModelLike,
    TextLike,
    as_run,
    check_several,
    lines_of,
    name_model,
    name_text,
    open_model,
)
from tslm.inference.score import finite
from tslm.models.base import LanguageModel
from tslm.tables import html_table, show_number, text_table

Unit = Literal["token", "byte"]
"""What models are compared per."""


@dataclass(frozen=True, kw_only=True)
class ComparedModel:
    """A model and how it does on the text."""

    name: str
    kind: str
    parameters: int
    vocabulary: int
    perplexity: float
    """Per token of its own; to be compared only where the models choose between the same words."""
    bits_per_byte: float
    nats: float
    tokens: int
    unk_share: float
    """The share of its tokens that it read as ``<unk>``."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How a model differs from the first one, with what confidence."""

    name: str
    unit: Unit
    nats: float
    """The mean of ln p(model) − ln p(first) per token or byte; positive where the model is better than the first."""
    low: float
    """The lower end of the bootstrap's confidence interval of that mean."""
    high: float
    better: float
    """The share of the drawn texts on which the model is better than the first."""
    places: dict[str, list[Place]]
    """The words where each is furthest ahead, ``first`` and ``other``; empty where they cut the text differently."""

    @property
    def perplexity_ratio(self) -> float:
        """The model's perplexity divided by the first one's, per unit."""
        return math.exp(-self.nats)

    def show(self) -> tuple[str, str]:
        """Return the difference and its interval as people read them."""
        if self.unit == "token":
            shown = [f"{math.exp(-nats) - 1:+.2%}" for nats in (self.nats, self.high, self.low)]
        else:
            shown = [f"{-nats / math.log(2):+.4f} bits" for nats in (self.nats, self.high, self.low)]
        return shown[0], f"{shown[1]} … {shown[2]}"

    def as_json(self) -> dict[str, Any]:
        """Return the difference as plain values."""
        facts: dict[str, Any] = {"name": self.name, "unit": self.unit, f"nats_per_{self.unit}": self.nats}
        facts |= {"low": self.low, "high": self.high, "better": self.better}
        if self.unit == "token":
            facts |= {
                "perplexity_ratio": self.perplexity_ratio,
                "ratio_low": math.exp(-self.high),
                "ratio_high": math.exp(-self.low),
            }
        return facts | {
            "places": {key: [asdict(place) for place in places] for key, places in self.places.items()}
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison:
    """Models side by side; the others are compared with the first.

    Example:
        >>> comparison = tslm.compare(["runs/asv-kn5", "runs/asv-kn5"], "In the beginning God created the earth.")
        >>> comparison.differences[0].perplexity_ratio, comparison.remark
        (1.0, '')
    """

    text: str
    models: tuple[ComparedModel, ...]
    differences: tuple[Difference, ...]
    """Of each other model from the first; none where they cannot be compared."""
    same_vocabulary: bool
    """Whether all choose between the same words, cut by the same rule."""
    unit: Unit | None
    """What they are compared per; None where they cannot be compared."""
    confidence: float
    resamples: int

    @property
    def remark(self) -> str:
        """What has to be said before any number; empty where the models choose between the same words."""
        if self.same_vocabulary:
            return ""
        if self.unit == "byte":
            return "the models choose between different words: their perplexities cannot be compared, bits per byte can"
        unknown = ", ".join(f"{model.name} {model.unk_share:.1%}" for model in self.models if model.unk_share)
        return (
            "these models cannot be compared on this text: they choose between different words, and take unknown "
            f"ones for <unk> ({unknown} of the tokens)"
        )

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the names and the cells of a table with a row per model."""
        header = ["perplexity"] + ([] if self.same_vocabulary else ["bits per byte"]) + ["parameters"]
        if self.differences:
            header += ["against the first", f"{self.confidence:.0%} interval", "better on"]
        rows: list[list[str]] = []
        by_name = {difference.name: difference for difference in self.differences}
        for model in self.models:
            cells = [show_number(model.perplexity, 3)]
            cells += [] if self.same_vocabulary else [show_number(model.bits_per_byte, 4)]
            cells.append(f"{model.parameters:,}")
            if self.differences:
                difference = by_name.get(model.name)
                cells += (
                    ["", "", ""] if difference is None else [*difference.show(), f"{difference.better:.1%}"]
                )
            rows.append([*cells, model.name])
        return [*header, "model"], rows

    def place_tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        """Return the words where the others differ most from the first: titles, names and cells."""
        tables: list[tuple[str, list[str], list[list[str]]]] = []
        for difference in self.differences:
            rows = [
                [
                    str(place.line),
                    *(f"{value:.2f}" for value in place.log_probabilities),
                    place.context,
                    place.word,
                ]
                for side in ("first", "other")
                for place in difference.places.get(side, [])
            ]
            title = f"where {self.models[0].name} and {difference.name} differ most"
            if rows:
                tables.append((title, ["line", "ln p first", "ln p other", "before it", "word"], rows))
        return tables

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values; what is infinite becomes None."""
        return {
            "text": self.text,
            "models": [
                asdict(model)
                | {key: finite(getattr(model, key)) for key in ("perplexity", "bits_per_byte", "nats")}
                for model in self.models
            ],
            "same_vocabulary": self.same_vocabulary,
            "unit": self.unit,
            "confidence": self.confidence,
            "resamples": self.resamples,
            "differences": [difference.as_json() for difference in self.differences],
        }

    def __repr__(self) -> str:
        parts = [f"on {self.text}", *([self.remark] if self.remark else []), text_table(*self.table())]
        for title, header, rows in self.place_tables():
            parts.append(f"\n{title}\n{text_table(header, rows)}")
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        """Return the tables, for a notebook."""
        parts = [f"<p>on {escape(self.text)}</p>", f"<p>{escape(self.remark)}</p>" if self.remark else ""]
        parts.append(html_table(*self.table()))
        for title, header, rows in self.place_tables():
            parts.append(f"<p>{escape(title)}</p>{html_table(header, rows)}")
        return "\n".join(parts)


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
    opened = [open_model(model) for model in models]
    called = _tell_apart(list(names) if names is not None else [name_model(model) for model in models])
    if text is None:
        corpus = as_run(models[0]).open_corpus(data_dir)
        source, title = _Source.of_split(corpus, split), f"{corpus.name} {split}"
    else:
        source, title = _Source(list(lines_of(text))), name_text(text)
    if not source.lines:
        raise CorpusError("the text to compare on has no line; give at least one")
    scored = [_Scored(name, model, source, tick) for name, model in zip(called, opened, strict=True)]
    same = all(one.fits(scored[0]) for one in scored)
    unit: Unit | None = "token" if same else None if any(one.unknown.any() for one in scored) else "byte"
    differences: list[Difference] = []
    for other in scored[1:] if unit else []:
        first = scored[0]
        sizes_L = first.tokens_L if unit == "token" else source.bytes_L
        gain = bootstrap(
            other.nats_L - first.nats_L, sizes_L, resamples=resamples, confidence=confidence, seed=seed
        )
        aligned = other.words == first.words
        differences.append(
            Difference(
                name=other.name,
                unit=unit or "token",
                nats=gain.mean,
                low=gain.low,
                high=gain.high,
                better=gain.better,
                places=find_places(first.scores_N, other.scores_N, first.lines_N, first.words, top=top)
                if aligned
                else {},
            )
        )
    return Comparison(
        text=title,
        models=tuple(one.describe(source) for one in scored),
        differences=tuple(differences),
        same_vocabulary=same,
        unit=unit,
        confidence=confidence,
        resamples=resamples,
    )


class _Source:
    """A text by lines, as people write it; what a corpus cut into words already is not cut anew by its own rule."""

    def __init__(
        self, lines: list[str], words: list[list[str]] | None = None, rule: TextRule | None = None
    ) -> None:
        self.lines, self._words, self._rule = lines, words, rule
        self.bytes_L = np.array([len(line.encode()) + 1.0 for line in lines])

    @classmethod
    def of_split(cls, corpus: Corpus, split: str) -> _Source:
        """Return a split of a corpus."""
        if split not in corpus.splits:
            raise CorpusError(f"no split {split!r}; {corpus.name} has {', '.join(corpus.splits)}")
        words: list[list[str]] = [[]]
        for word in corpus.vocabulary.decode(corpus.splits[split]):
            if word == EOS:
                words.append([])
            else:
                words[-1].append(word)
        words = words if words[-1] else words[:-1]
        return cls([corpus.rule.join(line) for line in words], words, corpus.rule)

    def split_by(self, rule: TextRule) -> list[list[str]]:
        """Return the words of each line."""
        if self._words is not None and rule == self._rule:
            return self._words
        return rule.split_many(self.lines)


class _Scored:
    """A model with the log-probability of every token that its rule makes of the text."""

    def __init__(self, name: str, model: LanguageModel[Any], source: _Source, tick: Tick | None) -> None:
        self.name, self.model = name, model
        lines = source.split_by(model.rule)
        self.words = [word for line in lines for word in (*line, EOS)]
        ids = model.vocabulary.encode(self.words)
        self.unknown: NDArray[np.bool_] = ids == (
            -1 if model.vocabulary.unk_id is None else model.vocabulary.unk_id
        )
        self.scores_N, _ = score_text(model, ids, tick=tick)
        tokens_L = np.array([len(line) + 1 for line in lines])
        self.tokens_L = tokens_L.astype(np.float64)
        self.lines_N = np.repeat(np.arange(len(lines)), tokens_L)
        self.nats_L = np.bincount(self.lines_N, weights=self.scores_N)

    def fits(self, other: _Scored) -> bool:
        """Say whether both choose between the same words, cut by the same rule."""
        return self.model.rule == other.model.rule and set(self.model.vocabulary.words) == set(
            other.model.vocabulary.words
        )

    def describe(self, source: _Source) -> ComparedModel:
        """Return how the model does."""
        nats = -float(self.scores_N.sum())
        return ComparedModel(
            name=self.name,
            kind=self.model.kind,
            parameters=self.model.parameter_count,
            vocabulary=len(self.model.vocabulary),
            perplexity=perplexity(nats, len(self.scores_N)),
            bits_per_byte=nats / float(source.bytes_L.sum()) / math.log(2),
            nats=nats,
            tokens=len(self.scores_N),
            unk_share=float(self.unknown.mean()),
        )


def _tell_apart(names: list[str]) -> list[str]:
    """Number names that come twice."""
    return [
        f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]
