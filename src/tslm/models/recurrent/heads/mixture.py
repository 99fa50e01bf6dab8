"""A mixture of softmaxes (Yang et al. 2018): the matrix of log-probabilities is no longer limited to rank M."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tslm.config import check
from tslm.models.recurrent.dropout import make_mask
from tslm.models.recurrent.heads.base import Head, HeadConfig
from tslm.models.recurrent.products import linear


@dataclass(frozen=True, kw_only=True)
class MixtureConfig(HeadConfig):
    """A mixture of softmaxes."""

    kind: ClassVar[str] = "mixture"

    experts: int = 1
    """K: the number of softmaxes."""

    latent: Literal["tanh", "identity"] = "tanh"
    """What the latent projection passes through."""

    dropout: float = 0.0
    """Dropout on the latents."""

    def __post_init__(self) -> None:
        check(1 <= self.experts <= 1024, f"model.head.experts = {self.experts} must be 1 to 1024")
        check(0 <= self.dropout < 1, f"model.head.dropout = {self.dropout} must lie in [0, 1)")

    def build(self, rank: int, embedding: int) -> MixtureHead:
        """Make the head."""
        return MixtureHead(self, rank, embedding)

    def least_numbers(self, rank: int, embedding: int) -> int:
        """Return the size of the projection to the latents."""
        return rank * self.experts * embedding


class MixtureHead(Head):
    """K softmaxes over one output matrix. With K = 1, an identity latent and R = M it is the softmax head."""

    def __init__(self, config: MixtureConfig, rank: int, embedding: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding
        self.latent = nn.Linear(rank, config.experts * embedding)
        self.prior = nn.Linear(rank, config.experts, bias=False)

    def forward(
        self, states_NR: Float[Tensor, "N R"]
    ) -> tuple[Float[Tensor, "N K M"], Float[Tensor, "N K"] | None]:
        """Return the K latents of each state and the logarithm of their prior."""
        latents_NM = linear(states_NR, self.latent.weight, self.latent.bias)
        latents_NKM = latents_NM.view(-1, self.config.experts, self.embedding)
        if self.config.latent == "tanh":
            latents_NKM = latents_NKM.tanh()
        if self.training and self.config.dropout > 0:
            latents_NKM = latents_NKM * make_mask(latents_NKM.shape, self.config.dropout, latents_NKM)
        return latents_NKM, F.log_softmax(linear(states_NR, self.prior.weight), dim=-1)
