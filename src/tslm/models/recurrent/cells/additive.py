"""Eq. 21. The additive networks that the TSLM is compared with: the kernels of ``nn.RNN`` and ``nn.LSTM``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tslm.models.recurrent.cells.base import Cell, CellConfig, CellState
from tslm.models.recurrent.products import single_precision


@dataclass(frozen=True, kw_only=True)
class RnnConfig(CellConfig):
    """The plain recurrent network."""

    kind: ClassVar[str] = "rnn"

    def build(self, inputs: int, rank: int) -> RnnCell:
        """Make the cell."""
        return RnnCell(self, inputs, rank)


@dataclass(frozen=True, kw_only=True)
class LstmConfig(CellConfig):
    """Long short-term memory."""

    kind: ClassVar[str] = "lstm"

    def build(self, inputs: int, rank: int) -> LstmCell:
        """Make the cell."""
        return LstmCell(self, inputs, rank)


class _AdditiveCell(Cell):
    """The weights of PyTorch's own recurrent networks, initialised as PyTorch does."""

    def __init__(self, inputs: int, rank: int, gates: int, weight_drop: float) -> None:
        super().__init__(rank, weight_drop)
        bound = 1 / math.sqrt(rank)
        self.U = nn.Parameter(torch.empty(gates * rank, inputs).uniform_(-bound, bound))
        self.W = nn.Parameter(torch.empty(gates * rank, rank).uniform_(-bound, bound))
        self.b_word = nn.Parameter(torch.empty(gates * rank).uniform_(-bound, bound))
        self.b_state = nn.Parameter(torch.empty(gates * rank).uniform_(-bound, bound))

    def recurrent_weight(self) -> Float[Tensor, "G R"]:
        """Return W; an LSTM's is four matrices, one above the other."""
        return self.W

    def weights(self) -> list[Tensor]:
        """Return the weights in the order of PyTorch's kernels."""
        return [self.U, self.dropped(self.W), self.b_word, self.b_state]


class RnnCell(_AdditiveCell):
    """Eq. 21. h_t = tanh(W h_{t−1} + U α_t + b): the kernel of ``nn.RNN``."""

    def __init__(self, config: RnnConfig, inputs: int, rank: int) -> None:
        super().__init__(inputs, rank, 1, config.weight_drop)

    def start(self, batch: int) -> CellState:
        """Nothing has been read: zero."""
        return (self.W.new_zeros(1, batch, self.rank),)

    def forward(
        self, inputs_TBM: Float[Tensor, "T B M"], state: CellState
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Read a window of word vectors."""
        with single_precision(inputs_TBM):
            states_TBR, last_1BR = torch.rnn_tanh(
                inputs_TBM, state[0], self.weights(), True, 1, 0.0, self.training, False, False
            )
        return states_TBR, (last_1BR,)


class LstmCell(_AdditiveCell):
    """Long short-term memory: the kernel of ``nn.LSTM``, with the forget gates started open."""

    def __init__(self, config: LstmConfig, inputs: int, rank: int) -> None:
        super().__init__(inputs, rank, 4, config.weight_drop)
        with torch.no_grad():
            self.b_word[rank : 2 * rank] = 1

    def start(self, batch: int) -> CellState:
        """Nothing has been read: zero, in state and memory."""
        return self.W.new_zeros(1, batch, self.rank), self.W.new_zeros(1, batch, self.rank)

    def forward(
        self, inputs_TBM: Float[Tensor, "T B M"], state: CellState
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Read a window of word vectors."""
        with single_precision(inputs_TBM):
            states_TBR, last_1BR, memory_1BR = torch.lstm(
                inputs_TBM, state, self.weights(), True, 1, 0.0, self.training, False, False
            )
        return states_TBR, (last_1BR, memory_1BR)
