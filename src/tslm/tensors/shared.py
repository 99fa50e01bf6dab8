"""Eq. 16 with one W and one U for all levels: what a recurrent network can hold.

Any tensor T of order n has such a form: write its levels as blocks of one long state and let W shift each block
into the next (``share``). Its rank is the sum of the levels' ranks. At a smaller rank R it is exact only when T is
made by one machine run n times, T[d₁…dₙ] = λᵀ D(dₙ) W D(dₙ₋₁) ⋯ W D(d₁) **1** with diagonal D(d) — and it has only
R² + R·(M+1) numbers to meet Mⁿ entries, so below that many a general T is out of reach. ``fit_shared``
reports what remains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from tslm.errors import NumberError, ShapeError
from tslm.tensors.algebra import show, show_shape
from tslm.tensors.approximation import Approximation, measure_error, measure_norm, prepare_tensor, widen
from tslm.tensors.decompose import RecursiveDecomposition


@dataclass(frozen=True)
class SharedDecomposition:
    """Eq. 16. λ with one W and one U that serve every level of a tensor of order n."""

    weights: Tensor
    """λ (R)."""
    W: Tensor
    """W (R × R)."""
    U: Tensor
    """U (R × M)."""
    order: int
    """n."""

    def __post_init__(self) -> None:
        rank = len(self.U)
        if tuple(self.W.shape) != (rank, rank) or tuple(self.weights.shape) != (rank,):
            raise ShapeError(
                f"U is {show(self.U)}, so W must be ({rank}×{rank}), not {show(self.W)}, "
                f"and λ ({rank}), not {show(self.weights)}"
            )
        if self.order < 1:
            raise ShapeError(f"order {self.order}; expected at least 1")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the full tensor."""
        return (self.U.shape[1],) * self.order

    @property
    def parameter_count(self) -> int:
        """Numbers stored, whatever the order."""
        return self.weights.numel() + self.W.numel() + self.U.numel()

    def unroll(self) -> RecursiveDecomposition:
        """Return the same tensor with W and U repeated at every level."""
        return RecursiveDecomposition(self.weights, (self.W,) * (self.order - 1), (self.U,) * self.order)

    def to_tensor(self, first: slice = slice(None)) -> Shaped[Tensor, "..."]:
        """Eq. 16. Return the full tensor, or only the part with the first mode in ``first``."""
        return self.unroll().to_tensor(first)


def share(decomposition: RecursiveDecomposition) -> SharedDecomposition:
    """Eq. 16. Return an exact form with one W and one U, its rank the sum of the levels' ranks.

    Block k of the state is level k. W is zero but for the blocks W₍ₖ₎ from k to k+1, λ reads the last block: after
    n words only what began in block 1 has reached it.

    Raises:
        ShapeError: the modes differ in size, so that one U cannot serve them.
    """
    sizes = decomposition.shape
    if len(set(sizes)) > 1:
        raise ShapeError(f"one U for all levels needs modes of one size; the tensor is {show_shape(sizes)}")
    ranks = decomposition.ranks
    total = sum(ranks)
    U = torch.cat(decomposition.U)
    W = U.new_zeros(total, total)
    start = 0
    for rank, link in zip(ranks, decomposition.W, strict=False):
        W[start + rank : start + rank + len(link), start : start + rank] = link
        start += rank
    weights = torch.cat([U.new_zeros(start), decomposition.weights])
    return SharedDecomposition(weights, W, U, len(sizes))


def fit_shared(
    tensor: Shaped[Tensor | np.ndarray, "..."],
    *,
    rank: int,
    steps: int = 300,
    restarts: int = 3,
    seed: int = 0,
) -> Approximation[SharedDecomposition]:
    """Eq. 16. Return λ, W, U of the given rank that come near T, by L-BFGS from several starts.

    The problem is not convex: the error is that of the best start, and there is no bound. The result depends on
    nothing but the arguments.

    Args:
        tensor: a tensor, real or complex, or a NumPy array, whose modes are all of one size.
        rank: R.
        steps: L-BFGS iterations per start.
        restarts: number of starts.
        seed: of the starts.

    Raises:
        ShapeError: the modes differ in size.
        NumberError: the rank is below 1.
    """
    scaled, scale = prepare_tensor(tensor)
    if len(set(scaled.shape)) > 1:
        raise ShapeError(f"one U for all levels needs modes of one size; the tensor is {show(scaled)}")
    if rank < 1:
        raise NumberError(f"rank {rank}; expected at least 1")
    norm = measure_norm(scaled)
    target = widen(scaled) / (norm or 1.0)
    generator = torch.Generator("cpu").manual_seed(seed)
    fits = [_descend(target, rank, steps, generator) for _ in range(max(1, restarts))]
    _, best = min(fits, key=lambda fit: fit[0])
    weights, W, U = (factor.to(scaled.dtype) for factor in (best.weights * (norm or 1.0), best.W, best.U))
    error = measure_error(scaled, SharedDecomposition(weights, W, U, scaled.ndim))
    form = SharedDecomposition(weights * scale, W, U, scaled.ndim)
    return Approximation(form, error * scale, None, norm * scale)


def _descend(
    target: Tensor, rank: int, steps: int, generator: torch.Generator
) -> tuple[float, SharedDecomposition]:
    """Return the squared error and the factors reached from one random start."""
    size = target.shape[0]

    def draw(*shape: int) -> Tensor:
        drawn = torch.randn(*shape, generator=generator, dtype=target.dtype, device="cpu")
        return drawn.to(target.device)

    U = draw(rank, size) / math.sqrt(size)
    W = torch.eye(rank, dtype=target.dtype, device=target.device) + 0.5 * draw(rank, rank) / math.sqrt(rank)
    weights = draw(rank) / math.sqrt(rank)
    factors = [weights.requires_grad_(), W.requires_grad_(), U.requires_grad_()]
    optimiser = torch.optim.LBFGS(
        factors,
        max_iter=steps,
        history_size=20,
        tolerance_grad=1e-12,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = _squares(SharedDecomposition(*factors, order=target.ndim).to_tensor() - target)
        loss.backward()
        return loss

    optimiser.step(closure)
    found = SharedDecomposition(*[factor.detach() for factor in factors], order=target.ndim)
    return float(_squares(found.to_tensor() - target)), found


def _squares(difference: Tensor) -> Tensor:
    """Return ‖·‖²."""
    return (torch.view_as_real(difference) if difference.is_complex() else difference).square().sum()
