"""A text of the user's, read with the vocabulary that a model already has."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.text import read_text
from tslm.corpus.vocabulary import EOS, Vocabulary


def encode_file(
    path: str | Path, vocabulary: Vocabulary, *, lower: bool = False
) -> tuple[NDArray[np.int32], str]:
    """Return the ids of a text file (``-`` for standard input), one ``<eos>`` after each line, and their fingerprint.

    Raises:
        CorpusError: the file is missing, empty or not text, or has a word for which there is no id.
    """
    source = Path("/dev/stdin") if str(path) == "-" else Path(path)
    pieces = (piece.lower() if lower else piece for piece in read_text(source))
    ids = np.concatenate([vocabulary.encode(piece.replace("\n", f" {EOS} ").split()) for piece in pieces])
    return ids, hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest()
