"""What a cell of a cascade passes on: what is read out of it, to be added to the state of the next."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tslm.models.recurrent.products import linear
from tslm.models.recurrent.readout import OutputGate, make_gate, make_product, read_out


class Feed(nn.Module):
    """A r, with r read out of a cell's states as the model reads out its last: r = o ⊙ h ⊙ (1 + Q h) with products."""

    def __init__(self, kind: OutputGate, inputs: int, rank: int) -> None:
        super().__init__()
        self.kind: OutputGate = kind
        self.gate = make_gate(kind, inputs, rank)
        self.product = make_product(kind, rank)
        self.A = nn.Parameter(torch.randn(rank, rank) / math.sqrt(rank))

    def forward(
        self, states_NR: Float[Tensor, "*N R"], words_NM: Float[Tensor, "*N M"]
    ) -> Float[Tensor, "*N R"]:
        """Return what is read out of the states, behind the words just read."""
        return read_out(states_NR, words_NM, self.kind, self.gate, self.product)

    def pass_on(self, read_NR: Float[Tensor, "*N R"]) -> Float[Tensor, "*N R"]:
        """Return what is added to the next state."""
        return linear(read_NR, self.A)
