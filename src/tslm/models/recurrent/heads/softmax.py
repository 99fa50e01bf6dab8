"""Eqs. 17, 20. One softmax: the head of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tslm.models.recurrent.heads.base import Head, HeadConfig
from tslm.models.recurrent.products import linear


@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig(HeadConfig):
    """One softmax."""

    kind: ClassVar[str] = "softmax"

    readout: bool = False
    """Put a matrix between state and output where R = M too: a tied V no longer dictates what each unit means."""

    def build(self, rank: int, embedding: int) -> SoftmaxHead:
        """Make the head."""
        return SoftmaxHead(self, rank, embedding)


class SoftmaxHead(Head):
    """One softmax."""

    def __init__(self, config: SoftmaxConfig, rank: int, embedding: int) -> None:
        super().__init__()
        self.rank = rank
        needed = config.readout or rank != embedding
        self.projection = nn.Linear(rank, embedding, bias=False) if needed else None

    def forward(
        self, states_NR: Float[Tensor, "N R"]
    ) -> tuple[Float[Tensor, "N K M"], Float[Tensor, "N K"] | None]:
        """Eq. 20. y = V h: the latent is the state itself, or what a matrix reads out of it (then V is a product)."""
        latents_NM = states_NR if self.projection is None else linear(states_NR, self.projection.weight)
        return latents_NM.unsqueeze(1), None

    def linear(self) -> Float[Tensor, "M R"]:
        """Return the matrix between state and output: the identity where there is none."""
        return torch.eye(self.rank) if self.projection is None else self.projection.weight
