"""The recurrences: the TSLM family of Eq. 19, and the additive networks of Eq. 21 it is compared with.

A cell reads a window of word vectors, time first, and returns one state per word. All cells have the same methods, so
that everything around them (embedding, dropout, head, training) is the same for all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tslm.models.recurrent.scan import multiplicative_scan

Variant = Literal["pure", "biased", "bounded", "normalised"]
CellState = tuple[Tensor, ...]
"""What a cell carries from window to window; B is the last dimension but one of each tensor."""


class Cell(nn.Module, ABC):
    """One recurrent layer."""

    def __init__(self, rank: int, weight_drop: float) -> None:
        super().__init__()
        self.rank = rank
        self.weight_drop = weight_drop

    @abstractmethod
    def start(self, batch: int) -> CellState:
        """Return what is carried before the first word."""

    @abstractmethod
    def forward(
        self, inputs_TBM: Float[Tensor, "T B M"], state: CellState
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Read a window of word vectors; return the state after each of them, and what to carry on."""

    @abstractmethod
    def recurrent_weight(self) -> Tensor:
        """Return W, the hidden-to-hidden matrix, as the recurrence uses it when not training."""

    def settle(self, iterations: int = 500) -> None:
        """Bring what the cell follows of its weights up to date; most cells follow nothing."""

    def dropped(self, W: Tensor) -> Tensor:
        """Return W with entries dropped for this window while training."""
        return F.dropout(W, self.weight_drop, self.training and self.weight_drop > 0)


