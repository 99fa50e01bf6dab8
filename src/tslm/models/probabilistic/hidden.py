"""Hidden states that words share by clusters, and how their probabilities are learnt."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tslm.corpus.sources import Corpus
from tslm.corpus.statistics import count_words
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RecipeError, RunError
from tslm.models.arrays import REMEDY, WEIGHTS
from tslm.models.probabilistic.clusters import describe_words, find_clusters
from tslm.models.probabilistic.config import ProbabilisticConfig
from tslm.models.probabilistic.factors import (
    Factors,
    FreeParameters,
    NeuralParameters,
    Parameters,
    rows,
)
from tslm.models.probabilistic.forward import Blocks, follow_text, move
from tslm.models.probabilistic.layout import Layout
from tslm.models.recurrent.heads import CrossEntropy
from tslm.models.trainable import Carried, Trainable, Window
from tslm.models.weights import load_weights

StateT = TypeVar("StateT")

AT_ONCE = 1 << 22
"""How many numbers the blocks of words that are scored together may have: 16 MiB."""

LOST = 1e-4
"""What a state is believed at the least when a window begins in which other states take part than in the last."""


class ProbabilisticState(NamedTuple):
    """What has been read: the cluster of the last word, and what is believed of the hidden state behind it."""

    cluster_B: Int[Tensor, " B"]
    belief_Bk: Float[Tensor, "B k"]


class Gathered(NamedTuple):
    """What the words of a window bring to the recursion."""

    clusters_UB: Int[Tensor, "U B"]
    """Of the word before the first one, and of each word."""
    onward_TBk: Float[Tensor, "T B k"]
    """The probability of each word's cluster after each state of the word before."""
    emission_TBk: Float[Tensor, "T B k"]
    """The probability of each word from each of its states."""


