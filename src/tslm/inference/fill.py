"""The words that belong in the blanks of a sentence, exactly, for a pattern as people write it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tslm.corpus.rule import TextRule
from tslm.corpus.vocabulary import EOS, UNK
from tslm.errors import CorpusError, NumberError
from tslm.files import finite
from tslm.inference.blanks import fill_by_scoring
from tslm.inference.inputs import ModelLike, open_model, read_count, read_string, read_words
from tslm.models.base import LanguageModel
from tslm.models.ngram.blanks import Filling, FillsBlanks, Span
from tslm.tables import html_table, text_table

BLANK = "?"


@dataclass(frozen=True, kw_only=True)
class PatternText:
    """A pattern as the words that a model's text rule makes of it."""

    text: str
    """As it was given."""
    words: tuple[str | None, ...]
    """None for a blank."""
    ids: tuple[int | None, ...]
    unknown: tuple[str, ...]
    """Words that the model does not know; they are read as ``<unk>``."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A word for a blank."""

    word: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Blank:
    """A blank, and the best words for it given both sides."""

    place: int
    """Which word of the pattern it is, from 0."""
    best: tuple[Candidate, ...]


@dataclass(frozen=True, kw_only=True)
class FilledText:
    """All blanks filled."""

    words: tuple[str, ...]
    """The word of each blank."""
    text: str
    """The whole pattern with them in place."""
    probability: float
    """Given the pattern."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Fillings:
    """What a model says of a pattern; probabilities are exact sums over all words, unless ``exact`` is False.

    Example:
        >>> found = tslm.fill("runs/asv-kn5", "the ? of the Lord")
        >>> found.blanks[0].best[0].word, found.fillings[0].text
        ('grace', 'the grace of the lord')
    """

    pattern: str
    span: Span
    log_probability: float
    """Ln p of the pattern, all fillings together; -inf where it is impossible."""
    blanks: tuple[Blank, ...]
    fillings: tuple[FilledText, ...]
    """The best fillings of all blanks together."""
    samples: tuple[str, ...]
    """Texts with the blanks drawn from their posterior, where they were asked for."""
    unknown: tuple[str, ...]
    """Words of the pattern that the model does not know."""
    exact: bool = True
    """False where fillings were drawn and weighed."""
    draws: int | None = None
    """How many were drawn; None where the answer is exact."""
    effective: float | None = None
    """How many draws from the true posterior those are worth; None where the answer is exact."""
    error: float | None = None
    """The standard error of ``log_probability``; None where the answer is exact."""

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values; the logarithm of an impossible pattern is None."""
        report = asdict(self) | {"log_probability": finite(self.log_probability)}
        if not self.samples:
            del report["samples"]
        return report

    def __repr__(self) -> str:
        if self.log_probability == -math.inf:
            return f"{self.pattern}: impossible, no filling has a probability above zero"
        numbers = f"ln p = {self.log_probability:.4f}   log10 p = {self.log_probability / math.log(10):.4f}"
        parts = [f"{self.pattern}   {numbers}   ({self.span})"]
        if self.effective is not None:
            parts.append(
                f"estimated from {self.draws:,} drawn fillings, worth {self.effective:,.0f} from the posterior itself; "
                f"standard error of ln p {self.error:.3f}"
            )
        for number, blank in enumerate(self.blanks, 1):
            rows = [[f"{entry.probability:.4f}", entry.word] for entry in blank.best]
            title = (
                f"blank {number}, given both sides" if len(self.blanks) > 1 else "the blank, given both sides"
            )
            parts.append(text_table(["p", title], rows))
        if len(self.blanks) > 1:
            rows = [[f"{entry.probability:.4f}", entry.text] for entry in self.fillings]
            parts.append(text_table(["p", "all blanks together"], rows))
        return "\n\n".join([*parts, *(["\n".join(self.samples)] if self.samples else [])])

    def _repr_html_(self) -> str:
        """Return the fillings as tables, for a notebook."""
        rows = [[entry.text, f"{entry.probability:.4f}"] for entry in self.fillings]
        tables = [html_table([self.pattern, "p"], rows)]
        for number, blank in enumerate(self.blanks, 1):
            best = [[entry.word, f"{entry.probability:.4f}"] for entry in blank.best]
            tables.append(html_table([f"blank {number}", "p"], best))
        return "\n".join(tables if self.blanks else [f"<p>ln p = {self.log_probability:.4f}</p>"])


def fill(
    model: ModelLike,
    pattern: str,
    *,
    top: int = 5,
    span: Span = "sentence",
    blank: str = BLANK,
    exclude: str | Sequence[str] = (),
    samples: int = 0,
    seed: int = 1,
    go_on: int = 0,
    proposal: ModelLike | None = None,
    draws: int = 1000,
) -> Fillings:
    r"""Fill the blanks of a sentence, each exactly one word, knowing what stands on both sides.

    Args:
        model: a model, or its run folder. N-gram and probabilistic models sum over all fillings; any other scores every
            word for one blank, and draws fillings for several, most of them from ``proposal``.
        pattern: words as people write them, ``?`` for a blank, ``\?`` for the word "?" itself.
        top: how many words per blank, and how many fillings of all blanks together.
        span: which part of a line the pattern is: ``sentence``, ``prefix``, ``suffix`` or ``fragment``.
        blank: what stands for a blank.
        exclude: words that may not fill one.
        samples: how many texts to draw from the posterior.
        seed: for the samples.
        go_on: how many words a sample may go on behind a ``prefix`` or ``fragment``.
        proposal: an n-gram or probabilistic model of the same words, for several blanks of a model that is neither.
        draws: how many fillings are drawn then.

    Raises:
        TslmError: the model cannot fill these blanks, the pattern cannot be read, or a number is out of range.
    """
    if read_count(top, "top") < 1:
        raise NumberError(f"top = {top}; expected 1 or more")
    opened = open_model(model)
    read = read_pattern(opened, read_string(pattern, "pattern"), blank)
    return fill_pattern(
        opened,
        read,
        top=top,
        span=span,
        exclude=read_words(exclude),
        samples=samples,
        seed=seed,
        go_on=go_on,
        proposal=None if proposal is None else open_model(proposal),
        draws=draws,
    )


