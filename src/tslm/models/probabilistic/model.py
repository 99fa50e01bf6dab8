"""A tensor that is the probability: h_t = (W h_{t−1}) ⊙ U α_t, and **1**ᵀ h_t = p(w_1 … w_t)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tslm.corpus.vocabulary import Vocabulary
from tslm.models.ngram.blanks import FillCost, Filling, Pattern, Span
from tslm.models.probabilistic.config import ProbabilisticConfig
from tslm.models.probabilistic.factors import Factors
from tslm.models.probabilistic.forward import Blocks
from tslm.models.probabilistic.hidden import Gathered, HiddenStates, ProbabilisticState
from tslm.models.weights import check_size, save_weights

if TYPE_CHECKING:
    from tslm.models.probabilistic.network import Network

__all__ = ["ProbabilisticConfig", "ProbabilisticModel", "ProbabilisticState"]


class ProbabilisticModel(HiddenStates[ProbabilisticState]):
    """Eqs. 10, 11, 19. p(w_1 … w_n) = ⟨T, w_1 ⊗ … ⊗ w_n⟩, T a network of non-negative, normalised factors.

    W holds the probability of each hidden state after each, U that of each word from each state: a hidden Markov model,
    read as a tensor network. Without softmax over words, bias or normalisation, every marginal of T is exact.
    """

    kind: ClassVar[str] = "probabilistic"

    _network: Network | None = None

    def recur(
        self, factors: Factors, belief_Bk: Tensor, gathered: Gathered, beside: Any
    ) -> tuple[Tensor, Tensor]:
        """Nothing stands beside the hidden states."""
        return factors.read(belief_Bk, *gathered)

    def leaving(self, factors: Factors, gathered: Gathered, blocks: Blocks, beside: Any) -> Tensor:
        """A state is left for the cluster of the next word."""
        return gathered.onward_TBk

    def forget(self) -> None:
        """Forget the matrices too."""
        super().forget()
        self._network = None

    def start(self, batch: int) -> ProbabilisticState:
        """A text begins as if an ``<eos>`` had just been read."""
        return self.at_start(batch)

    def score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: ProbabilisticState
    ) -> tuple[Float[np.ndarray, "B T"], ProbabilisticState]:
        """Sum over all hidden states, word by word."""
        return self.read_text(tokens_BT, state, None)

    @torch.no_grad()
    def predict(self, state: ProbabilisticState) -> Float[np.ndarray, "B V"]:
        """Return ln p of every next word."""
        return self.expect(state.cluster_B, state.belief_Bk).log().numpy()

    @property
    def network(self) -> Network:
        """Its factors as whole matrices; kept while it is not trained."""
        from tslm.models.probabilistic.network import Network

        if self._network is None or self.training:
            self._network = Network(self)
        return self._network

    def fill(self, pattern: Pattern, *, span: Span = "sentence", exclude: Sequence[int] = ()) -> Filling:
        """Eq. 14. Sum over all words that could stand in the blanks of a pattern."""
        from tslm.models.probabilistic.filling import fill_pattern

        return fill_pattern(self.network, pattern, span=span, exclude=exclude)

    def fill_cost(self, pattern: Pattern) -> FillCost:
        """Estimate what ``fill`` will take."""
        from tslm.models.probabilistic.filling import estimate_cost

        return estimate_cost(self.config, len(self.vocabulary), pattern)

    def save(self, folder: Path) -> None:
        """Write ``model.safetensors``."""
        save_weights(folder, self.state_dict())

    @classmethod
    def load(cls, folder: Path, config: Any, vocabulary: Vocabulary) -> ProbabilisticModel:
        """Read ``model.safetensors``."""
        check_size(folder, config.least_numbers(len(vocabulary)))
        model = cls(config, vocabulary)
        model.restore(folder)
        return model
