"""Claim 2. Sentences with blanks: exact probabilities, posteriors, best fillings and samples.

A blank stands for exactly one word other than ``<eos>``. A pattern is by default a whole sentence, from the
begin of the line to its ``<eos>``; a *prefix* may go on after its last word, a *suffix* starts with the
history unknown (empty), and a *fragment* is both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError, UnsupportedError
from tslm.shapes import Float, Int

Span = Literal["sentence", "prefix", "suffix", "fragment"]

Pattern = Sequence[int | None]
"""Word ids, with None for a blank."""


@runtime_checkable
class Filling(Protocol):
    """What a model says about a pattern."""

    @property
    def log_probability(self) -> float:
        """Ln p of the pattern, all fillings together."""
        ...

    @property
    def posteriors(self) -> Float[np.ndarray, "K V"]:
        """For each blank the probability of each word, given the whole pattern."""
        ...

    def best(self, top: int, limit: int = ...) -> list[JointFilling]:
        """Return the most probable fillings of all blanks together."""
        ...

    def sample(self, count: int, seed: int) -> Int[np.ndarray, "count K"]:
        """Return fillings of all blanks drawn from their joint posterior."""
        ...

    def sample_lines(self, count: int, seed: int, limit: int = ...) -> list[list[int]]:
        """Return whole lines with the blanks drawn, going on behind the pattern where it is open."""
        ...


@runtime_checkable
class FillsBlanks(Protocol):
    """A model that can sum over blanks exactly: n-gram and probabilistic ones. Recurrent models cannot."""

    def fill(self, pattern: Pattern, *, span: Span = "sentence", exclude: Sequence[int] = ()) -> Filling:
        """Contract the model with a pattern.

        Args:
            pattern: word ids, None for each blank.
            span: which part of a line the pattern is.
            exclude: words that may not stand in a blank, beside ``<eos>``.
        """
        ...

    def fill_cost(self, pattern: Pattern) -> FillCost:
        """Estimate what ``fill`` will take, without beginning."""
        ...


@dataclass(frozen=True)
class FillCost:
    """What it takes to fill the blanks of a pattern."""

    terms: int
    """How many n-grams are summed over, all blanks together; the time is proportional to it."""

    bytes: int
    """How much memory is needed beside the model."""


@dataclass(frozen=True)
class JointFilling:
    """One way to fill all blanks."""

    words: tuple[int, ...]
    """The word of each blank."""

    probability: float
    """Its probability given the pattern."""


def parse_pattern(text: str, vocabulary: Vocabulary, blank: str = "?") -> list[int | None]:
    r"""Read a pattern: words between spaces, ``?`` for a blank, ``\?`` for the word "?" itself.

    Example:
        >>> parse_pattern("the ? of", vocabulary)
        [1, None, 3]

    Raises:
        CorpusError: the sign of a blank is not one word, or a word has no id and there is no ``<unk>``.
    """
    if blank.split() != [blank]:
        raise CorpusError(f"the sign of a blank is {blank!r}; give one without spaces, such as ? or _")
    words = text.split()
    plain = [word[1:] if word == "\\" + blank else word for word in words]
    ids = vocabulary.encode([word for word, given in zip(plain, words, strict=True) if given != blank])
    rest = iter(ids.tolist())
    return [None if word == blank else next(rest) for word in words]


def require_blanks(model: object) -> FillsBlanks:
    """Return the model when it can fill blanks.

    Raises:
        UnsupportedError: it cannot.
    """
    if isinstance(model, FillsBlanks):
        return model
    kind = getattr(model, "kind", type(model).__name__)
    raise UnsupportedError(
        f"a model of kind {kind!r} cannot fill blanks: it reads from left to right and would have to be run "
        "once for every filling; use an n-gram model (kind 'ngram', 'count-tensor' or 'backoff') or a probabilistic one"
    )
