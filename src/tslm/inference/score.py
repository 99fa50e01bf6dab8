"""Log-probabilities of sentences, in the order they come, however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.vocabulary import EOS, unknown_word
from tslm.errors import CorpusError
from tslm.evaluation.scoring import score_each, score_text
from tslm.inference.inputs import LONGEST_LINE, ModelLike, TextLike, lines_of, name_model, open_model
from tslm.inference.scores import ScoredBlock, ScoredSentence, Scores
from tslm.models.base import LanguageModel

BUFFER_TOKENS = 1 << 16
"""How many tokens of lines are held to be scored together."""


def score(model: ModelLike, text: TextLike, *, carry: bool = False) -> Scores:
    r"""Give every line of a text its log-probability.

    Args:
        model: a model, or its run folder.
        text: a string (its lines end in ``\n``), a ``Path``, or a list or column of strings, each one line.
        carry: go on from the state after the line before, as in running text; otherwise every line starts anew.

    Raises:
        TslmError: the model or the text cannot be read, or is none.
    """
    scores = Scores(name_model(model), score_lines(open_model(model), lines_of(text), carry=carry))
    if not scores:
        raise CorpusError("the text has no line; give at least one")
    return scores


def score_lines(
    model: LanguageModel[Any],
    lines: Iterable[str],
    *,
    carry: bool = False,
    buffer_tokens: int = BUFFER_TOKENS,
    batch_tokens: int | None = None,
) -> Iterator[ScoredSentence]:
    """Yield each line scored, in the order given, holding no more of them than the buffer.

    Args:
        model: any language model.
        lines: one sentence each, as people write it; an empty one has its ``<eos>`` alone.
        carry: go on from the state after the line before, as in running text; otherwise every line starts anew.
        buffer_tokens: how many tokens of lines are collected before they are scored, in batches of like length where
            the model does not forget each line in any case.
        batch_tokens: how many tokens are scored at once; like the buffer it changes speed and memory, not the result.
            As many as suit the model when left out.

    Raises:
        CorpusError: a line of more than a million words, or a word for which there is neither id nor ``<unk>``.

    Example:
        >>> hypotheses = ["king the said", "the king said"]
        >>> max(score_lines(model, hypotheses), key=lambda scored: scored.log_probability).words
        ('the', 'king', 'said', '<eos>')
    """
    for block in score_blocks(
        model, lines, carry=carry, buffer_tokens=buffer_tokens, batch_tokens=batch_tokens
    ):
        yield from block.sentences()


def score_blocks(
    model: LanguageModel[Any],
    lines: Iterable[str],
    *,
    carry: bool = False,
    buffer_tokens: int = BUFFER_TOKENS,
    batch_tokens: int | None = None,
) -> Iterator[ScoredBlock]:
    """Yield what ``score_lines`` does, as many lines at a time as fill the buffer; nothing is done word by word."""
    state = model.start(1)
    for first, block in _blocks(lines, buffer_tokens):
        words, ids, known, ends = _encode(model, block, first)
        if carry or model.forgets_lines:
            values, state = score_text(model, ids, state, window=batch_tokens)
        else:
            values, begins = np.empty(len(ids)), [0, *ends.tolist()]
            own = np.split(ids, ends[:-1])
            for places, found in score_each(model, own, batch_tokens=batch_tokens or model.window):
                for place, scores in zip(places.tolist(), found, strict=True):
                    values[begins[place] : begins[place + 1]] = scores
        yield ScoredBlock(first, block, words, ends, known, values)


def _blocks(lines: Iterable[str], buffer_tokens: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a line, from 1, and as many lines from there on as fill the buffer."""
    block: list[str] = []
    held, first = 0, 1
    for number, line in enumerate(lines, 1):
        # A word takes two characters at the least, so the words of few lines need to be counted.
        if len(line) > 2 * LONGEST_LINE and (words := len(line.split())) > LONGEST_LINE:
            raise CorpusError(
                f"line {number} has {words:,} words; give one sentence per line (at most {LONGEST_LINE:,} words)"
            )
        block.append(line)
        held += line.count(" ") + 2
        if held >= buffer_tokens:
            yield first, block
            block, held, first = [], 0, number + 1
    if block:
        yield first, block


def _encode(
    model: LanguageModel[Any], block: Sequence[str], first: int
) -> tuple[list[str], NDArray[np.int32], NDArray[np.bool_], NDArray[np.int64]]:
    """Return the words of lines, their ids, which of them the model knows, and where each line ends."""
    vocabulary = model.vocabulary
    words = model.rule.split_lines("\n".join(block) + "\n")
    ids = vocabulary.look_up(words)
    ends = np.flatnonzero(ids == vocabulary.eos_id) + 1
    if len(ends) != len(block):  # a line has the marker, or a newline, within it
        of_lines = [[*line, EOS] for line in model.rule.split_many(block)]
        words = [word for line in of_lines for word in line]
        ids, ends = vocabulary.look_up(words), np.cumsum([len(line) for line in of_lines])
    known = ids >= 0
    if not known.all():
        if vocabulary.unk_id is None:
            place = int(np.argmin(known))
            number = first + int(np.searchsorted(ends, place, side="right"))
            raise CorpusError(f"line {number}: {unknown_word(words[place])}")
        ids[~known] = vocabulary.unk_id
    return words, ids, known, ends
