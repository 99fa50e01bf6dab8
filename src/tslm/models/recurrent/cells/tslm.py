"""Eqs. 19, 21. The cell of the paper: the state times the word, in four variants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tslm.config import check
from tslm.models.recurrent.cells.base import CellConfig, CellState, ChainCell
from tslm.models.recurrent.products import linear
from tslm.models.recurrent.scan import multiplicative_scan

Variant = Literal["pure", "biased", "bounded", "normalised"]


@dataclass(frozen=True, kw_only=True)
class TslmConfig(CellConfig):
    """The TSLM of the paper."""

    kind: ClassVar[str] = "tslm"

    variant: Variant = "normalised"
    """``pure``, ``biased``, ``bounded`` or ``normalised``: see ``TslmCell``."""

    holding: float = 0.5
    """The share of units that start as holding units, see ``TslmCell``."""

    norm_limit: float | None = None
    """The largest spectral norm of W; left out, there is none, but 0.98 in the ``bounded`` variant."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.holding <= 1, f"model.cell.holding = {self.holding} must lie in [0, 1]")
        if self.norm_limit is not None:
            check(self.norm_limit > 0, f"model.cell.norm_limit = {self.norm_limit} must be positive")
            check(
                self.variant != "bounded" or self.norm_limit < 1,
                f"model.cell.norm_limit = {self.norm_limit} does not bound the state: it must be below 1",
            )

    def build(self, inputs: int, rank: int) -> TslmCell:
        """Make the cell."""
        return TslmCell(self, inputs, rank)


class TslmCell(ChainCell):
    """Eqs. 19, 21. h_t = (W h_{t−1} + b) ⊙ f(α_t), started from W h₀ + b = **1**.

    | variant | b | word factor f(α) | limit | an exact contraction of a tensor network? |
    |---|---|---|---|---|
    | ``pure`` | 0 | U α | none | yes: Eq. 19 as printed |
    | ``biased`` | learnt | U α + c | none | yes: b and c are one more, constant, coordinate of h and of α |
    | ``bounded`` | learnt | tanh(U α + c) | ‖W‖ ≤ ``norm_limit`` | yes, in the factors |
    | ``normalised`` | learnt | U α + c | h / sqrt(1 + mean h²) | no |

    ``bounded`` is exact because tanh acts on each word alone, so f(α) is just another vector of that word, and the
    limit only chooses W. It cannot overflow: |f| ≤ 1 and ‖W‖ < 1 keep ‖h‖ at most max(√R, ‖b‖ / (1 − ‖W‖)), √R being
    the norm of the first state (while training, up to the lag of the power iteration that follows ‖W‖, and to
    ``weight_drop``, which acts after it). ``normalised`` is not: the divisor depends on the whole history, so h is no
    longer multilinear in the words.

    Except in ``pure``, the units start as two kinds. *Writing* units have W = 0 and b = 1: their state is the
    last word's own factor. *Holding* units have a factor near 1 and, as their row of W, a decay on the diagonal
    plus a random mixture of the writing units: their state is a fading sum of the words before, with memories
    from two to fifty words. So the model starts as a linear memory, and products of words come in as training
    finds a use for them.
    """

    def __init__(self, config: TslmConfig, inputs: int, rank: int) -> None:
        variant = config.variant
        limit = 0.98 if config.norm_limit is None and variant == "bounded" else config.norm_limit
        super().__init__(rank, config.weight_drop, limit)
        self.variant: Variant = variant
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
            self._start_linear(round(config.holding * rank))
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

    @property
    def exact(self) -> bool:
        """Whether nothing but products and sums joins the words."""
        return self.variant != "normalised"

    def factors(self, words_NM: Float[Tensor, "*N M"]) -> tuple[Float[Tensor, "*N R"], ...]:
        """Return f(α) for any number of word vectors."""
        factors_NR = linear(words_NM, self.U, self.c)
        return (factors_NR.tanh() if self.variant == "bounded" else factors_NR,)

    def scan(
        self, factors: tuple[Float[Tensor, "T B R"], ...], state: CellState, W_RR: Float[Tensor, "R R"]
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Eq. 19. Read a window of factors; what is carried is W h + b."""
        states_TBR, transfer_BR = multiplicative_scan(
            factors[0], state[0], W_RR, self.b, normalise=self.variant == "normalised"
        )
        return states_TBR, (transfer_BR,)

    def operators(
        self, words_NM: Float[Tensor, "N M"]
    ) -> tuple[Float[Tensor, "N R R"], Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        """Return D(f) W, f ⊙ b, and f: h_t = D(f)(W h + b), and the first state is f ⊙ **1**."""
        (factors_NR,) = self.factors(words_NM)
        return factors_NR.unsqueeze(-1) * self.recurrent_weight(), factors_NR * self.b, factors_NR

    def affine_parts(
        self, words_NM: Float[Tensor, "N M"]
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"], Float[Tensor, "N R"], Float[Tensor, "N R"] | None]:
        """Return 0, f and f ⊙ b: nothing is held but through W."""
        (factors_NR,) = self.factors(words_NM)
        return torch.zeros_like(factors_NR), factors_NR, factors_NR * self.b, None

    def carry(self, states_BR: Float[Tensor, "B R"]) -> CellState:
        """Return W h + b."""
        return (nn.functional.linear(states_BR, self.recurrent_weight(), self.b),)

    def average_step(
        self, states_BR: Float[Tensor, "B R"], words_VM: Float[Tensor, "V M"]
    ) -> Float[Tensor, "B R"]:
        """Eq. 14. The step is linear in the factor, so the mean of all words is the word of the mean factor."""
        return self._step(states_BR, self.factors(words_VM)[0].mean(0))

    def neutral_step(self, states_BR: Float[Tensor, "B R"]) -> Float[Tensor, "B R"]:
        """The factor **1** changes nothing."""
        return self._step(states_BR, torch.ones_like(states_BR[0]))

    def _step(self, states_BR: Tensor, factor_R: Tensor) -> Tensor:
        factors_TBR = factor_R.expand(1, *states_BR.shape)
        return self.scan((factors_TBR,), self.carry(states_BR), self.recurrent_weight())[0][0]
