"""Where the probabilities come from: vectors of states, clusters and words, or free numbers; normalised either way.

The next state is chosen in two steps, its cluster and then itself: p(z' | z) = p(c' | z) p(z' | z, c'). So only the
k × k block between the clusters of two neighbouring words is ever formed, and no sum runs over all R states. With one
cluster that block is all of W, and may be a product of two matrices: p(z' | z) = Σ_f p(f | z) p(z' | f).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tslm.models.probabilistic.forward import Blocks, Features, read_window
from tslm.models.probabilistic.layout import Bucket, Layout
from tslm.models.probabilistic.products import Vectors, read_products

IMPOSSIBLE = -1e9
"""A logit whose probability is zero; finite, so that no gradient is undefined."""

NOISE = 0.5
"""How far from its word a state begins, beside the words' own distances of about one."""


class Factors(ABC):
    """All probabilities of one moment: C clusters of k states and at most X words each."""

    onward_CkC: Float[Tensor, "C k C"]
    """p(cluster of the next word | state)."""

    emission_Pk: Float[Tensor, "P k"]
    """p(word | each state of its cluster), in the order of the layout."""

    row_V: Int[Tensor, " V"]
    """Where each word stands there."""

    @property
    def emission_Vk(self) -> Float[Tensor, "V k"]:
        """p(word | each state of its cluster), word by word."""
        return self.emission_Pk[self.row_V]

    @abstractmethod
    def blocks(self, before_N: Int[Tensor, " N"], after_N: Int[Tensor, " N"]) -> Float[Tensor, "N k k"]:
        """Return p(next state | state, next cluster) between pairs of clusters."""

    @cached_property
    def shared(self) -> Float[Tensor, "k k"] | Features | None:
        """The one block that all words share; None where there are several clusters."""
        if len(self.onward_CkC) > 1:
            return None
        zero_1 = torch.zeros(1, dtype=torch.int64)
        return self.blocks(zero_1, zero_1)[0]

    def read(
        self,
        before_Bk: Float[Tensor, "B k"],
        clusters_UB: Int[Tensor, "U B"],
        onward_TBk: Float[Tensor, "T B k"],
        emission_TBk: Float[Tensor, "T B k"],
    ) -> tuple[Float[Tensor, "T B"], Float[Tensor, "T B k"]]:
        """Return p of each word after those before it, and the beliefs behind it.

        Args:
            before_Bk: what is believed before the first word.
            clusters_UB: of the word before the first one, and of each word.
            onward_TBk: the probability of the word's cluster after each state of the word before.
            emission_TBk: the probability of the word from each of its states.
        """
        return read_window(before_Bk, onward_TBk, self.blocks_of(clusters_UB), emission_TBk)

    def blocks_of(self, clusters_UB: Int[Tensor, "U B"]) -> Blocks:
        """Return the block before each word, or the one that all share."""
        if self.shared is not None:
            return self.shared
        k = self.onward_CkC.shape[1]
        blocks_Nkk = self.blocks(clusters_UB[:-1].flatten(), clusters_UB[1:].flatten())
        return blocks_Nkk.view(*clusters_UB[1:].shape, k, k)


class Parameters(nn.Module, ABC):
    """What is learnt."""

    @abstractmethod
    def factors(
        self, layout: Layout, kept_Ck: Int[Tensor, "C k"] | None = None, dropout: float = 0.0
    ) -> Factors:
        """Return the probabilities.

        Args:
            layout: the words of each cluster.
            kept_Ck: the states of each cluster that take part; None for all.
            dropout: the chance that an entry of a vector is dropped.
        """

    @abstractmethod
    def set_prior(self, log_word_V: Float[Tensor, " V"], log_cluster_C: Float[Tensor, " C"]) -> None:
        """Start from the probability of each word and cluster."""


