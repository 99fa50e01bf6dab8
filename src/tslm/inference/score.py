"""Log-probabilities of sentences, in the order they come, however many there are."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.text import read_text
from tslm.corpus.vocabulary import EOS
from tslm.errors import CorpusError
from tslm.evaluation.perplexity import perplexity
from tslm.models.base import LanguageModel
from tslm.progress import track_bytes

BUFFER_TOKENS = 1 << 16
"""How many tokens of lines are held to be batched by length."""

BATCH_TOKENS = 1 << 12
"""How many tokens are scored at once: enough for the processor, few enough for its caches."""

LONGEST_LINE = 1_000_000
"""Words in a line; a longer one is taken as a sign that the text is not one sentence per line."""

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class ScoredSentence:
    """A sentence and the log-probability of each of its words."""

    words: tuple[str, ...]
    """The words as given, and ``<eos>`` behind them."""

    known: NDArray[np.bool_]
    """Which of them are in the vocabulary; the others were scored as ``<unk>``."""

    log_probabilities: NDArray[np.float64]
    """ln p of each word given those before it; -inf for an impossible one."""

    @property
    def log_probability(self) -> float:
        """Ln p of the whole sentence, its end included."""
        return float(self.log_probabilities.sum())

    @property
    def perplexity(self) -> float:
        """The perplexity per token of this sentence alone."""
        return perplexity(-self.log_probability, len(self.words))

    @property
    def unknown(self) -> int:
        """How many words are not in the vocabulary."""
        return int((~self.known).sum())


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

    @property
    def perplexity(self) -> float:
        """The perplexity of all sentences so far."""
        return perplexity(self.nats, self.tokens)


def score_lines(
    model: LanguageModel[Any],
    lines: Iterable[str],
    *,
    carry: bool = False,
    buffer_tokens: int = BUFFER_TOKENS,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[ScoredSentence]:
    """Yield each line scored, in the order given, holding no more of them than the buffer.

    Args:
        model: any language model.
        lines: one sentence each, words between spaces; an empty one has its ``<eos>`` alone.
        carry: go on from the state after the line before, as in running text; otherwise every line starts anew.
        buffer_tokens: how many tokens of lines are collected before they are scored in batches of like length.
        batch_tokens: how many tokens are scored at once; like the buffer it changes speed and memory, not the result.

    Raises:
        CorpusError: a line of more than a million words, or a word for which there is neither id nor ``<unk>``.

    Example:
        >>> hypotheses = ["king the said", "the king said"]
        >>> max(score_lines(model, hypotheses), key=lambda scored: scored.log_probability).words
        ('the', 'king', 'said', '<eos>')
    """
    state = model.start(1)
    for block in _blocks(lines, buffer_tokens):
        encoded = [_encode(model, words, number) for number, words in block]
        if carry:
            scores, state = _score_carried(model, encoded, state, batch_tokens)
        else:
            scores = _score_batched(model, encoded, batch_tokens)
        for (_, words), log_probabilities in zip(block, scores, strict=True):
            known = np.fromiter((word in model.vocabulary for word in words), np.bool_, len(words))
            yield ScoredSentence(tuple(words), known, log_probabilities)


def read_lines(paths: Sequence[str | Path]) -> Iterator[str]:
    """Yield the lines of text files (``-`` for standard input) as they are read, with progress when it takes long."""
    sizes = [Path(path).stat().st_size for path in paths if path != STANDARD_INPUT and Path(path).is_file()]
    total = sum(sizes) if len(sizes) == len(paths) else None
    with track_bytes("scoring", total) as advance:
        for path in paths:
            if path == STANDARD_INPUT:
                yield from _read_standard_input()
            else:
                yield from _split_lines(read_text(Path(path), advance), str(path))


def describe_sentence(sentence: ScoredSentence, *, tokens: bool = False) -> dict[str, Any]:
    """Return a scored sentence as plain values for JSON; what is infinite there becomes None."""
    report: dict[str, Any] = {
        "text": " ".join(sentence.words[:-1]),
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


def finite(value: float) -> float | None:
    """Return the number, or None where JSON has none for it."""
    return value if math.isfinite(value) else None


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


def _blocks(lines: Iterable[str], buffer_tokens: int) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield numbered lines as words, as many together as fill the buffer."""
    block: list[tuple[int, list[str]]] = []
    held = 0
    for number, line in enumerate(lines, 1):
        words = [*line.split(), EOS]
        if len(words) > LONGEST_LINE:
            raise CorpusError(
                f"line {number} has {len(words) - 1:,} words; give one sentence per line "
                f"(at most {LONGEST_LINE:,} words)"
            )
        block.append((number, words))
        held += len(words)
        if held >= buffer_tokens:
            yield block
            block, held = [], 0
    if block:
        yield block


