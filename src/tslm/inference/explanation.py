"""A sentence explained: words and what was expected, effects, contributions, ranks of cuts and hidden states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tslm.files import finite, plain
from tslm.shapes import Float
from tslm.tables import html_table, text_table

EFFECT = "effect of the word on the left on the word above, in nats"
CONTRIBUTION = "what the word on the left adds to the logit of the word above"

Reference = Literal["mean", "ones"]
"""What stands in for a word: the mean of all words, which averages the logits (Eq. 14), or one that changes nothing."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A word that could have stood here."""

    word: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class WordReport:
    """A word and what the model expected in its place."""

    word: str
    known: bool
    """Whether it is in the vocabulary; it was read as ``<unk>`` where not."""
    log_probability: float
    rank: int
    """1 for the word the model thought likeliest."""
    surprise: float
    """−log2 p, in bits."""
    entropy: float
    """How many bits of surprise the model expected here; a word far above it is an odd one."""
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True, kw_only=True)
class Effects:
    """How much each earlier word changes each word's log-probability."""

    method: str
    """What was done, in words."""
    exact: bool
    """Whether it is an exact contraction of the model's own network with the word's mode summed over."""
    matrix: Float[np.ndarray, "T T"]
    """Row s, column t: ln p(word t | all) − ln p(word t | word s replaced); zero unless s < t."""


@dataclass(frozen=True, kw_only=True)
class Contributions:
    """What each earlier word adds to each word's logit, of which it is a sum; ``method`` says how it is shared out."""

    method: str
    exact: bool
    """Whether the terms and the output's bias add up to the logit itself."""
    matrix: Float[np.ndarray, "T T"]
    """Row s, column t: what place s (the beginning of the text, then the words) adds to word t; zero unless s ≤ t."""

    def heat(self, words: Sequence[str]) -> tuple[list[str], Float[np.ndarray, "S S"]]:
        """Return names and values as a heat map takes them: the beginning of the text is one more word before them."""
        return ["(start)", *words], np.pad(self.matrix, ((0, 1), (1, 0)))


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """The effective rank across each cut of a sentence's network."""

    method: str
    exact: bool
    ranks: tuple[float, ...]
    """After each word but ``<eos>``: how many independent features of the words so far matter to what follows."""
    information: tuple[float, ...] | None = None
    """What the two sides of each cut say of each other, in bits, where the model is a probability throughout."""


@dataclass(frozen=True, kw_only=True)
class HiddenState:
    """A hidden state, and what it is like."""

    number: int
    probability: float
    """Given the whole sentence."""
    words: tuple[tuple[str, float], ...]
    """The words that it emits most, each with its probability there."""


@dataclass(frozen=True, kw_only=True)
class StateReport:
    """The hidden states behind a word."""

    cluster: int
    cluster_words: tuple[str, ...]
    """The most common words that share these states."""
    states: tuple[HiddenState, ...]
    """The likeliest first."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation:
    """A sentence explained.

    Example:
        >>> explanation = tslm.explain("runs/asv-kn5", "In the beginning")
        >>> explanation.words[1].word, explanation.words[1].rank
        ('the', 1)
    """

    words: tuple[WordReport, ...]
    """The last is ``<eos>``."""
    effects: Effects | None
    contributions: Contributions | None
    """For an exact cell, or a cascade of them, with one softmax."""
    state_norms: tuple[float, ...] | None
    """‖h‖ after each word but ``<eos>``, where the first layer is a chain of tensors."""
    cuts: Cuts | None
    states: tuple[StateReport, ...] | None = None
    """Of each word, for a probabilistic model."""

    @property
    def log_probability(self) -> float:
        """Ln p of the sentence."""
        return sum(word.log_probability for word in self.words)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The words that the model does not know; they were read as ``<unk>``."""
        return tuple(word.word for word in self.words if not word.known)

    def table(self, shown: int) -> tuple[list[str], list[list[str]]]:
        """Return the names and the cells of a table with a row per word.

        Args:
            shown: how many alternatives to show.
        """
        header = ["word", "p", "rank", "bits", "expected"]
        header += ["‖h‖"] if self.state_norms is not None else []
        header += ["cut rank"] if self.cuts is not None else []
        information = None if self.cuts is None else self.cuts.information
        header += ["cut bits"] if information is not None else []
        rows: list[list[str]] = []
        for place, word in enumerate(self.words):
            cells = [
                word.word if word.known else f"⟨{word.word}⟩",
                f"{math.exp(word.log_probability):.4f}",
                f"{word.rank:,}",
                f"{word.surprise:.2f}",
                f"{word.entropy:.2f}",
            ]
            ranks = None if self.cuts is None else self.cuts.ranks
            for numbers in (self.state_norms, ranks, information):
                if numbers is not None:
                    cells.append(f"{numbers[place]:.2f}" if place < len(numbers) else "")
            best = [f"{entry.word} {entry.probability:.3f}" for entry in word.alternatives[:shown]]
            rows.append([*cells, "  ".join(best)])
        return [*header, "alternatives"], rows

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as plain values; what is infinite becomes None."""
        effects, cuts = self.effects, self.cuts
        described = {
            "log_probability": self.log_probability,
            "words": [describe_word(word) for word in self.words],
            "effects": None
            if effects is None
            else {
                "method": effects.method,
                "exact": effects.exact,
                "matrix": effects.matrix.tolist(),
            },
            "contributions": None
            if self.contributions is None
            else {
                "method": self.contributions.method,
                "exact": self.contributions.exact,
                "matrix": self.contributions.matrix.tolist(),
            },
            "state_norms": None if self.state_norms is None else list(self.state_norms),
            "cuts": None
            if cuts is None
            else {
                "method": cuts.method,
                "exact": cuts.exact,
                "ranks": list(cuts.ranks),
                "information": None if cuts.information is None else list(cuts.information),
            },
            "states": None if self.states is None else [describe_states(report) for report in self.states],
        }
        return plain(described)

    def __repr__(self) -> str:
        return f"{text_table(*self.table(3), left=(0,))}\nln p = {self.log_probability:.4f}"

    def _repr_html_(self) -> str:
        """Return the table and the heat maps of effects and contributions, for a notebook."""
        from tslm.drawing.heatmap import heat_svg

        parts = [html_table(*self.table(5)), f"<p>ln p = {self.log_probability:.4f}</p>"]
        if self.effects is not None and len(self.words) > 1:
            title = f"{EFFECT}: {self.effects.method}"
            parts.append(heat_svg([word.word for word in self.words], self.effects.matrix, title))
        if self.contributions is not None:
            names, matrix = self.contributions.heat([word.word for word in self.words])
            parts.append(heat_svg(names, matrix, f"{CONTRIBUTION}: {self.contributions.method}"))
        return "\n".join(parts)


def describe_states(report: StateReport) -> dict[str, Any]:
    """Return the hidden states of a word as plain values for JSON."""
    return {
        "cluster": report.cluster,
        "cluster_words": list(report.cluster_words),
        "states": [
            {
                "number": state.number,
                "probability": state.probability,
                "words": [{"word": word, "probability": chance} for word, chance in state.words],
            }
            for state in report.states
        ],
    }


def describe_word(word: WordReport) -> dict[str, Any]:
    """Return the report of a word as plain values for JSON."""
    return {
        "word": word.word,
        "unknown": not word.known,
        "log_probability": finite(word.log_probability),
        "probability": math.exp(word.log_probability),
        "rank": word.rank,
        "surprise": finite(word.surprise),
        "entropy": word.entropy,
        "alternatives": [
            {"word": entry.word, "probability": entry.probability} for entry in word.alternatives
        ],
    }
