"""Multiplicative Integration (Wu et al. 2016): sum and product of state and word in one cell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tslm.models.recurrent.cells.base import Cell, CellConfig, CellState
from tslm.models.recurrent.products import linear


@dataclass(frozen=True, kw_only=True)
class IntegrationConfig(CellConfig):
    """Multiplicative Integration."""

    kind: ClassVar[str] = "mi"

    def build(self, inputs: int, rank: int) -> IntegrationCell:
        """Make the cell."""
        return IntegrationCell(self, inputs, rank)


class IntegrationCell(Cell):
    """h_t = tanh(a ⊙ W h_{t−1} ⊙ U α_t + b₁ ⊙ W h_{t−1} + b₂ ⊙ U α_t + b): sum and product in one cell."""

    def __init__(self, config: IntegrationConfig, inputs: int, rank: int) -> None:
        super().__init__(rank, config.weight_drop)
        bound = 1 / math.sqrt(rank)
        self.W = nn.Parameter(torch.empty(rank, rank).uniform_(-bound, bound))
        self.U = nn.Parameter(torch.empty(rank, inputs).uniform_(-bound, bound))
        self.product = nn.Parameter(torch.ones(rank))
        self.state_gain = nn.Parameter(torch.full((rank,), 0.5))
        self.word_gain = nn.Parameter(torch.full((rank,), 0.5))
        self.bias = nn.Parameter(torch.zeros(rank))

    def start(self, batch: int) -> CellState:
        """Nothing has been read: zero."""
        return (self.W.new_zeros(batch, self.rank),)

    def recurrent_weight(self) -> Float[Tensor, "R R"]:
        """Return W."""
        return self.W

    def forward(
        self, inputs_TBM: Float[Tensor, "T B M"], state: CellState
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Read a window of word vectors."""
        words_TBR = linear(inputs_TBM, self.U)
        # Per word: what multiplies W h, and what is added to it.
        gains_TBR = torch.addcmul(self.state_gain, self.product, words_TBR)
        sums_TBR = torch.addcmul(self.bias, self.word_gain, words_TBR)
        W_RR = self.dropped(self.W)
        (state_BR,) = state
        states: list[Tensor] = []
        for gain_BR, sum_BR in zip(gains_TBR.unbind(), sums_TBR.unbind(), strict=True):
            state_BR = torch.addcmul(sum_BR, gain_BR, linear(state_BR, W_RR)).tanh()
            states.append(state_BR)
        return torch.stack(states), (state_BR,)