def fill_pattern(
    model: LanguageModel[Any],
    read: PatternText,
    *,
    top: int = 5,
    span: Span = "sentence",
    exclude: Sequence[str] = (),
    samples: int = 0,
    seed: int = 1,
    go_on: int = 0,
    proposal: LanguageModel[Any] | None = None,
    draws: int = 1000,
) -> Fillings:
    """Fill the blanks of a pattern that is read already; the arguments are those of ``fill``."""
    vocabulary = model.vocabulary
    banned = [word for given in exclude for word in model.rule.split(given)]
    for word in banned:
        if word not in vocabulary:
            raise CorpusError(f"the model does not know the word {word!r}, which is to be excluded")
    out = vocabulary.encode(banned).tolist()
    if isinstance(model, FillsBlanks):
        filling, effective, error = model.fill(read.ids, span=span, exclude=out), None, None
    else:
        filling = fill_by_scoring(
            model, read.ids, span=span, exclude=out, proposal=proposal, draws=draws, seed=seed
        )
        effective = filling.effective
        error = None if effective is None else filling.error
    if filling.log_probability == -math.inf:
        blanks: tuple[Blank, ...] = ()
        fillings: tuple[FilledText, ...] = ()
        drawn: tuple[str, ...] = ()
    else:
        blanks, fillings = _best(model, read, filling, top)
        lines = filling.sample_lines(samples, seed, go_on) if samples else []
        drawn = tuple(
            model.rule.join([word for word in vocabulary.decode(line) if word != EOS]) for line in lines
        )
    return Fillings(
        pattern=read.text,
        span=span,
        log_probability=filling.log_probability,
        blanks=blanks,
        fillings=fillings,
        samples=drawn,
        unknown=read.unknown,
        exact=effective is None,
        draws=None if effective is None else draws,
        effective=effective,
        error=error,
    )


def read_pattern(model: LanguageModel[Any], text: str, blank: str = BLANK) -> PatternText:
    r"""Read a pattern with a model's text rule.

    A blank stands alone or, where the rule splits punctuation off, among punctuation marks; behind a word its sign is a
    question mark.

    Example:
        >>> read_pattern(model, "Is the ? of (?), the lord?").words
        ('is', 'the', None, 'of', '(', None, ')', ',', 'the', 'lord', '?')

    Raises:
        CorpusError: there is no word, the sign of a blank is not one word, or a word has neither id nor ``<unk>``.
    """
    if blank.split() != [blank]:
        raise CorpusError(f"the sign of a blank is {blank!r}; give one without spaces, such as ? or _")
    words: list[str | None] = []
    for chunk in text.split():
        if chunk == blank:
            words.append(None)
        elif f"\\{blank}" in chunk:
            words += model.rule.split(chunk.replace(f"\\{blank}", blank))
        else:
            words += _split_blanks(chunk, blank, model.rule)
    ids = iter(model.vocabulary.encode([word for word in words if word is not None]).tolist())
    return PatternText(
        text=text,
        words=tuple(words),
        ids=tuple(None if word is None else next(ids) for word in words),
        unknown=tuple(word for word in words if word is not None and word not in model.vocabulary),
    )


def _split_blanks(chunk: str, blank: str, rule: TextRule) -> list[str | None]:
    """Return the words of a chunk, None for each blank that stands before its first letter or digit."""
    words: list[str | None] = []
    while rule.splits_marks and blank in chunk:
        before, _, after = chunk.partition(blank)
        if any(letter.isalnum() for letter in before):
            break
        words += [*rule.split(before), None]
        chunk = after
    return words + rule.split(chunk)


def _best(
    model: LanguageModel[Any], read: PatternText, filling: Filling, top: int
) -> tuple[tuple[Blank, ...], tuple[FilledText, ...]]:
    """Return the best words for each blank, and the best fillings of all."""
    vocabulary = model.vocabulary
    places = [place for place, word in enumerate(read.ids) if word is None]
    if not places:
        return (), ()
    # Words that the model reads as <unk> are shown as what it reads.
    shown = [None if word is None else word if word in vocabulary else UNK for word in read.words]

    def write(found: Sequence[str]) -> str:
        rest = iter(found)
        return model.rule.join([next(rest) if word is None else word for word in shown])

    blanks: list[Blank] = []
    for place, row in zip(places, filling.posteriors, strict=True):
        best = [word for word in np.argsort(-row, kind="stable")[:top].tolist() if row[word] > 0]
        entries = tuple(Candidate(word=vocabulary.words[word], probability=float(row[word])) for word in best)
        blanks.append(Blank(place=place, best=entries))
    fillings = tuple(
        FilledText(words=tuple(found), text=write(found), probability=entry.probability)
        for entry in filling.best(top)
        for found in [vocabulary.decode(entry.words)]
    )
    return tuple(blanks), fillings
