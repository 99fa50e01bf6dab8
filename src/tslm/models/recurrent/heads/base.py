"""From a state to a distribution over the next word: what every head does, and the formula they share.

A head turns a state into K latent vectors z_k and their prior π; then p(w) = Σ_k π_k softmax(V z_k + bias)[w]. The
output matrix V belongs to the model, which may tie it to the embedding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tslm.config import read_choice
from tslm.models.recurrent.products import linear, multiply

LOGITS = 4_000_000
"""How many are held at once: freed arrays up to this size are used again, larger ones go back to the system."""


@dataclass(frozen=True, kw_only=True)
class HeadConfig(ABC):
    """The ``[model.head]`` table: ``kind``, and keys that only that kind of head knows."""

    kind: ClassVar[str]

    @abstractmethod
    def build(self, rank: int, embedding: int) -> Head:
        """Make the head."""

    def least_numbers(self, rank: int, embedding: int) -> int:
        """Return how many numbers the head has at the least."""
        return 0

    @classmethod
    def from_table(cls, table: Any, where: str) -> HeadConfig:
        """Read the table of any kind of head."""
        from tslm.models.recurrent.heads import HEADS

        return read_choice(HEADS, table, where)


@runtime_checkable
class CrossEntropy(Protocol):
    """The mean of −ln Σ_k π_k softmax(V z_k + b)[target] over a window, exact or estimated: what training minimises."""

    def __call__(
        self,
        latents_NKM: Float[Tensor, "N K M"],
        log_prior_NK: Float[Tensor, "N K"] | None,
        weight_VM: Float[Tensor, "V M"],
        bias_V: Float[Tensor, " V"],
        targets_N: Int[Tensor, " N"],
    ) -> Float[Tensor, ""]:
        """Return it; targets below 0 are left out."""
        ...


class WindowLoss(NamedTuple):
    """What training minimises, and what it may penalise."""

    nats: Float[Tensor, ""]
    """The mean negative log-likelihood of the targets."""
    latents_NKM: Float[Tensor, "N K M"]


class Head(nn.Module, ABC):
    """Latents from a state, and all that is made of them."""

    @abstractmethod
    def forward(
        self, states_NR: Float[Tensor, "N R"]
    ) -> tuple[Float[Tensor, "N K M"], Float[Tensor, "N K"] | None]:
        """Return the K latents of each state, and the logarithm of their prior (None where K = 1)."""

    def direction(self, states_NR: Float[Tensor, "N R"]) -> Float[Tensor, "N M"]:
        """Return the direction of the mean latent: states that expect the same words have the same."""
        return direct(*self(states_NR))

    def linear(self) -> Float[Tensor, "M R"] | None:
        """Return the matrix that reads the latent out of the state, or None where it is no matrix alone."""
        return None

    def loss(
        self,
        states_NR: Float[Tensor, "N R"],
        weight_VM: Float[Tensor, "V M"],
        bias_V: Float[Tensor, " V"],
        targets_N: Int[Tensor, " N"],
        cross_entropy: CrossEntropy,
    ) -> WindowLoss:
        """Return what training minimises for a window."""
        latents_NKM, log_prior_NK = self(states_NR)
        return WindowLoss(cross_entropy(latents_NKM, log_prior_NK, weight_VM, bias_V, targets_N), latents_NKM)

    def predict(
        self,
        states_NR: Float[Tensor, "N R"],
        weight_VM: Float[Tensor, "V M"],
        bias_V: Float[Tensor, " V"],
    ) -> Float[Tensor, "N V"]:
        """Eq. 17. ln p of every word after each state."""
        latents_NKM, log_prior_NK = self(states_NR)
        return log_probabilities(latents_NKM, log_prior_NK, weight_VM, bias_V)

    def score(
        self,
        states_NR: Float[Tensor, "N R"],
        weight_VM: Float[Tensor, "V M"],
        bias_V: Float[Tensor, " V"],
        targets_N: Int[Tensor, " N"],
    ) -> Float[Tensor, " N"]:
        """Eq. 17. ln p of one target after each state, with the full softmax."""
        latents_NKM, log_prior_NK = self(states_NR)
        return score_targets(latents_NKM, log_prior_NK, weight_VM, bias_V, targets_N)


def direct(
    latents_NKM: Float[Tensor, "N K M"], log_prior_NK: Float[Tensor, "N K"] | None
) -> Float[Tensor, "N M"]:
    """Return the direction of the mean latent."""
    if log_prior_NK is None:
        return F.normalize(latents_NKM[:, 0], dim=-1)
    return F.normalize((log_prior_NK.exp().unsqueeze(-1) * latents_NKM).sum(1), dim=-1)


def log_probabilities(
    latents_NKM: Float[Tensor, "N K M"],
    log_prior_NK: Float[Tensor, "N K"] | None,
    weight_VM: Float[Tensor, "V M"],
    bias_V: Float[Tensor, " V"],
) -> Float[Tensor, "N V"]:
    """Eq. 17. ln Σ_k π_k softmax(V z_k + bias), for every word."""
    if log_prior_NK is None:
        return linear(latents_NKM.squeeze(1), weight_VM, bias_V).log_softmax(-1)
    mixed_NKV = linear(latents_NKM, weight_VM, bias_V).log_softmax(-1) + log_prior_NK.unsqueeze(-1)
    return mixed_NKV.logsumexp(1)


def score_targets(
    latents_NKM: Float[Tensor, "N K M"],
    log_prior_NK: Float[Tensor, "N K"] | None,
    weight_VM: Float[Tensor, "V M"],
    bias_V: Float[Tensor, " V"],
    targets_N: Int[Tensor, " N"],
    logits: int = LOGITS,
) -> Float[Tensor, " N"]:
    """Eq. 17. ln p(target) with the full softmax, never holding more than about so many logits."""
    N, K, M = latents_NKM.shape
    result_N = latents_NKM.new_empty(N)
    step = max(1, min(512, logits // weight_VM.shape[0]) // K)
    memory = latents_NKM.new_empty(min(N, step) * K, weight_VM.shape[0])
    for begin in range(0, N, step):
        part = slice(begin, min(begin + step, N))
        latents_nM = latents_NKM[part].reshape(-1, M)
        logits_nV = multiply(latents_nM, weight_VM, bias_V, memory_NR=memory[: len(latents_nM)])
        # In place: logsumexp makes a second array of this size, and that cost more than the product itself.
        log_nV = torch.log_softmax(logits_nV, 1, out=logits_nV)
        log_nK = log_nV.gather(1, targets_N[part].repeat_interleave(K).unsqueeze(1)).view(-1, K)
        result_N[part] = (
            log_nK.squeeze(1) if log_prior_NK is None else (log_nK + log_prior_NK[part]).logsumexp(1)
        )
    return result_N
