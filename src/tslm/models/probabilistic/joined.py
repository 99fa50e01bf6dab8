"""Hidden states and counts side by side: two tensors of one text, joined word by word.

Beside its hidden state the model remembers the last words, as an n-gram model does. From state z the next word is left
to the counts with probability λ, or follows from the hidden states as in :mod:`.model`; the hidden state then goes on
as if it had chosen the word itself (see :mod:`.products`). λ depends on z and on what the counts know of the last
words, never on the word to come: so the whole is normalised by construction, p(w | history) is a sum over all hidden
states, and scores and next-word distributions are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tslm.config import check
from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RunError
from tslm.models.ngram.backoff import BackoffModel
from tslm.models.ngram.counting import MAX_ORDER
from tslm.models.ngram.folds import cross_fit
from tslm.models.ngram.smoothed import NgramConfig, NgramModel
from tslm.models.parts import Part, load_parts, save_parts
from tslm.models.probabilistic.config import ProbabilisticConfig
from tslm.models.probabilistic.factors import Factors, Products, rows
from tslm.models.probabilistic.forward import TINY, Blocks
from tslm.models.probabilistic.hidden import Gathered, HiddenStates, ProbabilisticState
from tslm.models.probabilistic.products import read_products
from tslm.models.recurrent.heads import CrossEntropy
from tslm.models.trainable import Carried, Window
from tslm.models.weights import check_size, save_weights


@dataclass(frozen=True, kw_only=True)
class JoinedConfig(ProbabilisticConfig):
    """The hidden states, and the counts beside them."""

    order: int = 5
    """The length of the longest n-grams of the counts, smoothed by Kneser–Ney."""

    folds: int = 20
    """Into how many parts the training text is cut; each is scored by counts of the others while the rest learns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(2 <= self.order <= MAX_ORDER, f"model.order = {self.order} must be 2 to {MAX_ORDER}")
        check(2 <= self.folds <= 1000, f"model.folds = {self.folds} must be 2 to 1,000")
        check(
            self.parameters == "neural", "hidden states joined with counts have model.parameters = 'neural'"
        )
        check(self.clusters > 1, "hidden states joined with counts need model.clusters of 2 or more")

    @property
    def counts(self) -> NgramConfig:
        """The settings of the counts."""
        # A text too small for its own discounts still has some.
        return NgramConfig(order=self.order, unknown=False, discount_fallback=(0.5, 1.0, 1.5))


class JoinedState(NamedTuple):
    """What has been read, in the eyes of the hidden states and of the counts."""

    hidden: ProbabilisticState
    counted_B: Any


class Beside(NamedTuple):
    """What the counts say of the words of a window."""

    counted_TB: Float[Tensor, "T B"]
    """p of each word."""
    known_TBF: Float[Tensor, "T B F"]
    """What is known of the words before each."""


