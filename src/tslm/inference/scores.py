"""Sentences with their log-probabilities: one, a block of lines, a running sum, all of a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from tslm.evaluation.perplexity import perplexity
from tslm.files import finite
from tslm.tables import show_count, show_number, text_table

SHOWN = 10
"""How many sentences a representation shows."""


@dataclass(frozen=True, eq=False)
class ScoredSentence:
    """A sentence and the log-probability of each of its words."""

    text: str
    """The line as it was given, white space evened out."""

    words: tuple[str, ...]
    """The words that the model's text rule makes of it, and ``<eos>`` behind them."""

    known: NDArray[np.bool_]
    """Which of them are in the vocabulary; the others were scored as ``<unk>``."""

    log_probabilities: NDArray[np.float64]
    """ln p of each word given those before it; -inf for an impossible one."""

    @property
    def log_probability(self) -> float:
        """Ln p of the whole sentence, its end included."""
        return float(_sum_lines(self.log_probabilities, np.array([len(self.words)]))[0])

    @property
    def perplexity(self) -> float:
        """The perplexity per token of this sentence alone."""
        return perplexity(-self.log_probability, len(self.words))

    @property
    def unknown(self) -> int:
        """How many words are not in the vocabulary."""
        return int((~self.known).sum())

    def __repr__(self) -> str:
        unknown = f", {self.unknown} unknown" if self.unknown else ""
        numbers = f"ln p = {self.log_probability:.3f}, perplexity {show_number(self.perplexity)}{unknown}"
        return f"ScoredSentence({self.text!r}, {numbers})"

    def _repr_html_(self) -> str:
        """Return the words coloured by their surprise, for a notebook."""
        return self.to_html()

    def to_html(self) -> str:
        """Return the words coloured by their surprise."""
        words = zip(self.words, self.known.tolist(), self.log_probabilities.tolist(), strict=True)
        return f"<p>{' '.join(_colour(word, known, score) for word, known, score in words)}</p>"


@dataclass(frozen=True, eq=False)
class ScoredBlock:
    """Lines in a row, their words one after the other: what is printed of many needs no object for each."""

    first: int
    """The number of the first line, from 1."""

    lines: Sequence[str]
    """The lines as they were given."""

    words: Sequence[str]
    """The words of all lines, ``<eos>`` behind each line."""

    ends: NDArray[np.int64]
    """Where each line ends among them."""

    known: NDArray[np.bool_]
    """Which of them are in the vocabulary; the others were scored as ``<unk>``."""

    log_probabilities: NDArray[np.float64]
    """ln p of each word given those before it; -inf for an impossible one."""

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """How many words each line has."""
        return np.diff(self.ends, prepend=0)

    @cached_property
    def line_log_probabilities(self) -> NDArray[np.float64]:
        """Ln p of each line."""
        return _sum_lines(self.log_probabilities, self.ends)

    @property
    def perplexities(self) -> list[float]:
        """The perplexity of each line."""
        return list(map(perplexity, (-self.line_log_probabilities).tolist(), self.lengths.tolist()))

    @property
    def unknown(self) -> NDArray[np.int64]:
        """How many words of each line are not in the vocabulary."""
        return np.diff(np.cumsum(~self.known)[self.ends - 1], prepend=0)

    def sentences(self) -> Iterator[ScoredSentence]:
        """Yield each line on its own."""
        begin = 0
        for line, end in zip(self.lines, self.ends.tolist(), strict=True):
            own = slice(begin, end)
            yield ScoredSentence(
                " ".join(line.split()), tuple(self.words[own]), self.known[own], self.log_probabilities[own]
            )
            begin = end


@dataclass
class Total:
    """A running sum over sentences."""

    nats: float = 0.0
    tokens: int = 0
    lines: int = 0
    unknown: int = 0

    def add(self, sentence: ScoredSentence) -> None:
        """Count one more sentence."""
        self.nats -= sentence.log_probability
        self.tokens += len(sentence.words)
        self.lines += 1
        self.unknown += sentence.unknown

    def add_block(self, block: ScoredBlock) -> None:
        """Count the lines of a block."""
        self.nats -= float(block.log_probabilities.sum())
        self.tokens += len(block.words)
        self.lines += len(block.lines)
        self.unknown += int((~block.known).sum())

    @property
    def perplexity(self) -> float:
        """The perplexity of all sentences so far."""
        return perplexity(self.nats, self.tokens)

    def as_json(self) -> dict[str, Any]:
        """Return the sums as plain values; what is infinite becomes None."""
        return {**asdict(self), "nats": finite(self.nats), "perplexity": finite(self.perplexity)}

    def __str__(self) -> str:
        return (
            f"perplexity {show_number(self.perplexity, 4)}, {show_count(self.tokens, 'token')}, "
            f"{show_count(self.lines, 'line')}, {show_count(self.unknown, 'unknown word')}"
        )


