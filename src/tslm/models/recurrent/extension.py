"""A trained recurrent model that learns new words: where their vectors start."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from tslm.corpus.vocabulary import Vocabulary
from tslm.models.recurrent.model import RecurrentModel

Start = Literal["unknown", "rare"]
"""New words start as ``<unk>``, or as the mean of the rarest words known."""

RARE = 0.25
"""The share of the known words, the rarest of them, whose mean is taken."""

NOISE = 0.1
"""How far new words lie apart at the start, as a share of the spread of the known vectors."""


@torch.no_grad()
def extend_model(
    model: RecurrentModel,
    vocabulary: Vocabulary,
    shares: NDArray[np.float64],
    *,
    start: Start = "unknown",
    seed: int = 1,
) -> RecurrentModel:
    """Return the model with rows for new words, everything else as it was.

    A word that starts as ``<unk>`` has that word's vector and takes its share of that word's probability: the model
    then says "an unknown word, and it is this one". Where there is no ``<unk>``, new words start as rare ones.

    Args:
        model: the trained model.
        vocabulary: its words, and the new ones after them.
        shares: for each new word, its share of all unknown words of the text.
        start: where new vectors start.
        seed: of the little noise that sets new words apart.
    """
    known, added = len(model.vocabulary), len(vocabulary) - len(model.vocabulary)
    wider = RecurrentModel(model.config, vocabulary)
    noise = torch.Generator().manual_seed(seed)
    unknown = model.vocabulary.unk_id
    weights = dict(model.state_dict())
    # Words stand in the order of their frequency.
    rare = slice(known - max(1, int(RARE * known)), known)
    for name in ("embedding", "output"):
        if name in weights:
            rows_VM = weights[name]
            as_unknown = start == "unknown" and unknown is not None
            first_M = rows_VM[unknown] if as_unknown else rows_VM[rare].mean(0)
            apart_AM = torch.randn(added, rows_VM.shape[1], generator=noise) * (NOISE * rows_VM.std())
            weights[name] = torch.cat([rows_VM, first_M + apart_AM])
    bias_V = weights["bias"]
    if start == "unknown" and unknown is not None:
        bias_A = bias_V[unknown] + torch.from_numpy(np.log(shares)).float()
    else:
        bias_A = bias_V[rare].mean().expand(added)
    weights["bias"] = torch.cat([bias_V, bias_A])
    wider.load_state_dict(weights)
    for layer in range(model.config.layers):
        wider.cell(layer).settle()
    wider.rule = model.rule
    return wider.eval()
