"""What a model gains by what it has just read, and what that costs: the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.sources import Corpus
from tslm.evaluation.perplexity import perplexity
from tslm.tables import html_table, show_duration, show_number, text_table

PROTOCOL = (
    "every token predicted once, <eos> included; full vocabulary; state carried across lines; "
    "settings tuned on valid; seconds of the processor, and by the clock (wall)"
)


@dataclass(frozen=True)
class Spent:
    """Seconds that something took, or that have passed when it is asked for."""

    processor: float = 0.0
    wall: float = 0.0
    """By the clock: more than the processor's where the machine does other work too, less with several threads."""

    @classmethod
    def now(cls) -> Spent:
        """Return both clocks."""
        return cls(time.process_time(), time.perf_counter())

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.processor + other.processor, self.wall + other.wall)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.processor - other.processor, self.wall - other.wall)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A way of reading, measured on a split."""

    model: str
    """``plain``, or what is made of the text at hand: ``cache``, ``dynamic``, ``one weight`` between model and counts,
    ``gate, sees counts``, or several of them."""
    split: str
    perplexity: float
    tokens: int
    seconds: float | None = None
    """Processor time of scoring the split as tuned; None where it was not taken."""
    wall: float | None = None
    """The same by the clock."""
    halves: float | None = None
    """Of a gate on valid: the perplexity of both halves, each under a gate that has learnt from the other."""


@dataclass(frozen=True, repr=False)
class ReadingReport:
    """A model alone and a model that makes something of what it has just read, side by side.

    Example:
        >>> tslm.evaluate_cache("runs/asv-kn5", size=2000).settings["size"]
        2000
    """

    run: str
    corpus: str
    fingerprint: str
    """SHA-256 over the corpus."""
    settings: Mapping[str, Any]
    """Tuned on valid."""
    rows: tuple[Row, ...]
    counts: str | None = None
    """The run of the n-gram model that it was mixed with."""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        rows = [{key: value for key, value in vars(row).items() if value is not None} for row in self.rows]
        facts = {
            "run": self.run,
            **({} if self.counts is None else {"counts": self.counts}),
            "corpus": self.corpus,
            "fingerprint": self.fingerprint,
            "protocol": PROTOCOL,
        }
        return {**facts, "settings": dict(self.settings), "results": rows}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of a table."""
        return ["split", "perplexity", "tokens", "processor", "time", "model"], [
            [
                row.split,
                show_number(row.perplexity, 3),
                f"{row.tokens:,}",
                *("–" if spent is None else show_duration(spent) for spent in (row.seconds, row.wall)),
                row.model,
            ]
            for row in self.rows
        ]

    def __repr__(self) -> str:
        tuned = ", ".join(f"{name} {value:g}" for name, value in self.settings.items())
        head = f"{self.run} on {self.corpus}, tuned on valid: {tuned}"
        return f"{head}\n{text_table(*self.table(), left=(0,))}"

    def _repr_html_(self) -> str:
        """Return the table, for a notebook."""
        return html_table(*self.table())


def measure_row(model: str, split: str, nats: Callable[[NDArray[np.int32]], float], corpus: Corpus) -> Row:
    """Measure one way of reading on one split.

    Args:
        model: what it is called.
        split: which split.
        nats: gives −ln p of a text.
        corpus: whose split it is.
    """
    ids, begun = corpus.splits[split], Spent.now()
    found = perplexity(nats(ids), len(ids))
    spent = Spent.now() - begun
    return Row(
        model=model,
        split=split,
        perplexity=found,
        tokens=len(ids),
        seconds=spent.processor,
        wall=spent.wall,
    )
