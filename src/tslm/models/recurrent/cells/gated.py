"""The gated TSLM: a gate of the word alone decides what the state keeps, and the recurrence stays a tensor network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from tslm.config import check
from tslm.models.recurrent.affine import affine_scan
from tslm.models.recurrent.cells.base import CellConfig, CellState, ChainCell
from tslm.models.recurrent.kernel import Kernel, active
from tslm.models.recurrent.products import linear

LONGEST_MEMORY = 50
"""Words: how long the slowest units remember at the start of training."""


@dataclass(frozen=True, kw_only=True)
class GatedConfig(CellConfig):
    """The gated TSLM."""

    kind: ClassVar[str] = "gated"
    takes_more: ClassVar[bool] = True

    norm_limit: float | None = 1.0
    """The largest spectral norm of W; 0 for none."""

    split: bool = False
    """Put the root of 1 − a on both sides of W instead of 1 − a on one: the state is then bounded by proof."""

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = self.norm_limit
        check(limit is None or limit >= 0, f"model.cell.norm_limit = {limit} must not be negative")
        check(
            not self.split or (limit is not None and 0 < limit <= 1),
            f"model.cell.split bounds the state only where 0 < model.cell.norm_limit ≤ 1, not {limit}",
        )

    def build(self, inputs: int, rank: int) -> GatedCell:
        """Make the cell."""
        return GatedCell(self, inputs, rank)


class GatedCell(ChainCell):
    """Eq. 19 with a memory. h_t = a ⊙ h_{t−1} + b ⊙ (g + s ⊙ W(k ⊙ h_{t−1})), started from h₀ = 0.

    a = σ(U_a α + c_a), g = tanh(U_g α + c_g) and s = tanh(U_s α + c_s) are vectors of the word alone; b = 1 − a and
    k = 1, or, with ``split``, b = k = √(1 − a). So h_t is affine in h_{t−1}, linear once a constant coordinate is
    added, and the states are an exact contraction of a tensor network whose word vectors are (a, b ⊙ g, b ⊙ s, k, 1).
    With a = 0 and g = 0 it is Eq. 19; with s = 0 it is the recurrence of SRU and QRNN, a weighted automaton (Peng et
    al. 2018); an LSTM, whose gates see the state, is none (Merrill et al. 2020).

    **What bounds the state** of a cell that is not fed. Let K = D(s) W, so that ‖K‖ ≤ ‖W‖ ≤ 1. With ``split`` the
    linear part is A = D(a) + D(b) K D(b) = [D(√a) D(b)] · [D(√a); K D(b)], two factors of norm at most 1 because a
    + b² = 1: so ‖A‖ ≤ 1 for every word, and ‖h_t‖ ≤ ‖h_{t−1}‖ + √R for any text whatever. The state of a billion
    words is far from the end of single precision. Without ``split``, A = [D(a) D(b)] · [1; K], whose factors have
    norms at most 1, as a² + b² ≤ 1, and √(1 + ‖W‖²): so ‖A‖ ≤ √2, which bounds the state of any 200 words, but not
    of any text. Gates that alternate can make products of A grow; the limit makes that unlikely, and :meth:`growth`
    says how a trained cell behaves on the words of its own text.

    The units start with memories from 1 to 50 words, and W starts small: a linear memory, into which products of words
    come as training finds a use for them.
    """

    def __init__(self, config: GatedConfig, inputs: int, rank: int) -> None:
        super().__init__(rank, config.weight_drop, config.norm_limit or None)
        self.split = config.split
        self.U = nn.Parameter(torch.randn(3 * rank, inputs) / math.sqrt(inputs))
        self.c = nn.Parameter(torch.zeros(3 * rank))
        self.W = nn.Parameter(torch.randn(rank, rank) * 0.1 / math.sqrt(rank))
        held_R = (-1 / torch.logspace(0, math.log10(LONGEST_MEMORY), rank)).exp()
        with torch.no_grad():
            self.c[:rank] = torch.logit(held_R)
        self.settle()

    @property
    def exact(self) -> bool:
        """Always: nothing but products and sums joins the words."""
        return True

    def start(self, batch: int) -> CellState:
        """Nothing has been read: zero."""
        return (self.W.new_zeros(batch, self.rank),)

    def factors(self, words_NM: Float[Tensor, "*N M"]) -> tuple[Float[Tensor, "*N R"], ...]:
        """Return a, b ⊙ s, b ⊙ g, and with ``split`` k."""
        raw_NR = linear(words_NM, self.U, self.c)
        kernel = active()
        if kernel is not None and kernel.takes(raw_NR):
            return _Gates.apply(raw_NR, self.split, kernel)  # pyright: ignore[reportReturnType]
        hold_NR, content_NR, mix_NR = raw_NR.chunk(3, -1)
        free_NR = torch.sigmoid(-hold_NR)
        if self.split:
            free_NR = free_NR.sqrt()
        factors = (torch.sigmoid(hold_NR), free_NR * mix_NR.tanh(), free_NR * content_NR.tanh())
        return (*factors, free_NR) if self.split else factors

    def scan(
        self, factors: tuple[Float[Tensor, "T B R"], ...], state: CellState, W_RR: Float[Tensor, "R R"]
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Read a window of factors."""
        hold_TBR, mix_TBR, add_TBR, *keep = factors
        states_TBR, last_BR = affine_scan(
            hold_TBR, mix_TBR, add_TBR, state[0], W_RR, keep_TBR=keep[0] if keep else None
        )
        return states_TBR, (last_BR,)

    def forward(
        self,
        inputs_TBM: Float[Tensor, "T B M"],
        state: CellState,
        fed_TBR: Float[Tensor, "T B R"] | None = None,
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Read a window of word vectors; what the cell is fed stands beside g, h_t = … + b ⊙ (g + fed + …)."""
        if fed_TBR is None:
            return super().forward(inputs_TBM, state)
        if self.training:
            self.settle(1)
        factors = self.feed(self.factors(inputs_TBM), fed_TBR)
        return self.scan(factors, state, self.dropped(self.recurrent_weight()))

    def feed(
        self, factors: tuple[Float[Tensor, "*N R"], ...], fed_NR: Float[Tensor, "*N R"]
    ) -> tuple[Float[Tensor, "*N R"], ...]:
        """Return factors with something more to add beside g."""
        hold_NR, mix_NR, add_NR, *keep = factors
        free_NR = keep[0] if keep else 1 - hold_NR
        return hold_NR, mix_NR, add_NR + free_NR * fed_NR, *keep

    def operators(
        self, words_NM: Float[Tensor, "N M"]
    ) -> tuple[Float[Tensor, "N R R"], Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        """Return D(a) + D(b ⊙ s) W D(k) and b ⊙ g, which is also the state after a first word."""
        hold_NR, mix_NR, add_NR, *keep = self.factors(words_NM)
        linear_NRR = mix_NR.unsqueeze(-1) * self.recurrent_weight()
        if keep:
            linear_NRR = linear_NRR * keep[0].unsqueeze(-2)
        return linear_NRR + torch.diag_embed(hold_NR), add_NR, add_NR

    def affine_parts(
        self, words_NM: Float[Tensor, "N M"]
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"], Float[Tensor, "N R"], Float[Tensor, "N R"] | None]:
        """Return a, b ⊙ s, b ⊙ g and k: the factors themselves."""
        hold_NR, mix_NR, add_NR, *keep = self.factors(words_NM)
        return hold_NR, mix_NR, add_NR, keep[0] if keep else None

    @torch.no_grad()
    def growth(self, words_VM: Float[Tensor, "V M"], chance_V: Float[Tensor, " V"]) -> float:
        """Return by what factor the mean square of a state's linear part grows per word, for words drawn by chance.

        Below 1, E‖A(x_t) ⋯ A(x_1)‖² falls exponentially and the state stays bounded in mean square. It is the spectral
        radius of P ↦ E[A P Aᵀ], found by power iteration; the mean needs only second moments of the factors.
        """
        if self.split:
            return 1.0  # no A has a norm above it
        hold_VR, mix_VR, _ = (part.double() for part in self.factors(words_VM))
        W_RR, chance_V1 = self.recurrent_weight().double(), (chance_V.double() / chance_V.sum()).unsqueeze(-1)
        both_RR = (chance_V1 * hold_VR).t() @ hold_VR
        cross_RR = (chance_V1 * hold_VR).t() @ mix_VR
        mixed_RR = (chance_V1 * mix_VR).t() @ mix_VR
        spread_RR, factor = torch.eye(self.rank, dtype=torch.float64, device=W_RR.device), 0.0
        for _ in range(200):
            product_RR = spread_RR @ W_RR.t()
            side_RR = cross_RR * product_RR
            spread_RR = both_RR * spread_RR + side_RR + side_RR.t() + mixed_RR * (W_RR @ product_RR)
            factor = float(spread_RR.norm())
            spread_RR = spread_RR / factor
        return factor

    def carry(self, states_BR: Float[Tensor, "B R"]) -> CellState:
        """The state itself."""
        return (states_BR,)

    def average_step(
        self, states_BR: Float[Tensor, "B R"], words_VM: Float[Tensor, "V M"]
    ) -> Float[Tensor, "B R"]:
        """Eq. 14. The mean of D(a) + D(b ⊙ s) W D(k) needs the mean of the products (b ⊙ s)_i k_j."""
        hold_VR, mix_VR, add_VR, *keep = self.factors(words_VM)
        gains_RR = mix_VR.t() @ keep[0] / len(mix_VR) if keep else mix_VR.mean(0).unsqueeze(-1)
        W_RR = self.recurrent_weight() * gains_RR
        return hold_VR.mean(0) * states_BR + F.linear(states_BR, W_RR, add_VR.mean(0))

    def neutral_step(self, states_BR: Float[Tensor, "B R"]) -> Float[Tensor, "B R"]:
        """A word with a = 1 leaves the state as it is."""
        return states_BR


class _Gates(torch.autograd.Function):
    """The factors from U α + c, in one pass of the kernel each way."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, raw_NR: Tensor, split: bool, kernel: Kernel
    ) -> tuple[Tensor, ...]:
        raw_NR = raw_NR.contiguous()
        ctx.save_for_backward(raw_NR)
        ctx.kernel, ctx.split = kernel, split
        R = raw_NR.shape[-1] // 3
        ctx.sizes = (1, raw_NR.numel() // (3 * R), R)
        made = tuple(raw_NR.new_empty(*raw_NR.shape[:-1], R) for _ in range(4 if split else 3))
        kernel.run("gates_forward", ctx.sizes, raw_NR, *made, *(() if split else (None,)))
        return made

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        (raw_NR,) = ctx.saved_tensors
        raw_gradient_NR = torch.empty_like(raw_NR)
        given = (*(gradient.contiguous() for gradient in gradients), *(() if ctx.split else (None,)))
        ctx.kernel.run("gates_backward", ctx.sizes, raw_NR, *given, raw_gradient_NR)
        return raw_gradient_NR, None, None
