"""From a state to a distribution over the next word: softmax, and mixture of softmaxes.

Both heads turn a state into K latent vectors z_k and their prior π, and share one formula with it:
p(w) = Σ_k π_k softmax(V z_k + bias)[w]. The softmax head is the case K = 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


class Head(nn.Module, ABC):
    """Latents from a state; the output matrix V itself belongs to the model, which may tie it to the embedding."""

    @abstractmethod
    def forward(
        self, states_NR: Float[Tensor, "N R"]
    ) -> tuple[Float[Tensor, "N K M"], Float[Tensor, "N K"] | None]:
        """Return the K latents of each state, and the logarithm of their prior (None where K = 1)."""


class SoftmaxHead(Head):
    """One softmax."""

    def __init__(self, rank: int, embedding: int, *, readout: bool = False) -> None:
        super().__init__()
        needed = readout or rank != embedding
        self.projection = nn.Linear(rank, embedding, bias=False) if needed else None

    def forward(
        self, states_NR: Float[Tensor, "N R"]
    ) -> tuple[Float[Tensor, "N K M"], Float[Tensor, "N K"] | None]:
        """Eq. 20. y = V h: the latent is the state itself, or what a matrix reads out of it (then V is a product)."""
        latents_NM = states_NR if self.projection is None else self.projection(states_NR)
        return latents_NM.unsqueeze(1), None


class MixtureHead(Head):
    """A mixture of K softmaxes: the matrix of log-probabilities is no longer limited to rank M.

    With K = 1, an identity latent (``activation = "identity"``, R = M) it is the softmax head.
    """

    def __init__(
        self, rank: int, embedding: int, *, experts: int, activation: str = "tanh", dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.experts = experts
        self.activation = activation
        self.dropout = dropout
        self.latent = nn.Linear(rank, experts * embedding)
        self.prior = nn.Linear(rank, experts, bias=False)

    def forward(
        self, states_NR: Float[Tensor, "N R"]
    ) -> tuple[Float[Tensor, "N K M"], Float[Tensor, "N K"] | None]:
        """Return the K latents of each state and the logarithm of their prior."""
        latents_NKM = self.latent(states_NR).view(-1, self.experts, self.embedding)
        if self.activation == "tanh":
            latents_NKM = latents_NKM.tanh()
        latents_NKM = F.dropout(latents_NKM, self.dropout, self.training)
        return latents_NKM, F.log_softmax(self.prior(states_NR), dim=-1)


def log_probabilities(
    latents_NKM: Float[Tensor, "N K M"],
    log_prior_NK: Float[Tensor, "N K"] | None,
    weight_VM: Float[Tensor, "V M"],
    bias_V: Float[Tensor, " V"],
) -> Float[Tensor, "N V"]:
    """Eq. 17. ln Σ_k π_k softmax(V z_k + bias), for every word."""
    if log_prior_NK is None:
        return F.linear(latents_NKM.squeeze(1), weight_VM, bias_V).log_softmax(-1)
    mixed_NKV = F.linear(latents_NKM, weight_VM, bias_V).log_softmax(-1) + log_prior_NK.unsqueeze(-1)
    return mixed_NKV.logsumexp(1)


def score_targets(
    latents_NKM: Float[Tensor, "N K M"],
    log_prior_NK: Float[Tensor, "N K"] | None,
    weight_VM: Float[Tensor, "V M"],
    bias_V: Float[Tensor, " V"],
    targets_N: Int[Tensor, " N"],
    rows: int = 512,
) -> Float[Tensor, " N"]:
    """Eq. 17. ln p(target) with the full softmax, never holding more than ``rows`` × V logits."""
    N, K, M = latents_NKM.shape
    result_N = latents_NKM.new_empty(N)
    step = max(1, rows // K)
    buffer = latents_NKM.new_empty(min(N, step) * K, weight_VM.shape[0])
    for begin in range(0, N, step):
        part = slice(begin, min(begin + step, N))
        latents_nM = latents_NKM[part].reshape(-1, M)
        logits_nV = torch.addmm(bias_V, latents_nM, weight_VM.t(), out=buffer[: len(latents_nM)])
        # In place: logsumexp makes a second array of this size, and that cost more than the product itself.
        log_nV = torch.log_softmax(logits_nV, 1, out=logits_nV)
        log_nK = log_nV.gather(1, targets_N[part].repeat_interleave(K).unsqueeze(1)).view(-1, K)
        result_N[part] = (
            log_nK.squeeze(1) if log_prior_NK is None else (log_nK + log_prior_NK[part]).logsumexp(1)
        )
    return result_N
