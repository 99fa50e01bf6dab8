"""Perplexity, computed here and nowhere else.

Every token of a split is predicted exactly once: the first one, and every ``<eos>``, included. The text is read
from beginning to end with the state carried all the way, so the result depends on no batch size and no window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.text import TextSize
from tslm.errors import CorpusError, UnsupportedError
from tslm.evaluation.scoring import Tick, score_each, score_windows, split_lines
from tslm.models.base import LanguageModel, ReadsWindows


@dataclass(frozen=True, kw_only=True)
class Perplexity:
    """The perplexity of a text, and how it was measured."""

    perplexity: float
    """exp of the mean negative log-likelihood per token, the state carried from line to line."""

    perplexity_reset: float | None
    """The same with the state started anew at every line; None where it was not asked for."""

    bits_per_word: float
    """log2 of the perplexity."""

    nats: float
    """The summed negative log-likelihood, the state carried."""

    tokens: int
    """How many tokens were predicted, ``<eos>`` included."""

    lines: int
    """How many of them were ``<eos>``."""

    vocabulary: int
    """How many words the model chooses between."""

    unk_share: float
    """The share of ``<unk>`` among the tokens."""

    protocol: str
    """The protocol in words, to be printed beside the figure."""

    bits_per_byte: float | None = None
    """The negative log-likelihood in bits per byte of the text, which models of different words share; None where the
    size of the text as text was not given. A word read as ``<unk>`` is predicted as that, not letter by letter."""

    perplexity_per_word: float | None = None
    """The perplexity per word between white space, line ends counted as words; None like ``bits_per_byte``."""


def evaluate(
    model: LanguageModel[Any],
    ids: NDArray[np.int32],
    *,
    reset: bool = True,
    window: int | None = None,
    batch_tokens: int = 16384,
    size: TextSize | None = None,
    tick: Tick | None = None,
) -> Perplexity:
    """PPL. exp(−(1/n) Σ ln p(w_i | w_1 … w_{i−1})) over all n tokens, summed in float64 and divided once.

    Args:
        model: any language model.
        ids: the text, one ``<eos>`` after each line.
        reset: also measure with the state started anew at every line: twice the work, but for a model that
            forgets each line in any case.
        window: how many tokens are scored at once; it changes the memory used, not the result. As many as suit the
            model when left out.
        batch_tokens: how many tokens of lines are scored at once for ``reset``; the same holds.
        size: how large the text is as text; given, it is measured per byte and per word between white space too.
        tick: told how many more tokens have been read.

    Raises:
        CorpusError: the text has no token, or one outside the vocabulary.
    """
    if len(ids) == 0:
        raise CorpusError("the text to evaluate has no token; give at least one line")
    if int(ids.max()) >= len(model.vocabulary) or int(ids.min()) < 0:
        raise CorpusError(
            f"the text has ids from {ids.min()} to {ids.max()}, but the vocabulary has {len(model.vocabulary)} words; "
            "encode the text with the model's own vocabulary"
        )
    eos, unk = model.vocabulary.eos_id, model.vocabulary.unk_id
    count, nats, reset_nats = len(ids), 0.0, 0.0
    for values_1W, _ in score_windows(model, ids[None], model.start(1), window=window, tick=tick):
        nats -= float(values_1W.sum(dtype=np.float64))
    if reset and model.forgets_lines:
        reset_nats = nats
        if tick is not None:
            tick(count)
    elif reset:
        lines = split_lines(ids, eos)
        for _, scores in score_each(model, lines, batch_tokens=batch_tokens, tick=tick):
            reset_nats -= float(np.concatenate(scores).sum())
    return Perplexity(
        perplexity=perplexity(nats, count),
        perplexity_reset=perplexity(reset_nats, count) if reset else None,
        bits_per_word=nats / count / math.log(2),
        nats=nats,
        tokens=count,
        lines=int((ids == eos).sum()),
        vocabulary=len(model.vocabulary),
        unk_share=0.0 if unk is None else float((ids == unk).mean()),
        protocol=(
            "every token predicted once, <eos> included; full vocabulary; state carried across lines "
            "(perplexity_reset: started anew at every line); nats summed in float64"
        ),
        bits_per_byte=None if size is None else bits_per_byte(nats, size),
        perplexity_per_word=None if size is None else perplexity_per_word(nats, size),
    )


def evaluate_windows(
    model: LanguageModel[Any], ids: NDArray[np.int32], length: int, batch_tokens: int = 16384
) -> float:
    """Return the perplexity with the state started anew every ``length`` tokens: a tensor of order ``length``.

    As in training, a window reads the token before each of its targets: its first target is predicted from the one word
    before it, not as if a text began there.
    """
    if not isinstance(model, ReadsWindows):
        raise UnsupportedError(
            f"a model of kind {model.kind!r} reads whole lines and cannot begin in the middle of a text"
        )
    text = np.concatenate([[model.vocabulary.eos_id], ids]).astype(np.int64)
    batch, nats = max(1, batch_tokens // length), 0.0
    for begin in range(0, len(ids), batch * length):
        part = text[begin : begin + batch * length + 1]
        whole = (len(part) - 1) // length * length
        # One token more than targets: where a window ends, the next begins with the same token.
        rows = (
            np.lib.stride_tricks.sliding_window_view(part, length + 1)[::length] if whole else part[:0, None]
        )
        for tokens in (rows, part[None, whole:]):
            if tokens.shape[0] and tokens.shape[1] > 1:
                log_probability_BT, _ = model.score(tokens, model.unread(len(tokens)))
                nats -= float(log_probability_BT[:, 1:].sum(dtype=np.float64))
    return perplexity(nats, len(ids))


def perplexity(nats: float, tokens: int) -> float:
    """Return exp of the mean negative log-likelihood; infinite where it is too large for a float."""
    mean = nats / tokens
    return math.exp(mean) if mean < 700 else math.inf


def bits_per_byte(nats: float, size: TextSize) -> float:
    """Return the bits that a text takes per byte of its file; it does not depend on what is called a word."""
    return nats / math.log(2) / size.bytes


def perplexity_per_word(nats: float, size: TextSize) -> float:
    """Return the perplexity per word between white space, each line's end counted as one, whatever the text rule."""
    return perplexity(nats, size.words + size.lines)
