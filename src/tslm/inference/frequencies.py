"""Where a model loses: its perplexity on words that the training text has rarely, and often."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tslm.corpus.statistics import count_words
from tslm.evaluation.perplexity import perplexity
from tslm.evaluation.scoring import Tick, score_text
from tslm.files import plain
from tslm.inference.inputs import ModelLike, as_run, name_model
from tslm.tables import html_table, show_number, text_table

EDGES = (0, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)
"""The least count of each band; the last has no end."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """The words that occur about equally often in the training text."""

    least: int
    most: int | None
    """None for the last band: any number of times."""
    words: int
    """How many different words of the text belong to it."""
    tokens: int
    share: float
    """Of all tokens."""
    perplexity: float
    bits: float
    """The mean surprise of its tokens."""
    part: float
    """Its share of the whole surprise: where a better model has most to gain."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Frequencies:
    """The perplexity of a text, by how often its words occur in the training text."""

    run: str
    corpus: str
    split: str
    perplexity: float
    """That of all tokens together."""
    bands: tuple[Band, ...]

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values; what is infinite becomes None."""
        return plain(asdict(self))

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return header and rows."""
        header = ["times in train", "words", "tokens", "share", "perplexity", "bits", "of all bits"]
        rows = [
            [
                _show_counts(band),
                f"{band.words:,}",
                f"{band.tokens:,}",
                f"{band.share:.1%}",
                show_number(band.perplexity),
                show_number(band.bits),
                f"{band.part:.1%}",
            ]
            for band in self.bands
        ]
        return header, rows

    def __repr__(self) -> str:
        title = f"{self.run} on {self.corpus} {self.split}: perplexity {show_number(self.perplexity)}"
        return f"{title}\n{text_table(*self.table())}"

    def _repr_html_(self) -> str:
        """Return the bands as a table, for a notebook."""
        return html_table(*self.table())


def evaluate_frequencies(
    run: ModelLike, *, split: str = "test", data_dir: str | Path | None = None, tick: Tick | None = None
) -> Frequencies:
    """Measure a run's perplexity apart for rare and frequent words, the state carried from line to line.

    Args:
        run: a run folder.
        split: which split of its corpus.
        data_dir: where to look for named corpora first.
        tick: told how many more tokens have been read.

    Raises:
        TslmError: the run or its corpus cannot be read.

    Example:
        >>> bands = tslm.evaluate_frequencies("runs/asv-kn5").bands
        >>> bands[-1].least, bands[-1].perplexity
        (10000, 5.62)
    """
    opened = as_run(run)
    corpus = opened.open_corpus(data_dir)
    ids_N = np.asarray(corpus.splits[split])
    scores_N, _ = score_text(opened.model, ids_N, tick=tick)
    counts_V = count_words(corpus, "train")
    bands_N = np.searchsorted(EDGES, counts_V[ids_N], side="right") - 1
    whole = -float(scores_N.sum())
    found: list[Band] = []
    for number, least in enumerate(EDGES):
        own_N = bands_N == number
        tokens, nats = int(own_N.sum()), -float(scores_N[own_N].sum())
        if tokens:
            found.append(
                Band(
                    least=least,
                    most=EDGES[number + 1] - 1 if number + 1 < len(EDGES) else None,
                    words=len(np.unique(ids_N[own_N])),
                    tokens=tokens,
                    share=tokens / len(ids_N),
                    perplexity=perplexity(nats, tokens),
                    bits=nats / tokens / float(np.log(2)),
                    part=nats / whole,
                )
            )
    return Frequencies(
        run=name_model(run),
        corpus=corpus.name,
        split=split,
        perplexity=perplexity(whole, len(ids_N)),
        bands=tuple(found),
    )


def _show_counts(band: Band) -> str:
    if band.most is None:
        return f"{band.least:,} or more"
    return f"{band.least:,}" if band.most == band.least else f"{band.least:,} to {band.most:,}"
