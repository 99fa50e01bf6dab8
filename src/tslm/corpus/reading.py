"""A text of the user's, read with the rule and the vocabulary that a model already has."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.files import spooled
from tslm.corpus.rule import TextRule
from tslm.corpus.text import TextSize, read_text
from tslm.corpus.vocabulary import EOS, Vocabulary


@dataclass(frozen=True, eq=False)
class EncodedText:
    """A text as ids."""

    ids: NDArray[np.int32]
    """The ids, with one ``<eos>`` after each line."""

    fingerprint: str
    """SHA-256 over the ids."""

    size: TextSize | None
    """How large it is as text; None for what was given as ids."""


def encode_file(path: str | Path, vocabulary: Vocabulary, rule: TextRule) -> EncodedText:
    """Return a text file (``-`` for standard input) as the ids of a model.

    Args:
        path: the file, plain or compressed.
        vocabulary: the model's.
        rule: the model's.

    Raises:
        CorpusError: the file is missing, empty or not text, or has a word for which there is no id.
    """
    blocks: list[NDArray[np.int32]] = []
    sizes: list[TextSize] = []
    with spooled([str(path)]) as (source,):
        for piece in read_text(Path(source)):
            blocks.append(vocabulary.encode(rule.split_lines(piece)))
            sizes.append(measure_text(piece, rule))
    ids = np.concatenate(blocks)
    size = TextSize(*(sum(getattr(part, key) for part in sizes) for key in ("bytes", "words", "lines")))
    return EncodedText(ids, hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest(), size)


def measure_text(text: str, rule: TextRule) -> TextSize:
    r"""Return the size of a text whose lines all end in a newline; a marker ``<eos>`` in it ends a line too.

    Example:
        >>> measure_text("a cat\nsat\n", TextRule())
        TextSize(bytes=10, words=3, lines=2)
    """
    chunks = (text.lower() if rule.lower else text).split()
    markers = chunks.count(EOS)
    return TextSize(len(text.encode()), len(chunks) - markers, text.count("\n") + markers)
