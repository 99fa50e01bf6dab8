"""Perplexity, computed here and nowhere else.

Every token of a split is predicted exactly once: the first one, and every ``<eos>``, included. The text is read
from beginning to end with the state carried all the way, so the result depends on no batch size and no window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.errors import CorpusError, UnsupportedError
from tslm.models.base import LanguageModel, ReadsWindows

Tick = Callable[[int], None]
"""Told how many more tokens have been read."""


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


def evaluate(
    model: LanguageModel[Any],
    ids: NDArray[np.int32],
    *,
    reset: bool = True,
    window: int = 4096,
    batch_tokens: int = 16384,
    tick: Tick | None = None,
) -> Perplexity:
    """PPL. exp(−(1/n) Σ ln p(w_i | w_1 … w_{i−1})) over all n tokens, summed in float64 and divided once.

    Args:
        model: any language model.
        ids: the text, one ``<eos>`` after each line.
        reset: also measure with the state started anew at every line (twice the work).
        window: how many tokens are scored at once; it changes the memory used, not the result.
        batch_tokens: how many tokens of lines are scored at once for ``reset``; the same holds.
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
    nats = _carried(model, ids, window, tick)
    reset_nats = _reset(model, ids, eos, batch_tokens, tick) if reset else None
    size = len(ids)
    return Perplexity(
        perplexity=perplexity(nats, size),
        perplexity_reset=None if reset_nats is None else perplexity(reset_nats, size),
        bits_per_word=nats / size / math.log(2),
        nats=nats,
        tokens=size,
        lines=int((ids == eos).sum()),
        vocabulary=len(model.vocabulary),
        unk_share=0.0 if unk is None else float((ids == unk).mean()),
        protocol=(
            "every token predicted once, <eos> included; full vocabulary; state carried across lines "
            "(perplexity_reset: started anew at every line); nats summed in float64"
        ),
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


def _carried(model: LanguageModel[Any], ids: NDArray[np.int32], window: int, tick: Tick | None) -> float:
    state, nats = model.start(1), 0.0
    for begin in range(0, len(ids), window):
        tokens_BT = ids[None, begin : begin + window]
        log_probability_BT, state = model.score(tokens_BT, state)
        nats -= float(log_probability_BT.sum(dtype=np.float64))
        if tick is not None:
            tick(tokens_BT.shape[1])
    return nats


def _reset(
    model: LanguageModel[Any], ids: NDArray[np.int32], eos: int, batch_tokens: int, tick: Tick | None
) -> float:
    nats = 0.0
    for tokens, lengths in line_batches(ids, eos, batch_tokens):
        log_probability_BT, _ = model.score(tokens, model.start(len(tokens)))
        within_BT = np.arange(tokens.shape[1]) < lengths[:, None]
        nats -= float(log_probability_BT[within_BT].sum(dtype=np.float64))
        if tick is not None:
            tick(int(lengths.sum()))
    return nats


def line_batches(
    ids: NDArray[np.int32], eos: int, batch_tokens: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the lines of a text in batches of like length: B×T ids padded with ``<eos>``, and the B lengths."""
    ends = np.flatnonzero(ids == eos) + 1
    if len(ends) == 0 or ends[-1] != len(ids):
        ends = np.append(ends, len(ids))
    begins = np.concatenate([[0], ends[:-1]])
    lengths = ends - begins
    order = np.argsort(lengths, kind="stable")
    position = 0
    while position < len(order):
        # Lines come shortest first, so a batch is as wide as its last line.
        count = 1
        while position + count < len(order):
            if int(lengths[order[position + count]]) * (count + 1) > batch_tokens:
                break
            count += 1
        chosen = order[position : position + count]
        width = int(lengths[chosen[-1]])
        places = begins[chosen, None] + np.arange(width)
        inside = np.arange(width) < lengths[chosen, None]
        tokens = np.where(inside, ids[np.minimum(places, len(ids) - 1)], eos).astype(np.int64)
        yield tokens, lengths[chosen].astype(np.int64)
        position += count
