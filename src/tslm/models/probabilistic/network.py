"""The factors of a probabilistic model as whole matrices: what sums over words that are not known need."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tslm.errors import CorpusError, UnsupportedError
from tslm.models.probabilistic.config import ProbabilisticConfig
from tslm.models.probabilistic.factors import Factors
from tslm.models.probabilistic.forward import Features
from tslm.models.probabilistic.model import ProbabilisticModel, ProbabilisticState

LARGEST = 1 << 32
"""How many bytes W may take: 4 GiB, 32,768 states without features."""

SETTLED = 1e-7
"""How little the distribution of the states changes from word to word once it stands still."""

ALL = slice(None)


def network_bytes(config: ProbabilisticConfig) -> int:
    """Return how much memory W takes, or the two matrices whose product it is."""
    return 4 * config.rank * (2 * config.features or config.rank)


class Network:
    """W, where each row sums to one, and U, the emissions; states are numbered cluster by cluster."""

    def __init__(self, model: ProbabilisticModel) -> None:
        config, factors = model.config, model.factors
        if network_bytes(config) > LARGEST:
            raise UnsupportedError(
                f"sums over unknown words need all of W, {network_bytes(config):,} bytes for {config.rank:,} "
                f"states; models with up to {LARGEST:,} bytes have them"
            )
        self.model = model
        with torch.no_grad():
            self._W = _join(factors) if factors.shared is None else factors.shared
            self.emission_Vk = factors.emission_Vk

    def move(
        self, belief: Float[Tensor, "*N r"], before: slice = ALL, after: slice = ALL
    ) -> Float[Tensor, "*N s"]:
        """Return what is believed of the next states, or some of them, given what is believed of some states."""
        if isinstance(self._W, Features):
            return belief @ self._W.leave_kF[before] @ self._W.reach_Fk[:, after]
        return belief @ self._W[before, after]

    def pull(
        self, value: Float[Tensor, "*N s"], before: slice = ALL, after: slice = ALL
    ) -> Float[Tensor, "*N r"]:
        """Return the mean of a value of the next states, as seen from each of the states before."""
        if isinstance(self._W, Features):
            return value @ self._W.reach_Fk[:, after].t() @ self._W.leave_kF[before].t()
        return value @ self._W[before, after].t()

    @property
    def begin_R(self) -> Float[Tensor, " R"]:
        """What is believed behind the ``<eos>`` before a text."""
        return self.spread(self.model.start(1))

    def spread(self, state: ProbabilisticState) -> Float[Tensor, " R"]:
        """Return what one state of the model believes of all hidden states."""
        cluster, belief_k = int(state.cluster_B[0]), state.belief_Bk[0]
        belief_R = belief_k.new_zeros(self.model.config.rank)
        belief_R[self.of_cluster(cluster)] = belief_k
        return belief_R

    def anywhere_R(self) -> Float[Tensor, " R"]:
        """Return the distribution of the state somewhere in a long text: the fixed point of W."""
        rank = self.model.config.rank
        belief_R = self.emission_Vk.new_full((rank,), 1 / rank)
        for _ in range(1000):
            after_R = self.move(belief_R)
            after_R /= after_R.sum()
            # Half of both: a chain that goes round in circles comes to rest too.
            after_R = (after_R + belief_R) / 2
            change = float((after_R - belief_R).abs().sum())
            belief_R = after_R
            if change < SETTLED:
                break
        return belief_R

    def of_cluster(self, cluster: int) -> slice:
        """Return where the states of a cluster are."""
        k = self.model.config.states
        return slice(cluster * k, (cluster + 1) * k)

    def of_word(self, word: int) -> slice:
        """Return where the states are that can emit a word."""
        return self.of_cluster(int(self.model.cluster_V[word]))

    def emission_k(self, word: int) -> Float[Tensor, " k"]:
        """Return the probability of a word from each of the states of its cluster."""
        return self.emission_Vk[word]

    def mass_R(self, words: Sequence[int]) -> Float[Tensor, " R"]:
        """Return the probability of any of some words from each state."""
        some = torch.tensor(list(words), dtype=torch.int64)
        mass_Ck = self.emission_Vk.new_zeros(self.model.config.clusters, self.model.config.states)
        mass_Ck.index_add_(0, self.model.cluster_V[some], self.emission_Vk[some])
        return mass_Ck.flatten()

    def words_V(self, weight_R: Float[Tensor, " R"]) -> Float[Tensor, " V"]:
        """Return Σ over states of weight times emission, for each word."""
        weight_Ck = weight_R.view(self.model.config.clusters, self.model.config.states)
        return torch.linalg.vecdot(self.emission_Vk, weight_Ck[self.model.cluster_V])


def _join(factors: Factors) -> Float[Tensor, "R R"]:
    """Return W from the blocks between all pairs of clusters."""
    C, k = factors.onward_CkC.shape[:2]
    W_RR = factors.onward_CkC.new_empty(C * k, C * k)
    W_CkCk = W_RR.view(C, k, C, k)
    every_C = torch.arange(C)
    for cluster in range(C):
        blocks_Ckk = factors.blocks(every_C[cluster].expand(C), every_C)
        onward_Ck1 = factors.onward_CkC[cluster].t().unsqueeze(2)
        W_CkCk[cluster] = (blocks_Ckk * onward_Ck1).transpose(0, 1)
    return W_RR


def check_ids(words: Sequence[int | None], size: int) -> None:
    """Refuse ids outside the vocabulary."""
    wrong = [word for word in words if word is not None and not 0 <= word < size]
    if wrong:
        raise CorpusError(
            f"word id {wrong[0]} is outside the vocabulary of {size} words; give 0 to {size - 1}"
        )


def draw_from(weights_V: Tensor, generator: torch.Generator) -> Int[Tensor, ""]:
    """Draw a place with a chance in proportion to its weight."""
    running_V = weights_V.double().cumsum(0)
    wanted = torch.rand((), generator=generator, dtype=torch.float64) * running_V[-1]
    return torch.searchsorted(running_V, wanted, right=True).clamp(max=len(running_V) - 1)
