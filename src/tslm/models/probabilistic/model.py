"""A tensor that is the probability: h_t = (W h_{t−1}) ⊙ U α_t, and **1**ᵀ h_t = p(w_1 … w_t)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tslm.config import check
from tslm.corpus.sources import Corpus
from tslm.corpus.statistics import count_words
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RecipeError, RunError
from tslm.models.arrays import REMEDY, WEIGHTS
from tslm.models.ngram.blanks import FillCost, Filling, Pattern, Span
from tslm.models.probabilistic.clusters import cluster_words, describe_words
from tslm.models.probabilistic.factors import (
    Factors,
    FreeParameters,
    Kind,
    NeuralParameters,
    Parameters,
    rows,
)
from tslm.models.recurrent.heads import CrossEntropy
from tslm.models.trainable import Carried, Trainable, Window
from tslm.models.weights import check_size, load_weights, save_weights

if TYPE_CHECKING:
    from tslm.models.probabilistic.network import Network

AT_ONCE = 1 << 24
"""How many numbers the blocks of words that are scored together may have."""

LOST = 1e-4
"""What a state is believed at the least when a window begins in which other states take part than in the last."""


@dataclass(frozen=True, kw_only=True)
class ProbabilisticConfig:
    """The hidden states, the words that share them, and where their probabilities come from."""

    rank: int = 4096
    """R: how many hidden states there are, the rank of every cut of the tensor."""

    clusters: int = 128
    """C: each word belongs to one cluster, and only the R / C states of its cluster can emit it; 1 for all of them."""

    alone: int = 32
    """How many of the most frequent words have a cluster of their own."""

    parameters: Kind = "neural"
    """Products of vectors through small networks, or a free number for each probability."""

    embedding: int = 64
    """M: the size of the vectors of states, clusters and words."""

    layers: int = 1
    """How many residual layers are between the vectors and their products."""

    dropout: float = 0.0
    """Dropout on the vectors."""

    dropout_states: float = 0.0
    """The share of each cluster's states that take no part in a window of training."""

    seed: int = 1
    """For the clusters."""

    def __post_init__(self) -> None:
        for key, least, largest in (
            ("rank", 1, 1 << 20),
            ("clusters", 1, 65_536),
            ("embedding", 1, 65_536),
            ("layers", 0, 64),
        ):
            value = getattr(self, key)
            check(least <= value <= largest, f"model.{key} = {value} must be {least} to {largest:,}")
        for key in ("dropout", "dropout_states"):
            value = getattr(self, key)
            check(0 <= value < 1, f"model.{key} = {value} must lie in [0, 1)")
        check(
            self.rank % self.clusters == 0, f"model.rank = {self.rank} must be a multiple of model.clusters"
        )
        if self.clusters > 1:
            check(
                0 <= self.alone < self.clusters,
                f"model.alone = {self.alone} must be 0 to {self.clusters - 1}, below model.clusters",
            )
        check(self.seed >= 0, f"model.seed = {self.seed} must not be negative")

    @property
    def states(self) -> int:
        """How many states each cluster has: k."""
        return self.rank // self.clusters

    def least_numbers(self, words: int) -> int:
        """Return how many numbers such a model has at the least."""
        if self.parameters == "free":
            return self.rank * self.rank + words * self.states
        return (self.rank + words) * self.embedding


@dataclass(frozen=True)
class ProbabilisticState:
    """What has been read: the cluster of the last word, and what is believed of the hidden state behind it."""

    cluster_B: Tensor
    belief_Bk: Tensor


