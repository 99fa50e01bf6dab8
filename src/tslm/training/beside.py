"""Counts that stand beside a model while it learns, so that it learns what they cannot say.

The loss is (1 − c) (−ln p) + c (−ln (λ p_KN + (1 − λ) p)), c being ``objective.counts``. The second part alone would
starve the model: counts are right at once, and what they say well the model would never learn. Its derivative by ln p
is that of the first, times the share of the model in the mixture: words that counts expect weigh less.

The counts are cross-fitted (each fold of the text is scored by counts of the others), and how far they are trusted, λ,
is a gate of what they know of the history, which learns at the same time. Neither is part of the finished model:
``tslm compare KN MODEL --mix gated`` joins it with counts of the whole text.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tslm.corpus.sources import Corpus
from tslm.corpus.streams import Columns
from tslm.models.ngram.folds import cross_fit
from tslm.models.ngram.smoothed import NgramConfig
from tslm.training.config import TrainConfig
from tslm.training.distributed import Group

COUNTED = NgramConfig(discount_fallback=(0.5, 1.0, 1.5))
"""KN-5, also of texts that are too small for discounts of their own."""

FOLDS = 20
"""Into how many parts the text is cut."""


class Beside(nn.Module):
    """What cross-fitted counts (KN-5) say of each word of the training text, and the gate that trusts them."""

    def __init__(self, corpus: Corpus, config: TrainConfig, group: Group) -> None:
        super().__init__()
        known_NF, scores_N = cross_fit(COUNTED, corpus, FOLDS)
        # What never changes says nothing, and is left as it is.
        spread_F = known_NF.std(0)
        spread_F[spread_F < 1e-6] = 1.0
        self._known_NF = torch.from_numpy((known_NF - known_NF.mean(0)) / spread_F)
        self._scores_N = torch.from_numpy(scores_N).float()
        # Read as the text is: the columns of its places are the places of its columns.
        self._places = Columns(
            np.arange(len(scores_N), dtype=np.int32),
            batch=config.batch,
            window=config.window,
            eos_id=0,
            rank=group.rank,
            world=group.world,
        )
        self.gate = nn.Linear(known_NF.shape[1], 1)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, window: int) -> Float[Tensor, "N 2"]:
        """Return ln λ p_KN and ln (1 − λ) of each target of a window, time first; anything for padding."""
        _, places_BT = self._places[window]
        places_N = places_BT.t().reshape(-1).clamp(min=0)
        known_NF = self._known_NF[places_N].to(self.gate.weight.device)
        trust_N = self.gate(known_NF).squeeze(1)
        scores_N = self._scores_N[places_N].to(trust_N.device)
        return torch.stack([F.logsigmoid(trust_N) + scores_N, F.logsigmoid(-trust_N)], 1)
