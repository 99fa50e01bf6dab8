"""Sequences from the recursion of Eq. 19 in two readings: the tensor's entries as probabilities, or as amplitudes.

    >>> windows = torch.tensor([[0, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])
    >>> born = fit_sequences(windows, size=2, rank=2, reading="born", steps=60)
    >>> everything = torch.cartesian_prod(*[torch.arange(2)] * 3)
    >>> float(born.log_probability(everything).exp().sum())
    1.0

With T[w₁…w_N] = λᵀ D(w_N) W ⋯ W D(w₁) **1** and D(w) = diag(U[:, w]), as in ``SharedDecomposition``:

* ``entries``: p = T / ΣT, Eq. 11. All of λ, W, U are positive, for sums of signed terms may be negative.
* ``born``: p = |T|² / Σ|T|², the Born rule of quantum mechanics. λ, W, U may have any sign, or be complex, and terms
  may cancel.

Both sums over Vᴺ windows cost no more than reading one: Σ_w D(w) is a diagonal, and Σ_w D(w) S D̅(w) = S ⊙ U U̅ᵀ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from tslm.errors import NumberError, ShapeError

Reading = Literal["entries", "born"]


@dataclass(frozen=True)
class SequenceTensor:
    """λ, W, U of sequences of any length, and how their entries are read."""

    weights_R: Shaped[Tensor, " R"]
    W_RR: Shaped[Tensor, "R R"]
    U_RV: Shaped[Tensor, "R V"]
    reading: Reading

    @property
    def parameter_count(self) -> int:
        """Numbers stored; a complex one counts twice."""
        count = self.weights_R.numel() + self.W_RR.numel() + self.U_RV.numel()
        return 2 * count if self.W_RR.is_complex() else count

    def entries(self, windows_BN: Int[Tensor, "B N"]) -> tuple[Shaped[Tensor, " B"], Float[Tensor, " B"]]:
        """Eq. 19. Return T at each window as (value, ln of what it is to be multiplied by)."""
        state_BR = self.U_RV.mT[windows_BN[:, 0]]
        logs_B = torch.zeros(len(windows_BN), dtype=torch.float64)
        for k in range(1, windows_BN.shape[1]):
            scale_B = state_BR.detach().abs().amax(1).clamp(min=1e-300)
            logs_B = logs_B + scale_B.log()
            state_BR = (state_BR / scale_B[:, None]) @ self.W_RR.mT * self.U_RV.mT[windows_BN[:, k]]
        return state_BR @ self.weights_R, logs_B

    def log_total(self, length: int) -> Float[Tensor, ""]:
        """Return ln of the sum over all windows of a length."""
        if self.reading == "entries":
            factor_R = self.U_RV.sum(1)
            state = factor_R
        else:
            factor_R = self.U_RV @ self.U_RV.mH
            state = factor_R
        logs = torch.zeros((), dtype=torch.float64)
        for _ in range(1, length):
            scale = state.detach().abs().max()
            logs, state = logs + scale.log(), state / scale
            moved = self.W_RR @ state if self.reading == "entries" else self.W_RR @ state @ self.W_RR.mH
            state = moved * factor_R
        total = self.weights_R @ state
        if self.reading == "born":
            total = (total @ self.weights_R.conj()).real
        return logs + total.log()

    def log_probability(self, windows_BN: Int[Tensor, "B N"]) -> Float[Tensor, " B"]:
        """Return ln p of each window among all windows of its length."""
        values_B, logs_B = self.entries(windows_BN)
        if self.reading == "born":
            squares_B = (values_B * values_B.conj()).real
            return squares_B.clamp(min=1e-300).log() + 2 * logs_B - self.log_total(windows_BN.shape[1])
        return values_B.log() + logs_B - self.log_total(windows_BN.shape[1])

    def perplexity(
        self, windows_BN: Int[Tensor, "B N"], weights_B: Float[Tensor, " B"] | None = None
    ) -> float:
        """Return exp of the mean −ln p per word."""
        logs_B = self.log_probability(windows_BN).detach()
        weights_B = torch.ones(len(logs_B)) if weights_B is None else weights_B
        mean = float((weights_B.double() * logs_B).sum() / weights_B.sum())
        return math.exp(-mean / windows_BN.shape[1])


def fit_sequences(
    windows_BN: Int[Tensor, "B N"],
    *,
    size: int,
    rank: int,
    reading: Reading,
    weights_B: Float[Tensor, " B"] | None = None,
    is_complex: bool = False,
    steps: int = 200,
    restarts: int = 1,
    seed: int = 0,
) -> SequenceTensor:
    """Eqs. 11, 19. Return the likeliest λ, W, U for windows, by L-BFGS from random starts.

    The likelihood has many hills; the result is the best of the starts, and depends on nothing but the arguments.

    Args:
        windows_BN: ids of words; equal windows may stand in it once, with their counts as weights.
        size: the number of words.
        rank: R.
        reading: how entries become probabilities.
        weights_B: of each window.
        is_complex: for ``born``, whether amplitudes are complex.
        steps: L-BFGS iterations per start.
        restarts: number of starts.
        seed: of the starts.

    Raises:
        ShapeError: there is no window.
        NumberError: a rank below 1, an id that is no word, or complex numbers for ``entries``.
    """
    if not windows_BN.numel():
        raise ShapeError("there is no window to learn from")
    if rank < 1 or int(windows_BN.min()) < 0 or int(windows_BN.max()) >= size:
        raise NumberError(
            f"rank {rank} and ids from {int(windows_BN.min())} to {int(windows_BN.max())}; expected a rank from 1 on "
            f"and ids from 0 to {size - 1}"
        )
    if is_complex and reading == "entries":
        raise NumberError("entries are probabilities and cannot be complex; take the Born rule")
    weights_B = torch.ones(len(windows_BN)) if weights_B is None else weights_B
    shares_B = weights_B.double() / weights_B.sum()
    generator = torch.Generator("cpu").manual_seed(seed)
    dtype = torch.complex128 if is_complex else torch.float64
    fits: list[tuple[float, SequenceTensor]] = []
    for _ in range(max(1, restarts)):
        shapes = [(rank,), (rank, rank), (rank, size)]
        raw = [0.5 * torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
        if reading == "born":
            raw[1] += torch.eye(rank, dtype=dtype)
        fits.append(_descend(raw, windows_BN, shares_B, reading, steps))
    return min(fits, key=lambda fit: fit[0])[1]


def _descend(
    raw: list[Tensor], windows_BN: Tensor, shares_B: Tensor, reading: Reading, steps: int
) -> tuple[float, SequenceTensor]:
    """Return the least loss that L-BFGS meets on its way from a start, and where."""
    factors = [part.requires_grad_() for part in raw]
    best = math.inf, [part.detach().clone() for part in factors]

    def build(parts: list[Tensor]) -> SequenceTensor:
        if reading == "entries":  # positive numbers of free ones
            parts = [torch.nn.functional.softplus(part) for part in parts]
        return SequenceTensor(*parts, reading=reading)

    optimiser = torch.optim.LBFGS(
        factors,
        max_iter=steps,
        history_size=20,
        tolerance_grad=1e-9,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        nonlocal best
        optimiser.zero_grad()
        loss = -(shares_B * build(factors).log_probability(windows_BN)).sum()
        loss.backward()
        # A line search may step out of the range of numbers; the best place so far is kept.
        if float(loss.detach()) < best[0]:
            best = float(loss.detach()), [part.detach().clone() for part in factors]
        return loss

    optimiser.step(closure)
    return best[0], build(best[1])