class HiddenStates(Trainable[StateT]):
    """Hidden states in training: what models with and without counts beside them have in common."""

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
            NeuralParameters(V, C, k, config.embedding, config.layers, config.features)
            if config.parameters == "neural"
            else FreeParameters(V, C, k, config.features)
        )
        self.begin_k = nn.Parameter(torch.zeros(k))
        self.register_buffer("cluster_V", torch.arange(V) % C)
        self._factors: Factors | None = None
        self.assign(self.cluster_V)
        self.register_load_state_dict_post_hook(_assign_loaded)

    def assign(self, cluster_V: Int[Tensor, " V"]) -> None:
        """Give each word its cluster."""
        self.cluster_V.copy_(cluster_V)
        self.layout = Layout(self.cluster_V, self.config.clusters)
        self.forget()

    @torch.no_grad()
    def prepare(self, corpus: Corpus) -> None:
        """Find the clusters, and start from how often each word occurs."""
        config, counts_V = self.config, count_words(corpus, "train")
        ids = corpus.splits["train"]
        if config.clusters > 1:
            exchange = config.clustering == "exchange"
            found_V = find_clusters(
                ids, counts_V, config.clusters, config.alone, exchange=exchange, seed=config.seed
            )
            self.assign(torch.from_numpy(found_V))
        if isinstance(self.parts, NeuralParameters) and config.start != "random":
            vectors_VM = describe_words(ids, len(counts_V), config.seed, config.embedding)
            self.parts.start_near(torch.from_numpy(vectors_VM), self.layout, torch.from_numpy(counts_V))
        share_V = torch.from_numpy((counts_V + 1) / (counts_V + 1).sum())
        share_C = torch.zeros(config.clusters, dtype=share_V.dtype).index_add_(0, self.cluster_V, share_V)
        self.parts.set_prior(share_V.log().to(self.begin_k), share_C.log().to(self.begin_k))

    def begin(self, batch: int) -> Carried:
        """Return what is believed of the state behind the ``<eos>`` before a text."""
        return ((self.begin_k.softmax(0).expand(batch, -1).contiguous(),),)

    def at_start(self, batch: int) -> ProbabilisticState:
        """Return what is known of the hidden states before a text."""
        belief_Bk = self.begin_k.softmax(0).expand(batch, -1).contiguous().detach()
        return ProbabilisticState(self.cluster_V[self.vocabulary.eos_id].expand(batch), belief_Bk)

    def read_window(
        self,
        inputs_TB: Int[Tensor, "T B"],
        targets_TB: Int[Tensor, "T B"],
        carried: Carried,
        cross_entropy: CrossEntropy,
    ) -> Window:
        """Read the targets; the inputs say only what the first word came behind. Padding stands at the end."""
        return self.learn(inputs_TB, targets_TB, carried, None)

    def learn(
        self,
        inputs_TB: Int[Tensor, "T B"],
        targets_TB: Int[Tensor, "T B"],
        carried: Carried,
        beside: Any,
    ) -> Window:
        """Read a window of training, with what stands beside the hidden states."""
        belief_Bk = carried[0][0]
        kept_Ck = self._draw_states() if self.training and self.config.dropout_states else None
        dropout = self.config.dropout if self.training else 0.0
        factors = self.parts.factors(self.layout, kept_Ck, dropout)
        present_TB = targets_TB >= 0
        before_B = self.cluster_V[inputs_TB[0]]
        if kept_Ck is not None:
            belief_Bk = belief_Bk.take_along_dim(kept_Ck[before_B], 1) + LOST
            belief_Bk = belief_Bk / belief_Bk.sum(1, keepdim=True)
        gathered = self.gather(factors, before_B, targets_TB.clamp(min=0))
        scale_TB, belief_TBk = self.recur(factors, belief_Bk, gathered, beside)
        nats = -(scale_TB.log() * present_TB).sum() / present_TB.sum().clamp(min=1)
        last_Bk = belief_TBk[-1]
        if kept_Ck is not None:
            whole_Bk = last_Bk.new_zeros(len(last_Bk), self.config.states)
            last_Bk = whole_Bk.scatter(1, kept_Ck[gathered.clusters_UB[-1]], last_Bk)
        return Window(nats, ((last_Bk,),), belief_TBk, belief_TBk)

    def _draw_states(self) -> Int[Tensor, "C k"]:
        """Return which states of each cluster take part in a window."""
        number = max(1, round(self.config.states * (1 - self.config.dropout_states)))
        chances_Ck = torch.rand(self.config.clusters, self.config.states)
        return chances_Ck.topk(number, 1).indices.sort(1).values

    def gather(self, factors: Factors, before_B: Int[Tensor, " B"], words_TB: Int[Tensor, "T B"]) -> Gathered:
        """Look the words of a window up; before it came words of the clusters ``before_B``."""
        C, k = factors.onward_CkC.shape[:2]
        clusters_UB = torch.cat([before_B.unsqueeze(0), self.cluster_V[words_TB]])
        onward_DCk = factors.onward_CkC.transpose(1, 2).reshape(C * C, k)
        pairs_N = (clusters_UB[:-1] * C + clusters_UB[1:]).flatten()
        shape = (*words_TB.shape, k)
        return Gathered(
            clusters_UB,
            rows(onward_DCk, pairs_N).view(shape),
            rows(factors.emission_Pk, factors.row_V[words_TB].flatten()).view(shape),
        )

    @abstractmethod
    def leaving(
        self,
        factors: Factors,
        gathered: Gathered,
        blocks: Blocks,
        beside: Any,
    ) -> Float[Tensor, "T B k"]:
        """Return the factor of each state that is left, given the blocks of all words."""

    @torch.no_grad()
    def read_text(
        self, tokens_BT: Int[np.ndarray, "B T"], state: ProbabilisticState, beside: Any
    ) -> tuple[Float[np.ndarray, "B T"], ProbabilisticState]:
        """Return ln p of each token, and the state behind the last."""
        factors, scores = self.factors, list[np.ndarray]()
        tokens_TB = torch.from_numpy(np.array(tokens_BT.T, np.int64, order="C"))
        # A block for each word, or one that all share.
        k = self.config.states
        step = max(1, AT_ONCE // (tokens_TB.shape[1] * (k if factors.shared is not None else k * k)))
        cluster_B, belief_Bk = state.cluster_B, state.belief_Bk.numpy()
        for begin in range(0, len(tokens_TB), step):
            part = slice(begin, begin + step)
            gathered = self.gather(factors, cluster_B, tokens_TB[part])
            blocks = factors.blocks_of(gathered.clusters_UB)
            own = None if beside is None else type(beside)(*(values[part] for values in beside))
            leave_TBk = self.leaving(factors, gathered, blocks, own)
            scale_TB, belief_Bk = follow_text(
                belief_Bk, leave_TBk.numpy(), blocks, gathered.emission_TBk.numpy()
            )
            cluster_B = gathered.clusters_UB[-1]
            scores.append(np.log(scale_TB))
        return np.concatenate(scores).T, ProbabilisticState(cluster_B, torch.from_numpy(belief_Bk))

    @abstractmethod
    def recur(
        self, factors: Factors, belief_Bk: Float[Tensor, "B k"], gathered: Gathered, beside: Any
    ) -> tuple[Float[Tensor, "T B"], Float[Tensor, "T B k"]]:
        """Return p of each word after those before it, and the beliefs behind it.

        Args:
            factors: all probabilities.
            belief_Bk: what is believed before the first word.
            gathered: what the words bring.
            beside: what stands beside the hidden states.
        """

    def forget(self) -> None:
        """Forget what was computed from weights and clusters."""
        self._factors = None

    def train(self, mode: bool = True) -> HiddenStates[StateT]:
        """Switch dropout on or off; what was computed from the weights so far is forgotten."""
        self.forget()
        super().train(mode)
        return self

    @property
    def factors(self) -> Factors:
        """All probabilities of the model as it stands; kept while it is not trained."""
        if self._factors is not None:
            return self._factors
        with torch.no_grad():
            made = self.parts.factors(self.layout)
        if not self.training:
            self._factors = made
        return made

    @property
    def parameter_count(self) -> int:
        """Vectors, layers and biases, or free logits."""
        return sum(parameter.numel() for parameter in self.parameters())

    def restore(self, folder: Path) -> None:
        """Take the weights and clusters of ``model.safetensors``.

        Raises:
            RunError: the file is missing or damaged, or does not fit the config.
        """
        shapes = {key: (tensor.dtype, tuple(tensor.shape)) for key, tensor in self.state_dict().items()}
        weights = load_weights(folder, shapes)
        cluster_V = weights["cluster_V"]
        if int(cluster_V.min()) < 0 or int(cluster_V.max()) >= self.config.clusters:
            raise RunError(
                f"{folder / WEIGHTS}: a word has a cluster outside 0 to {self.config.clusters - 1}; {REMEDY}"
            )
        self.load_state_dict(weights)
        self.eval()

    def expect(self, cluster_B: Int[Tensor, " B"], belief_Bk: Float[Tensor, "B k"]) -> Float[Tensor, "B V"]:
        """Return the probability of every next word, by the hidden states alone."""
        factors, C = self.factors, self.config.clusters
        if factors.shared is not None:
            return move(belief_Bk, factors.shared) @ factors.emission_Vk.t()
        rows_BV: list[Tensor] = []
        for cluster, belief_k in zip(cluster_B, belief_Bk, strict=True):
            blocks_Ckk = factors.blocks(cluster.expand(C), torch.arange(C))
            leave_Ck = (factors.onward_CkC[cluster] * belief_k.unsqueeze(1)).t()
            moved_Ck = torch.bmm(leave_Ck.unsqueeze(1), blocks_Ckk).squeeze(1)
            rows_BV.append((factors.emission_Vk * moved_Ck[self.cluster_V]).sum(1))
        return torch.stack(rows_BV)


def _assign_loaded(model: nn.Module, _: object) -> None:
    """Follow the clusters that were loaded."""
    assert isinstance(model, HiddenStates)  # noqa: S101
    model.assign(model.cluster_V)