class Scores(Sequence[ScoredSentence]):
    """The scores of a text's lines, in their order.

    Example:
        >>> scores = tslm.score("runs/asv-kn5", ["In the beginning", "beginning the In"])
        >>> scores[0].log_probability > scores[1].log_probability
        True

    ``scores.log_probabilities`` is an array in the order of the lines, to be put beside them as a column of a table.
    """

    def __init__(self, model: str, sentences: Iterable[ScoredSentence]) -> None:
        self.model = model
        self.sentences = tuple(sentences)
        self.total = Total()
        for sentence in self.sentences:
            self.total.add(sentence)

    @property
    def log_probabilities(self) -> NDArray[np.float64]:
        """Ln p of each line."""
        return np.array([sentence.log_probability for sentence in self.sentences])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return ln p of each line, so that NumPy, and tables that ask it, take the scores for a column of numbers."""
        return self.log_probabilities if dtype is None else self.log_probabilities.astype(dtype)

    @property
    def perplexities(self) -> NDArray[np.float64]:
        """The perplexity of each line."""
        return np.array([sentence.perplexity for sentence in self.sentences])

    @property
    def perplexity(self) -> float:
        """The perplexity of all lines together."""
        return self.total.perplexity

    @overload
    def __getitem__(self, place: int) -> ScoredSentence: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[ScoredSentence]: ...
    def __getitem__(self, place: int | slice) -> ScoredSentence | Sequence[ScoredSentence]:
        return self.sentences[place]

    def __len__(self) -> int:
        return len(self.sentences)

    def __repr__(self) -> str:
        rows = [
            [
                f"{sentence.log_probability:.3f}",
                show_number(sentence.perplexity),
                str(sentence.unknown),
                sentence.text,
            ]
            for sentence in self.sentences[:SHOWN]
        ]
        if len(self) > SHOWN:
            rows.append(["…", "…", "…", f"{len(self) - SHOWN:,} more"])
        return f"{text_table(['ln p', 'perplexity', 'unknown', 'text'], rows)}\n{self.total}"

    def _repr_html_(self) -> str:
        """Return the sentences with their words coloured by surprise, for a notebook."""
        rows = "".join(
            f"<tr><td>{sentence.log_probability:.3f}</td><td>{show_number(sentence.perplexity)}</td>"
            f"<td style='text-align: left'>{sentence.to_html()}</td></tr>"
            for sentence in self.sentences[:SHOWN]
        )
        more = f"<p>{len(self) - SHOWN:,} more</p>" if len(self) > SHOWN else ""
        head = "<tr><th>ln p</th><th>perplexity</th><th style='text-align: left'>words, by surprise</th></tr>"
        return f"<table>{head}{rows}</table>{more}<p>{escape(str(self.total))}</p>"

    def as_json(self) -> list[dict[str, Any]]:
        """Return every sentence with its words as plain values."""
        return [describe_sentence(sentence, tokens=True) for sentence in self.sentences]


def describe_sentence(sentence: ScoredSentence, *, tokens: bool = False) -> dict[str, Any]:
    """Return a scored sentence as plain values for JSON; what is infinite there becomes None."""
    report: dict[str, Any] = {
        "text": sentence.text,
        "log_probability": finite(sentence.log_probability),
        "perplexity": finite(sentence.perplexity),
        "tokens": len(sentence.words),
        "unknown": [word for word, known in zip(sentence.words, sentence.known, strict=True) if not known],
    }
    if tokens:
        report["words"] = [
            {"word": word, "log_probability": finite(float(score)), "unknown": not known}
            for word, score, known in zip(
                sentence.words, sentence.log_probabilities, sentence.known.tolist(), strict=True
            )
        ]
    return report


def _sum_lines(values: NDArray[np.float64], ends: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sum of each line's values."""
    return np.add.reduceat(values, np.concatenate([[0], ends[:-1]]))


def _colour(word: str, known: bool, score: float) -> str:
    """Return a word for a notebook: paler where the model expected it, an unknown one underlined."""
    share = min(1.0, -score / 12) if math.isfinite(score) else 1.0
    style = f"background: rgba(194, 65, 12, {0.75 * share:.2f})"
    style += "" if known else "; text-decoration: underline wavy"
    return f'<span style="{style}" title="ln p = {score:.3f}">{escape(word)}</span>'