class JoinedModel(HiddenStates[JoinedState]):
    """T₁ ⊗ T₂: a probabilistic model and an n-gram model that read the same words."""

    kind: ClassVar[str] = "joined"

    mean_F: Tensor
    spread_F: Tensor
    counts: BackoffModel | None = None

    def __init__(self, config: JoinedConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.joined = config
        F = 3 * (config.order - 1)
        self.trust = nn.Linear(config.embedding, F + 1)
        self.register_buffer("mean_F", torch.zeros(F))
        self.register_buffer("spread_F", torch.ones(F))

    @torch.no_grad()
    def prepare(self, corpus: Corpus) -> None:
        """Count, and find what counts of other folds say of each word of the training text."""
        super().prepare(corpus)
        self.counts = NgramModel.fit(self.joined.counts, corpus)
        known_NF, scores_N = cross_fit(self.joined.counts, corpus, self.joined.folds)
        self._ids_N = torch.from_numpy(corpus.splits["train"].astype(np.int64))
        self._counted_N = torch.from_numpy(np.exp(scores_N)).float()
        self._known_NF = torch.from_numpy(known_NF)
        self.mean_F.copy_(self._known_NF.mean(0))
        # What never changes says nothing, and is left as it is.
        spread_F = self._known_NF.std(0)
        self.spread_F.copy_(torch.where(spread_F > 1e-6, spread_F, 1.0))

    def follow(self, starts_B: Int[np.ndarray, " B"]) -> None:
        """Remember where in the training text each column begins."""
        self._starts_B = torch.from_numpy(starts_B.astype(np.int64))

    def begin(self, batch: int) -> Carried:
        """Return what the hidden states believe before a text, and the place of each column in the training text."""
        return (*super().begin(batch), (self._starts_B.unsqueeze(1).clone(),))

    def read_window(
        self,
        inputs_TB: Int[Tensor, "T B"],
        targets_TB: Int[Tensor, "T B"],
        carried: Carried,
        cross_entropy: CrossEntropy,
    ) -> Window:
        """Read the targets beside what counts of the other folds say of them."""
        ((place_B1,)) = carried[1]
        present_TB = targets_TB >= 0
        place_TB = place_B1.t() + torch.arange(len(targets_TB)).unsqueeze(1)
        place_TB = torch.where(present_TB, place_TB, 0)
        if not torch.equal(self._ids_N[place_TB[present_TB]], targets_TB[present_TB]):
            raise RunError(
                "a joined model reads its training text from beginning to end, for its counts know each place of it; "
                "set train.state = 'carried'"
            )
        beside = Beside(self._counted_N[place_TB], self._known_NF[place_TB])
        window = self.learn(inputs_TB, targets_TB, carried, beside)
        return window._replace(carried=(*window.carried, (place_B1 + len(targets_TB),)))

    def recur(
        self, factors: Factors, belief_Bk: Tensor, gathered: Gathered, beside: Beside
    ) -> tuple[Tensor, Tensor]:
        """Each state of the word before decides how far the counts are trusted with the next."""
        assert isinstance(factors, Products)  # noqa: S101
        gate_TBk = self.gate(factors, gathered.clusters_UB[:-1], beside.known_TBF)
        return read_products(
            belief_Bk,
            factors.vectors,
            gathered.clusters_UB,
            gathered.onward_TBk,
            gathered.emission_TBk,
            gate_TBk,
            beside.counted_TB.to(gate_TBk),
        )

    def gate(
        self, factors: Products, cluster_TB: Int[Tensor, "T B"], known_TBF: Float[Tensor, "T B F"]
    ) -> Float[Tensor, "T B k"]:
        """Return λ of each state of some clusters, given what is known of the last words."""
        F = known_TBF.shape[2]
        trust_CkG = self.trust(factors.vectors.leave_CkM)
        trust_NkG = rows(trust_CkG, cluster_TB.flatten())
        known_NF = ((known_TBF - self.mean_F) / self.spread_F).to(trust_CkG).reshape(-1, F)
        logits_Nk = torch.bmm(trust_NkG[:, :, :F], known_NF.unsqueeze(2)).squeeze(2) + trust_NkG[:, :, F]
        return logits_Nk.sigmoid().view(*cluster_TB.shape, -1)

    def start(self, batch: int) -> JoinedState:
        """A text begins as if an ``<eos>`` had just been read."""
        return JoinedState(self.at_start(batch), self._counts.start(batch))

    @property
    def _counts(self) -> BackoffModel:
        if self.counts is None:
            raise RunError("this joined model has no counts yet; train it, or load a trained one")
        return self.counts

    def leaving(self, factors: Factors, gathered: Gathered, blocks: Blocks, beside: Beside) -> Tensor:
        """A state is left for the cluster of the next word, or the counts choose the word."""
        assert isinstance(factors, Products)  # noqa: S101
        assert isinstance(blocks, Tensor)  # noqa: S101
        gate_TBk = self.gate(factors, gathered.clusters_UB[:-1], beside.known_TBF)
        own_TBk = (blocks @ gathered.emission_TBk.unsqueeze(3)).squeeze(3) + TINY
        counted_TBk = beside.counted_TB.to(own_TBk).unsqueeze(2) / own_TBk
        return torch.lerp(gathered.onward_TBk, counted_TBk, gate_TBk)

    def score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: JoinedState
    ) -> tuple[Float[np.ndarray, "B T"], JoinedState]:
        """Sum over all hidden states, word by word."""
        counted_BT, known_BTF, counted_B = self._counts.score_knowing(tokens_BT, state.counted_B)
        beside = Beside(
            torch.from_numpy(np.exp(counted_BT).T.copy()),
            torch.from_numpy(np.moveaxis(known_BTF, 0, 1).copy()),
        )
        scores_BT, hidden = self.read_text(tokens_BT, state.hidden, beside)
        return scores_BT, JoinedState(hidden, counted_B)

    @torch.no_grad()
    def predict(self, state: JoinedState) -> Float[np.ndarray, "B V"]:
        """Return ln p of every next word: Σ_z b_z [(1 − λ_z) p(w | z) + λ_z p(w)], b being the belief."""
        factors = self.factors
        assert isinstance(factors, Products)  # noqa: S101
        known_1BF = torch.from_numpy(self._counts.know(state.counted_B)).unsqueeze(0)
        gate_Bk = self.gate(factors, state.hidden.cluster_B.unsqueeze(0), known_1BF)[0]
        share_B1 = (gate_Bk * state.hidden.belief_Bk).sum(1, keepdim=True)
        hidden_BV = self.expect(state.hidden.cluster_B, (1 - gate_Bk) * state.hidden.belief_Bk)
        counted_BV = torch.from_numpy(np.exp(self._counts.predict(state.counted_B))).to(hidden_BV)
        return (hidden_BV + share_B1 * counted_BV).log().numpy()

    @property
    def parameter_count(self) -> int:
        """Those of the hidden states, and the counts."""
        return super().parameter_count + self._counts.parameter_count

    def save(self, folder: Path) -> None:
        """Write ``model.safetensors``, and the counts into ``parts/``."""
        save_parts([Part(self._counts, self.joined.counts)], folder)
        save_weights(folder, self.state_dict())

    @classmethod
    def load(cls, folder: Path, config: Any, vocabulary: Vocabulary) -> JoinedModel:
        """Read what :meth:`save` wrote."""
        check_size(folder, config.least_numbers(len(vocabulary)))
        model = cls(config, vocabulary)
        (part,) = load_parts(folder, 1, vocabulary)
        if not isinstance(part.model, BackoffModel) or part.model.order != config.order:
            raise RunError(
                f"{folder} is damaged: beside its hidden states stands no n-gram model of its order"
            )
        model.counts = part.model
        model.restore(folder)
        return model
