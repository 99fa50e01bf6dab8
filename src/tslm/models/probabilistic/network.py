"""The factors of a probabilistic model as whole matrices: what sums over words that are not known need."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tslm.errors import CorpusError, UnsupportedError
from tslm.models.probabilistic.model import ProbabilisticModel, ProbabilisticState

LARGEST = 32_768
"""R: W takes 4 GiB then."""

SETTLED = 1e-7
"""How little the distribution of the states changes from word to word once it stands still."""

ALL = slice(None)


def network_bytes(rank: int) -> int:
    """Return how much memory the matrices of a model take."""
    return 4 * rank * rank


class Network:
    """W, where each row sums to one, and U, the emissions; states are numbered cluster by cluster."""

    def __init__(self, model: ProbabilisticModel) -> None:
        config, factors = model.config, model.factors
        if config.rank > LARGEST:
            raise UnsupportedError(
                f"sums over unknown words need all of W, {network_bytes(config.rank):,} bytes for {config.rank:,} "
                f"states; models of up to {LARGEST:,} states have them"
            )
        self.model = model
        C, k, R = config.clusters, config.states, config.rank
        with torch.no_grad():
            self.W_RR = model.begin_k.new_empty(R, R)
            W_CkCk = self.W_RR.view(C, k, C, k)
            every_C = torch.arange(C)
            for cluster in range(C):
                blocks_Ckk = factors.blocks(every_C[cluster].expand(C), every_C)
                onward_Ck1 = factors.onward_CkC[cluster].t().unsqueeze(2)
                W_CkCk[cluster] = (blocks_Ckk * onward_Ck1).transpose(0, 1)
            self.emission_Vk = factors.emission_Vk

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
        belief_R = torch.full_like(self.W_RR[0], 1 / len(self.W_RR))
        for _ in range(1000):
            after_R = belief_R @ self.W_RR
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
        mass_Ck = self.W_RR.new_zeros(self.model.config.clusters, self.model.config.states)
        mass_Ck.index_add_(0, self.model.cluster_V[some], self.emission_Vk[some])
        return mass_Ck.flatten()

    def words_V(self, weight_R: Float[Tensor, " R"]) -> Float[Tensor, " V"]:
        """Return Σ over states of weight times emission, for each word."""
        weight_Ck = weight_R.view(self.model.config.clusters, self.model.config.states)
        return torch.linalg.vecdot(self.emission_Vk, weight_Ck[self.model.cluster_V])


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