class Products(Factors):
    """Blocks that are made from vectors."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors

    def blocks(self, before_N: Tensor, after_N: Tensor) -> Tensor:
        """Return the softmax of the vectors' products."""
        leave_CkM, reach_CkM, bias_Ck = self.vectors
        reach_NMk = rows(reach_CkM, after_N).transpose(1, 2)
        logits_Nkk = torch.baddbmm(rows(bias_Ck, after_N).unsqueeze(1), rows(leave_CkM, before_N), reach_NMk)
        return F.softmax(logits_Nkk, -1)

    def read(
        self, before_Bk: Tensor, clusters_UB: Tensor, onward_TBk: Tensor, emission_TBk: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the same, word by word where each has a block of its own: they stay in the cache."""
        if self.shared is not None:
            return super().read(before_Bk, clusters_UB, onward_TBk, emission_TBk)
        return read_products(before_Bk, self.vectors, clusters_UB, onward_TBk, emission_TBk)


class Through(Factors):
    """One cluster, whose next state is chosen through a feature."""

    def __init__(self, features: Features) -> None:
        self.shared = self.features = features

    def blocks(self, before_N: Tensor, after_N: Tensor) -> Tensor:
        """Return the product of its two factors."""
        return (self.features.leave_kF @ self.features.reach_Fk).expand(len(before_N), -1, -1)


class NeuralParameters(Parameters):
    """A vector for each state, word and cluster; products of them, through small networks, are the logits.

    A feature has a vector too, and is reached and left as a state is.
    """

    def __init__(
        self, words: int, clusters: int, states: int, embedding: int, layers: int, features: int = 0
    ) -> None:
        super().__init__()
        self.clusters = clusters
        self.state = nn.Parameter(torch.randn(clusters * states, embedding))
        self.feature = nn.Parameter(torch.randn(features, embedding)) if features else None
        self.word = nn.Parameter(torch.randn(words, embedding))
        self.cluster = nn.Parameter(torch.randn(clusters, embedding) / math.sqrt(embedding))
        self.leave, self.reach, self.emit = (Residual(embedding, layers) for _ in range(3))
        self.word_bias = nn.Parameter(torch.zeros(words))
        self.cluster_bias = nn.Parameter(torch.zeros(clusters))
        self.state_bias = nn.Parameter(torch.zeros(clusters * states))

    @torch.no_grad()
    def set_prior(self, log_word_V: Tensor, log_cluster_C: Tensor) -> None:
        """Start the biases there."""
        self.word_bias.copy_(log_word_V)
        self.cluster_bias.copy_(log_cluster_C)

    @torch.no_grad()
    def start_near(
        self, vectors_VD: Float[Tensor, "V D"], layout: Layout, counts_V: Int[Tensor, " V"]
    ) -> None:
        """Start each state near a word of its cluster, frequent words with more states than others.

        Without a start states are alike, and it takes epochs until each has found words of its own.
        """
        vectors_VD = vectors_VD - vectors_VD.mean(0)
        vectors_VD = vectors_VD / vectors_VD.square().mean(1, keepdim=True).sqrt().clamp(min=1e-6)
        self.word[:, : vectors_VD.shape[1]] = vectors_VD.to(self.word)
        states = len(self.state) // self.clusters
        for clusters_c, members_cX, present_cX in layout.buckets:
            for cluster, members_X, present_X in zip(
                clusters_c.tolist(), members_cX, present_cX, strict=True
            ):
                words = members_X[present_X]
                if not len(words):
                    continue
                chance = counts_V[words].double().sqrt() + 1e-12
                # Every word once before any is chosen again, as long as there are states.
                first = torch.multinomial(chance, min(len(words), states))
                more = torch.multinomial(chance, states, replacement=True)
                near_k = words[torch.cat([first, more])[:states]]
                place = slice(cluster * states, (cluster + 1) * states)
                self.state[place] = self.word[near_k] + NOISE * self.state[place]
        if self.feature is not None:
            near_F = torch.multinomial(counts_V.double().sqrt() + 1e-12, len(self.feature), replacement=True)
            self.feature.copy_(self.word[near_F] + NOISE * self.feature)

    def factors(self, layout: Layout, kept_Ck: Tensor | None = None, dropout: float = 0.0) -> Factors:
        """Return the probabilities that the vectors make."""
        state_CkM = self.state.view(self.clusters, -1, self.state.shape[1])
        bias_Ck = self.state_bias.view(self.clusters, -1)
        if kept_Ck is not None:
            state_CkM = state_CkM.take_along_dim(kept_Ck.unsqueeze(2), 1)
            bias_Ck = bias_Ck.take_along_dim(kept_Ck, 1)
        leave_CkM = F.dropout(self.leave(state_CkM), dropout)
        # Divided once, here, so that logits begin with a variance of about one.
        size = math.sqrt(state_CkM.shape[2])
        reach_CkM = F.dropout(self.reach(state_CkM), dropout) / size
        if self.feature is None:
            made: Factors = Products(Vectors(leave_CkM, reach_CkM, bias_Ck))
        else:
            from_FM = F.dropout(self.leave(self.feature), dropout)
            to_FM = F.dropout(self.reach(self.feature), dropout) / size
            made = Through(
                Features(
                    F.softmax(leave_CkM[0] @ to_FM.t(), -1),
                    F.softmax(torch.addmm(bias_Ck, from_FM, reach_CkM[0].t()), -1),
                )
            )
        made.onward_CkC = F.softmax(leave_CkM @ self.cluster.t() + self.cluster_bias, -1)
        emit_CMk = (F.dropout(self.emit(state_CkM), dropout) / size).transpose(1, 2)

        def logits(bucket: Bucket) -> Tensor:
            bias_cX1 = self.word_bias[bucket.members_cX].unsqueeze(2)
            word_cXM = F.embedding(bucket.members_cX, self.word)
            return torch.baddbmm(bias_cX1, word_cXM, emit_CMk[bucket.clusters_c])

        made.emission_Pk, made.row_V = _normalised(layout, logits), layout.row_V
        return made


class _Table(Factors):
    def __init__(self, within_DDkk: Tensor, kept_Ck: Tensor | None) -> None:
        self.within_CCkk, self.kept_Ck = within_DDkk, kept_Ck

    def blocks(self, before_N: Tensor, after_N: Tensor) -> Tensor:
        logits_Nkk = self.within_CCkk[before_N, after_N]
        if self.kept_Ck is not None:
            logits_Nkk = logits_Nkk.take_along_dim(self.kept_Ck[before_N].unsqueeze(2), 1)
            logits_Nkk = logits_Nkk.take_along_dim(self.kept_Ck[after_N].unsqueeze(1), 2)
        return F.softmax(logits_Nkk, -1)


class FreeParameters(Parameters):
    """A logit for each transition and each emission: R² numbers and more, or 2 R F with F features."""

    def __init__(self, words: int, clusters: int, states: int, features: int = 0) -> None:
        super().__init__()
        if features:
            self.leave = nn.Parameter(torch.randn(states, features))
            self.reach = nn.Parameter(torch.randn(features, states))
        else:
            self.within = nn.Parameter(torch.randn(clusters, clusters, states, states))
        self.onward = nn.Parameter(torch.randn(clusters, states, clusters) * 0.1)
        self.emission = nn.Parameter(torch.randn(words, states))

    @torch.no_grad()
    def set_prior(self, log_word_V: Tensor, log_cluster_C: Tensor) -> None:
        """Start every state near them."""
        self.emission += log_word_V.unsqueeze(1)
        self.onward += log_cluster_C

    def factors(
        self,
        layout: Layout,
        kept_Ck: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Factors:
        """Return the probabilities that the logits make."""
        onward_CkC = self.onward
        if kept_Ck is not None:
            onward_CkC = onward_CkC.take_along_dim(kept_Ck.unsqueeze(2), 1)

        def logits(bucket: Bucket) -> Tensor:
            logits_cXk = self.emission[bucket.members_cX]
            if kept_Ck is None:
                return logits_cXk
            return logits_cXk.take_along_dim(kept_Ck[bucket.clusters_c].unsqueeze(1), 2)

        if "within" in self._parameters:
            made: Factors = _Table(self.within, kept_Ck)
        else:
            leave_kF, reach_Fk = self.leave, self.reach
            if kept_Ck is not None:
                leave_kF, reach_Fk = leave_kF[kept_Ck[0]], reach_Fk[:, kept_Ck[0]]
            made = Through(Features(F.softmax(leave_kF, -1), F.softmax(reach_Fk, -1)))
        made.onward_CkC = F.softmax(onward_CkC, -1)
        made.emission_Pk, made.row_V = _normalised(layout, logits), layout.row_V
        return made


class Residual(nn.Module):
    """x + B relu(A x), some times over, and normalised."""

    def __init__(self, size: int, layers: int) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))
        self.second = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))
        self.norm = nn.LayerNorm(size)

    def forward(self, values: Float[Tensor, "*N M"]) -> Float[Tensor, "*N M"]:
        """Return the vectors in this network's eyes."""
        for first, second in zip(self.first, self.second, strict=True):
            values = values + second(F.relu(first(values)))
        return self.norm(values)


def rows(table: Float[Tensor, "C ..."], places_N: Int[Tensor, " N"]) -> Float[Tensor, "N ..."]:
    """Return rows of a table; the gradient adds up far faster than that of plain indexing."""
    return F.embedding(places_N, table.flatten(1)).unflatten(1, table.shape[1:])


def _normalised(layout: Layout, logits: Callable[[Bucket], Tensor]) -> Float[Tensor, "P k"]:
    """Return p(word | state) of all clusters, from the logits of each bucket."""
    made = [
        F.softmax(logits(bucket).masked_fill(~bucket.present_cX.unsqueeze(2), IMPOSSIBLE), 1).flatten(0, 1)
        for bucket in layout.buckets
    ]
    return torch.cat(made)