def _encode(model: LanguageModel[Any], words: Sequence[str], number: int) -> NDArray[np.int32]:
    try:
        return model.vocabulary.encode(words)
    except CorpusError as error:
        raise CorpusError(f"line {number}: {error}") from error


def _score_batched(
    model: LanguageModel[Any], lines: Sequence[NDArray[np.int32]], batch_tokens: int
) -> list[NDArray[np.float64]]:
    lengths = np.fromiter(map(len, lines), np.int64, len(lines))
    scores: list[NDArray[np.float64]] = [np.empty(0)] * len(lines)
    for chosen in group_by_length(lengths, batch_tokens):
        tokens = np.full((len(chosen), int(lengths[chosen[-1]])), model.vocabulary.eos_id, np.int64)
        for row, place in enumerate(chosen.tolist()):
            tokens[row, : lengths[place]] = lines[place]
        values, _ = _score_windows(model, tokens, model.start(len(chosen)), batch_tokens)
        for row, place in enumerate(chosen.tolist()):
            scores[place] = values[row, : lengths[place]]
    return scores


def score_ids(
    model: LanguageModel[Any],
    ids: NDArray[np.int32],
    *,
    window: int = 4096,
    tick: Callable[[int], None] | None = None,
) -> NDArray[np.float64]:
    """Return ln p of every token of a text, the state carried from beginning to end.

    Args:
        model: any language model.
        ids: the text, one ``<eos>`` after each line.
        window: how many tokens are scored at once; it changes the memory used, not the result.
        tick: told how many more tokens have been read.
    """
    state = model.start(1)
    scores = np.empty(len(ids))
    for begin in range(0, len(ids), window):
        part = slice(begin, begin + window)
        log_probability_BT, state = model.score(ids[None, part], state)
        scores[part] = log_probability_BT[0]
        if tick is not None:
            tick(log_probability_BT.shape[1])
    return scores


def _score_carried(
    model: LanguageModel[Any], lines: Sequence[NDArray[np.int32]], state: Any, batch_tokens: int
) -> tuple[list[NDArray[np.float64]], Any]:
    tokens = np.concatenate(lines).astype(np.int64)
    values, state = _score_windows(model, tokens[None], state, batch_tokens)
    return np.split(values[0], np.cumsum([len(line) for line in lines])[:-1]), state


def _score_windows(
    model: LanguageModel[Any], tokens: NDArray[np.int64], state: Any, batch_tokens: int
) -> tuple[NDArray[np.float64], Any]:
    """Score B lines side by side, a window of columns at a time, so that a long line needs no more memory."""
    values = np.empty(tokens.shape)
    width = max(1, batch_tokens // len(tokens))
    for begin in range(0, tokens.shape[1], width):
        part = slice(begin, begin + width)
        values[:, part], state = model.score(tokens[:, part], state)
    return values, state


def _read_standard_input() -> Iterator[str]:
    """Yield lines as they come, so that whoever types has the answer to a line before the next."""
    for number, line in enumerate(iter(lambda: sys.stdin.buffer.readline(100 * LONGEST_LINE), b""), 1):
        if len(line) == 100 * LONGEST_LINE:
            raise CorpusError(
                f"line {number} of standard input is longer than {len(line):,} bytes; give one sentence per line"
            )
        try:
            yield line.decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"line {number} of standard input is not UTF-8 (byte {error.start}); "
                "convert it, for example: iconv -f latin1 -t utf-8"
            ) from error


def _split_lines(pieces: Iterable[str], path: str) -> Iterator[str]:
    """Yield whole lines of text that comes in pieces cut anywhere between words."""
    held: list[str] = []
    size = 0
    for piece in pieces:
        first, *rest = piece.split("\n")
        held.append(first)
        size += len(first)
        if size > 100 * LONGEST_LINE:
            raise CorpusError(
                f"{path} has a line of more than {size - 1:,} characters; give one sentence per line"
            )
        if rest:
            yield "".join(held)
            yield from rest[:-1]
            held, size = [rest[-1]], len(rest[-1])