class ProbabilisticModel(Trainable[ProbabilisticState]):
    """Eqs. 10, 11, 19. p(w_1 … w_n) = ⟨T, w_1 ⊗ … ⊗ w_n⟩, T a network of non-negative, normalised factors.

    W holds the probability of each hidden state after each, U that of each word from each state: a hidden Markov model,
    read as a tensor network. Without softmax over words, bias or normalisation, every marginal of T is exact.
    """

    kind: ClassVar[str] = "probabilistic"

    cluster_V: Tensor
    begin_k: nn.Parameter

    def __init__(self, config: ProbabilisticConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.config, self.vocabulary = config, vocabulary
        V, C, k = len(vocabulary), config.clusters, config.states
        if V < C:
            raise RecipeError(
                f"model.clusters = {C} is more than the {V} words of the vocabulary; take fewer clusters"
            )
        self.parts: Parameters = (
            NeuralParameters(V, C, k, config.embedding, config.layers)
            if config.parameters == "neural"
            else FreeParameters(V, C, k)
        )
        self.begin_k = nn.Parameter(torch.zeros(k))
        self.register_buffer("cluster_V", torch.arange(V) % C)
        self._factors: Factors | None = None
        self._network: Network | None = None
        self.assign(self.cluster_V)
        self.register_load_state_dict_post_hook(_assign_loaded)

    def assign(self, cluster_V: Int[Tensor, " V"]) -> None:
        """Give each word its cluster."""
        self.cluster_V.copy_(cluster_V)
        sizes_C = torch.bincount(self.cluster_V, minlength=self.config.clusters)
        order_V = self.cluster_V.argsort(stable=True)
        starts_C = sizes_C.cumsum(0) - sizes_C
        self.place_V = torch.empty_like(order_V)
        self.place_V[order_V] = torch.arange(len(order_V)) - starts_C[self.cluster_V[order_V]]
        self.members_CX = torch.full((self.config.clusters, int(sizes_C.max())), -1)
        self.members_CX[self.cluster_V, self.place_V] = torch.arange(len(order_V))
        self._factors = self._network = None

    @torch.no_grad()
    def prepare(self, corpus: Corpus) -> None:
        """Find the clusters, and start from how often each word occurs."""
        config, counts_V = self.config, count_words(corpus, "train")
        if config.clusters > 1:
            vectors_VD = describe_words(corpus.splits["train"], len(counts_V), config.seed)
            found_V = cluster_words(vectors_VD, counts_V, config.clusters, config.alone, config.seed)
            self.assign(torch.from_numpy(found_V))
        share_V = torch.from_numpy((counts_V + 1) / (counts_V + 1).sum())
        share_C = torch.zeros(config.clusters, dtype=share_V.dtype).index_add_(0, self.cluster_V, share_V)
        self.parts.set_prior(share_V.log().to(self.begin_k), share_C.log().to(self.begin_k))

    def begin(self, batch: int) -> Carried:
        """Return what is believed of the state behind the ``<eos>`` before a text."""
        return ((self.begin_k.softmax(0).expand(batch, -1).contiguous(),),)

    def read_window(
        self,
        inputs_TB: Int[Tensor, "T B"],
        targets_TB: Int[Tensor, "T B"],
        carried: Carried,
        cross_entropy: CrossEntropy,
    ) -> Window:
        """Read the targets; the inputs say only what the first word came behind. Padding stands at the end."""
        ((belief_Bk,),) = carried
        kept_Ck = self._draw_states() if self.training and self.config.dropout_states else None
        dropout = self.config.dropout if self.training else 0.0
        factors = self.parts.factors(self.members_CX, kept_Ck, dropout)
        present_TB = targets_TB >= 0
        words_TB = targets_TB.clamp(min=0)
        before_TB, after_TB = self.cluster_V[inputs_TB], self.cluster_V[words_TB]
        if kept_Ck is not None:
            belief_Bk = belief_Bk.take_along_dim(kept_Ck[before_TB[0]], 1) + LOST
            belief_Bk = belief_Bk / belief_Bk.sum(1, keepdim=True)
        scale_TB, belief_TBk = self._read(factors, belief_Bk, before_TB, words_TB)
        nats = -(scale_TB.log() * present_TB).sum() / present_TB.sum().clamp(min=1)
        last_Bk = belief_TBk[-1]
        if kept_Ck is not None:
            whole_Bk = last_Bk.new_zeros(len(last_Bk), self.config.states)
            last_Bk = whole_Bk.scatter(1, kept_Ck[after_TB[-1]], last_Bk)
        return Window(nats, ((last_Bk,),), belief_TBk, belief_TBk)

    def _draw_states(self) -> Int[Tensor, "C k"]:
        """Return which states of each cluster take part in a window."""
        number = max(1, round(self.config.states * (1 - self.config.dropout_states)))
        chances_Ck = torch.rand(self.config.clusters, self.config.states)
        return chances_Ck.topk(number, 1).indices.sort(1).values

    def _read(
        self, factors: Factors, belief_Bk: Tensor, before_TB: Int[Tensor, "T B"], words_TB: Int[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B"], Float[Tensor, "T B k"]]:
        """Return p of each word after those before it, and the beliefs behind it."""
        after_TB = self.cluster_V[words_TB]
        C, X, k = factors.emission_CXk.shape
        onward_DCk = factors.onward_CkC.transpose(1, 2).reshape(C * C, k)
        onward_TBk = rows(onward_DCk, (before_TB * C + after_TB).flatten()).view(*words_TB.shape, k)
        emission_Vk = factors.emission_CXk.reshape(C * X, k)
        places_TB = after_TB * X + self.place_V[words_TB]
        emission_TBk = rows(emission_Vk, places_TB.flatten()).view(*words_TB.shape, k)
        clusters_UB = torch.cat([before_TB[:1], after_TB])
        return factors.read(belief_Bk, clusters_UB, onward_TBk, emission_TBk)

    def train(self, mode: bool = True) -> ProbabilisticModel:
        """Switch dropout on or off; what was computed from the weights so far is forgotten."""
        self._factors = self._network = None
        super().train(mode)
        return self

    @property
    def factors(self) -> Factors:
        """All probabilities of the model as it stands; kept while it is not trained."""
        if self._factors is not None:
            return self._factors
        with torch.no_grad():
            made = self.parts.factors(self.members_CX)
        if not self.training:
            self._factors = made
        return made

    def start(self, batch: int) -> ProbabilisticState:
        """A text begins as if an ``<eos>`` had just been read."""
        ((belief_Bk,),) = self.begin(batch)
        cluster_B = self.cluster_V[self.vocabulary.eos_id].expand(batch)
        return ProbabilisticState(cluster_B, belief_Bk.detach())

    @torch.no_grad()
    def score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: ProbabilisticState
    ) -> tuple[Float[np.ndarray, "B T"], ProbabilisticState]:
        """Sum over all hidden states, word by word."""
        factors = self.factors
        tokens_TB = torch.from_numpy(np.array(tokens_BT.T, np.int64, order="C"))
        cluster_TB = self.cluster_V[tokens_TB]
        before_TB = torch.cat([state.cluster_B.unsqueeze(0), cluster_TB[:-1]])
        step = max(1, AT_ONCE // (tokens_TB.shape[1] * self.config.states**2))
        belief_Bk = state.belief_Bk
        scores: list[Tensor] = []
        for begin in range(0, len(tokens_TB), step):
            part = slice(begin, begin + step)
            scale_TB, belief_TBk = self._read(factors, belief_Bk, before_TB[part], tokens_TB[part])
            belief_Bk = belief_TBk[-1]
            scores.append(scale_TB.log())
        return torch.cat(scores).t().numpy(), ProbabilisticState(cluster_TB[-1], belief_Bk)

    @torch.no_grad()
    def predict(self, state: ProbabilisticState) -> Float[np.ndarray, "B V"]:
        """Return ln p of every next word."""
        factors, C = self.factors, self.config.clusters
        rows_BV: list[Tensor] = []
        for cluster, belief_k in zip(state.cluster_B, state.belief_Bk, strict=True):
            blocks_Ckk = factors.blocks(cluster.expand(C), torch.arange(C))
            leave_Ck = (factors.onward_CkC[cluster] * belief_k.unsqueeze(1)).t()
            moved_Ck1 = torch.bmm(leave_Ck.unsqueeze(1), blocks_Ckk).transpose(1, 2)
            words_CX = torch.bmm(factors.emission_CXk, moved_Ck1).squeeze(2)
            rows_BV.append(words_CX[self.cluster_V, self.place_V])
        return torch.stack(rows_BV).log().numpy()

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

        return estimate_cost(self.config.rank, self.config.states, len(self.vocabulary), pattern)

    @property
    def parameter_count(self) -> int:
        """Vectors, layers and biases, or free logits."""
        return sum(parameter.numel() for parameter in self.parameters())

    def save(self, folder: Path) -> None:
        """Write ``model.safetensors``."""
        save_weights(folder, self.state_dict())

    @classmethod
    def load(cls, folder: Path, config: Any, vocabulary: Vocabulary) -> ProbabilisticModel:
        """Read ``model.safetensors``."""
        check_size(folder, config.least_numbers(len(vocabulary)))
        model = cls(config, vocabulary)
        shapes = {key: (tensor.dtype, tuple(tensor.shape)) for key, tensor in model.state_dict().items()}
        weights = load_weights(folder, shapes)
        cluster_V = weights["cluster_V"]
        if int(cluster_V.min()) < 0 or int(cluster_V.max()) >= config.clusters:
            raise RunError(
                f"{folder / WEIGHTS}: a word has a cluster outside 0 to {config.clusters - 1}; {REMEDY}"
            )
        model.load_state_dict(weights)
        return model.eval()


def _assign_loaded(model: nn.Module, _: object) -> None:
    """Follow the clusters that were loaded."""
    assert isinstance(model, ProbabilisticModel)  # noqa: S101
    model.assign(model.cluster_V)
