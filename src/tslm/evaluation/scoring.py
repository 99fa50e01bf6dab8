"""The one loop that gives tokens their log-probabilities; perplexities, scores, comparisons and the server all take it.

What is scored at once is bounded in size, and depends on nothing else: windows of columns, and lines of like length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.models.base import LanguageModel
from tslm.shapes import Float, Int

Tick = Callable[[int], None]
"""Told how many more tokens have been read."""


def score_windows(
    model: LanguageModel[Any],
    tokens_BT: Int[np.ndarray, "B T"],
    state: Any,
    *,
    window: int | None = None,
    tick: Tick | None = None,
) -> Iterator[tuple[Float[np.ndarray, "B W"], Any]]:
    """Yield ln p of B texts side by side, a window of columns at a time, each with the state after it.

    Args:
        model: any language model.
        tokens_BT: the ids.
        state: the state before the first column.
        window: how many columns are scored at once; it changes the memory used, not the result. As many as suit the
            model when left out.
        tick: told how many more tokens have been scored.
    """
    window = window or max(1, model.window // len(tokens_BT))
    for begin in range(0, tokens_BT.shape[1], window):
        values_BW, state = model.score(tokens_BT[:, begin : begin + window], state)
        if tick is not None:
            tick(values_BW.size)
        yield values_BW, state


def score_text(
    model: LanguageModel[Any],
    ids: NDArray[np.integer[Any]],
    state: Any = None,
    *,
    window: int | None = None,
    tick: Tick | None = None,
) -> tuple[NDArray[np.float64], Any]:
    """Return ln p of every token of a text, the state carried from beginning to end, and the state after it.

    Args:
        model: any language model.
        ids: the text, one ``<eos>`` after each line.
        state: the state to go on from; that of the beginning of a text when left out.
        window: how many tokens are scored at once; it changes the memory used, not the result. As many as suit the
            model when left out.
        tick: told how many more tokens have been scored.
    """
    state = model.start(1) if state is None else state
    values_N = np.empty(len(ids))
    done = 0
    for values_1W, after in score_windows(model, ids[None], state, window=window, tick=tick):
        values_N[done : done + values_1W.shape[1]] = values_1W[0]
        done, state = done + values_1W.shape[1], after
    return values_N, state


def score_each(
    model: LanguageModel[Any],
    lines: Sequence[NDArray[np.integer[Any]]],
    *,
    batch_tokens: int,
    tick: Tick | None = None,
) -> Iterator[tuple[NDArray[np.int64], list[NDArray[np.float64]]]]:
    """Yield ln p of every token of lines that each start anew, in batches of like length.

    Args:
        model: any language model.
        lines: the ids of each line, its ``<eos>`` included.
        batch_tokens: how many tokens are scored at once; it changes speed and memory, not the result.
        tick: told how many more tokens have been scored.

    Yields:
        The places of some of the lines, and the scores of each; every line comes once, the shortest first.
    """
    lengths = np.fromiter(map(len, lines), np.int64, len(lines))
    for chosen in group_by_length(lengths, batch_tokens):
        tokens_BT = np.full((len(chosen), int(lengths[chosen[-1]])), model.vocabulary.eos_id, np.int64)
        for row, place in enumerate(chosen.tolist()):
            tokens_BT[row, : lengths[place]] = lines[place]
        window = max(1, batch_tokens // len(chosen))
        parts = [
            values_BW
            for values_BW, _ in score_windows(model, tokens_BT, model.start(len(chosen)), window=window)
        ]
        values_BT = np.concatenate(parts, axis=1, dtype=np.float64)
        if tick is not None:
            tick(int(lengths[chosen].sum()))
        yield chosen, [values_BT[row, : lengths[place]] for row, place in enumerate(chosen.tolist())]


def group_by_length(lengths: NDArray[np.int64], batch_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Yield the places of lines in batches of like length, none larger than ``batch_tokens`` but for a long line."""
    order = np.argsort(lengths, kind="stable")
    begin = 0
    while begin < len(order):
        # Shortest first, so a batch is as wide as its last line.
        widths = lengths[order[begin:]] * np.arange(1, len(order) - begin + 1)
        count = max(1, int(np.searchsorted(widths, batch_tokens, side="right")))
        yield order[begin : begin + count]
        begin += count


def split_lines(ids: NDArray[np.int32], eos: int) -> list[NDArray[np.int32]]:
    """Return the lines of a text, each with the ``<eos>`` that ends it; the last may have none."""
    lines = np.split(ids, np.flatnonzero(ids == eos) + 1)
    return lines if len(lines[-1]) else lines[:-1]
