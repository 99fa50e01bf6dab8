"""Counts that have not seen the words they are asked about: each fold of a text is scored by counts of the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tslm.corpus.sources import Corpus
from tslm.models.ngram.smoothed import NgramConfig, NgramModel
from tslm.shapes import Float
from tslm.stopping import check_wanted


def cross_fit(
    config: NgramConfig, corpus: Corpus, folds: int
) -> tuple[Float[np.ndarray, "N F"], Float[np.ndarray, "N"]]:
    """Return what counts of the other folds know before each word of the training split, and their ln p of it.

    Whatever is learnt from these beside counts of the whole text trusts them as far as they deserve on new text, and
    not as far as counts deserve that have seen every word before.

    Args:
        config: of the counts.
        corpus: its training split is cut into runs of whole lines.
        folds: how many.
    """
    ids, eos_id = corpus.splits["train"], corpus.vocabulary.eos_id
    line_N = np.cumsum(ids == eos_id) - (ids == eos_id)
    folds_N = line_N * folds // (line_N[-1] + 1)
    known: list[np.ndarray] = []
    scores: list[np.ndarray] = []
    for fold in range(folds):
        check_wanted()
        own_N = folds_N == fold
        if not own_N.any():
            continue
        others = replace(corpus, splits={**corpus.splits, "train": ids[~own_N]})
        model = NgramModel.fit(config, others)
        scores_1T, known_1TF, _ = model.score_knowing(ids[None, own_N], model.start(1))
        known.append(known_1TF[0].astype(np.float32))
        scores.append(scores_1T[0])
    return np.concatenate(known), np.concatenate(scores)