class TslmCell(Cell):
    """Eqs. 19, 21. h_t = (W h_{t−1} + b) ⊙ f(α_t), started from W h₀ + b = **1**.

    | variant | b | word factor f(α) | limit | an exact contraction of a tensor network? |
    |---|---|---|---|---|
    | ``pure`` | 0 | U α | none | yes: Eq. 19 as printed |
    | ``biased`` | learnt | U α + c | none | yes: b and c are one more, constant, coordinate of h and of α |
    | ``bounded`` | learnt | tanh(U α + c) | ‖W‖ ≤ ``norm_limit`` | yes, in the factors |
    | ``normalised`` | learnt | U α + c | h / sqrt(1 + mean h²) | no |

    ``bounded`` is exact because tanh acts on each word alone, so f(α) is just another vector of that word, and the
    limit only chooses W. It cannot overflow: |f| ≤ 1 and ‖W‖ < 1 keep ‖h‖ below ‖b‖ / (1 − ‖W‖) (while training,
    up to the lag of the power iteration that follows ‖W‖, and to ``weight_drop``, which acts after it). ``normalised``
    is not: the divisor depends on the whole history, so h is no longer multilinear in the words.

    Except in ``pure``, the units start as two kinds. *Writing* units have W = 0 and b = 1: their state is the
    last word's own factor. *Holding* units have a factor near 1 and, as their row of W, a decay on the diagonal
    plus a random mixture of the writing units: their state is a fading sum of the words before, with memories
    from two to fifty words. So the model starts as a linear memory, and products of words come in as training
    finds a use for them.
    """

    def __init__(
        self,
        inputs: int,
        rank: int,
        *,
        variant: Variant,
        weight_drop: float = 0.0,
        holding: float = 0.5,
        norm_limit: float | None = None,
    ) -> None:
        super().__init__(rank, weight_drop)
        self.variant: Variant = variant
        self.norm_limit = 0.98 if norm_limit is None and variant == "bounded" else norm_limit
        self.W = nn.Parameter(torch.empty(rank, rank))
        self.U = nn.Parameter(torch.randn(rank, inputs) / math.sqrt(inputs))
        self.b: Tensor
        self.c: Tensor
        if variant == "pure":
            self.register_buffer("b", torch.zeros(rank), persistent=False)
            self.register_buffer("c", torch.zeros(rank), persistent=False)
            nn.init.orthogonal_(self.W, gain=0.7)
        else:
            self.b = nn.Parameter(torch.ones(rank))
            self.c = nn.Parameter(torch.zeros(rank))
            self._start_linear(round(holding * rank))
        self.left_R: Tensor
        # The left singular vector of W, followed by one power iteration per step.
        self.register_buffer(
            "left_R", F.normalize(torch.ones(rank), dim=0), persistent=self.norm_limit is not None
        )
        self.settle()

    @torch.no_grad()
    def _start_linear(self, holding: int) -> None:
        """Make the first ``holding`` units hold and the others write."""
        writing = self.rank - holding
        forget = torch.logspace(math.log10(0.5), math.log10(0.02), holding)
        decay = 1 - forget
        self.W.zero_()
        self.W[:holding, :holding] = torch.diag(decay)
        # Scaled so that every holding unit has the variance of a writing one, however long it remembers.
        mixture = torch.randn(holding, writing) / math.sqrt(max(writing, 1))
        self.W[:holding, holding:] = mixture * (1 - decay**2).sqrt().unsqueeze(1)
        self.b[:holding] = 0
        self.c[:holding] = 2 if self.variant == "bounded" else 1
        self.U[:holding] *= 0.1

    def start(self, batch: int) -> CellState:
        """Eq. 19. W h₀ = **1**, and no inverse of W is needed."""
        return (self.W.new_ones(batch, self.rank),)

    def factors(self, inputs_TBM: Float[Tensor, "*T M"]) -> Float[Tensor, "*T R"]:
        """Return f(α) for any number of word vectors."""
        factors_TBR = F.linear(inputs_TBM, self.U, self.c)
        return factors_TBR.tanh() if self.variant == "bounded" else factors_TBR

    def recurrent_weight(self) -> Float[Tensor, "R R"]:
        """Return W, scaled down where its spectral norm is above the limit."""
        if self.norm_limit is None:
            return self.W
        with torch.no_grad():
            right_R = F.normalize(self.W.t() @ self.left_R, dim=0)
        norm = torch.dot(self.left_R, self.W @ right_R)
        return self.W * (self.norm_limit / norm.clamp(min=self.norm_limit))

    @torch.no_grad()
    def settle(self, iterations: int = 500) -> None:
        """Bring the followed singular vector of W to its place; one iteration per step then keeps it there."""
        if self.norm_limit is not None:
            for _ in range(iterations):
                right_R = F.normalize(self.W.t() @ self.left_R, dim=0)
                self.left_R = F.normalize(self.W @ right_R, dim=0)

    def forward(
        self, inputs_TBM: Float[Tensor, "T B M"], state: CellState
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Read a window of word vectors."""
        if self.training:
            self.settle(1)
        states_TBR, transfer_BR = multiplicative_scan(
            self.factors(inputs_TBM),
            state[0],
            self.dropped(self.recurrent_weight()),
            self.b,
            normalise=self.variant == "normalised",
        )
        return states_TBR, (transfer_BR,)


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

    def __init__(self, inputs: int, rank: int, *, weight_drop: float = 0.0) -> None:
        super().__init__(inputs, rank, 1, weight_drop)

    def start(self, batch: int) -> CellState:
        """Nothing has been read: zero."""
        return (self.W.new_zeros(1, batch, self.rank),)

    def forward(
        self, inputs_TBM: Float[Tensor, "T B M"], state: CellState
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Read a window of word vectors."""
        states_TBR, last_1BR = torch.rnn_tanh(
            inputs_TBM, state[0], self.weights(), True, 1, 0.0, self.training, False, False
        )
        return states_TBR, (last_1BR,)


class LstmCell(_AdditiveCell):
    """Long short-term memory: the kernel of ``nn.LSTM``, with the forget gates started open."""

    def __init__(self, inputs: int, rank: int, *, weight_drop: float = 0.0) -> None:
        super().__init__(inputs, rank, 4, weight_drop)
        with torch.no_grad():
            self.b_word[rank : 2 * rank] = 1

    def start(self, batch: int) -> CellState:
        """Nothing has been read: zero, in state and memory."""
        return self.W.new_zeros(1, batch, self.rank), self.W.new_zeros(1, batch, self.rank)

    def forward(
        self, inputs_TBM: Float[Tensor, "T B M"], state: CellState
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Read a window of word vectors."""
        states_TBR, last_1BR, memory_1BR = torch.lstm(
            inputs_TBM, state, self.weights(), True, 1, 0.0, self.training, False, False
        )
        return states_TBR, (last_1BR, memory_1BR)


class MultiplicativeIntegrationCell(Cell):
    """h_t = tanh(a ⊙ W h_{t−1} ⊙ U α_t + b₁ ⊙ W h_{t−1} + b₂ ⊙ U α_t + b): sum and product in one cell."""

    def __init__(self, inputs: int, rank: int, *, weight_drop: float = 0.0) -> None:
        super().__init__(rank, weight_drop)
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
        words_TBR = F.linear(inputs_TBM, self.U)
        # Per word: what multiplies W h, and what is added to it.
        gains_TBR = torch.addcmul(self.state_gain, self.product, words_TBR)
        sums_TBR = torch.addcmul(self.bias, self.word_gain, words_TBR)
        W_transposed = self.dropped(self.W).t()
        (state_BR,) = state
        states: list[Tensor] = []
        for gain_BR, sum_BR in zip(gains_TBR.unbind(), sums_TBR.unbind(), strict=True):
            state_BR = torch.addcmul(sum_BR, gain_BR, state_BR @ W_transposed).tanh()
            states.append(state_BR)
        return torch.stack(states), (state_BR,)
