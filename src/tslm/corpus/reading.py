"""A text of the user's, read with the vocabulary that a model already has."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.text import read_text
from tslm.corpus.vocabulary import EOS, Vocabulary


def encode_file(
    path: str | Path, vocabulary: Vocabulary, *, prepare: Callable[[str], str] = str
) -> tuple[NDArray[np.int32], str]:
    """Return the ids of a text file (``-`` for standard input), one ``<eos>`` after each line, and their fingerprint.

    Args:
        path: the file, plain or compressed.
        vocabulary: the model's.
        prepare: makes the text what the model learned, ``CorpusConfig.prepare_text`` of its corpus; it is given
            pieces cut between words and must keep their newlines. The text stays as it is when left out.

    Raises:
        CorpusError: the file is missing, empty or not text, or has a word for which there is no id.
    """
    source = Path("/dev/stdin") if str(path) == "-" else Path(path)
    ids = np.concatenate(
        [vocabulary.encode(prepare(piece).replace("\n", f" {EOS} ").split()) for piece in read_text(source)]
    )
    return ids, hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest()
