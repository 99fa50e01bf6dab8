"""Models side by side, as they are shown: a row for each, how surely they differ, and on which words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal

from tslm.files import finite
from tslm.inference.bootstrap import Place
from tslm.tables import html_table, show_number, text_table

Unit = Literal["token", "word"]
"""What models are compared per."""

_FINITE = ("perplexity", "perplexity_per_word", "bits_per_byte", "nats")


@dataclass(frozen=True, kw_only=True)
class ComparedModel:
    """A model and how it does on the text."""

    name: str
    kind: str
    parameters: int
    vocabulary: int
    perplexity: float
    """Per token of its own; to be compared only where the models choose between the same words."""
    perplexity_per_word: float
    """Per word between white space, line ends counted as words; too good where ``<unk>`` stands for words."""
    bits_per_byte: float
    """Too good in the same way."""
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
    """The mean of ln p(model) − ln p(first) per token, or per word between white space that all models know; positive
    where the model is better than the first."""
    low: float
    """The lower end of the bootstrap's confidence interval of that mean."""
    high: float
    better: float
    """The share of the drawn texts on which the model is better than the first."""
    places: dict[str, list[Place]]
    """The words where each is furthest ahead, ``first`` and ``other``."""

    @property
    def perplexity_ratio(self) -> float:
        """The model's perplexity divided by the first one's, per unit."""
        return math.exp(-self.nats)

    def show(self) -> tuple[str, str]:
        """Return the difference and its interval as people read them."""
        shown = [f"{math.exp(-nats) - 1:+.2%}" for nats in (self.nats, self.high, self.low)]
        return shown[0], f"{shown[1]} … {shown[2]}"

    def as_json(self) -> dict[str, Any]:
        """Return the difference as plain values."""
        facts: dict[str, Any] = {"name": self.name, "unit": self.unit, f"nats_per_{self.unit}": self.nats}
        facts |= {"low": self.low, "high": self.high, "better": self.better}
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
    """Of each other model from the first."""
    same_vocabulary: bool
    """Whether all choose between the same words, cut by the same rule."""
    unit: Unit
    """What they are compared per."""
    share: float
    """The share of the text's units that are compared: the others are unknown to one of the models or more."""
    confidence: float
    resamples: int

    @property
    def remark(self) -> str:
        """What has to be said before any number; empty where the models choose between the same words."""
        if self.same_vocabulary:
            return ""
        return (
            "the models choose between different words, so their perplexities cannot be compared; each word between "
            f"spaces can, and the differences are over the {self.share:.1%} of them that every model knows"
        )

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the names and the cells of a table with a row per model."""
        header = ["perplexity"] if self.same_vocabulary else ["per word", "bits per byte", "<unk>"]
        header.append("parameters")
        if self.differences:
            header += ["against the first", f"{self.confidence:.0%} interval", "better on"]
        rows: list[list[str]] = []
        by_name = {difference.name: difference for difference in self.differences}
        for model in self.models:
            cells = [show_number(model.perplexity, 3)]
            if not self.same_vocabulary:
                cells = [show_number(model.perplexity_per_word, 3), show_number(model.bits_per_byte, 4)]
                cells.append(f"{model.unk_share:.2%}")
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
                asdict(model) | {key: finite(getattr(model, key)) for key in _FINITE} for model in self.models
            ],
            "same_vocabulary": self.same_vocabulary,
            "unit": self.unit,
            "share": self.share,
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
