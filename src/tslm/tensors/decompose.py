"""The paper's recursive decomposition of a tensor: λ, and per level W and U.

    T          = Σᵢ λᵢ · S₍ₙ₎,ᵢ ⊗ uᵢ
    S₍ₖ₊₁₎,ⱼ   = Σᵢ Wⱼᵢ · S₍ₖ₎,ᵢ ⊗ uᵢ          with S₍₁₎ = 1

Each level is a sum of products x ⊗ u ⊗ z rather than a matrix SVD: the same uᵢ serves every j. So a general T needs
its own W and U per level and, inside, more terms than a tensor train has bonds — at most mode × bond. The error of a
cut decomposition is at most the discarded part of the tensor train plus that of each level, where a level is
measured in the norm in which it enters T (its left side orthonormal, its right side weighted).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from tslm.errors import ShapeError
from tslm.tensors.algebra import show
from tslm.tensors.approximation import (
    Approximation,
    check_rank,
    measure_error,
    prepare_tensor,
    round_off,
    widen,
)
from tslm.tensors.canonical import left_canonical
from tslm.tensors.network import Node, TensorNetwork, delta_node, tensor_node
from tslm.tensors.terms import find_terms
from tslm.tensors.train import TensorTrain, bond_limit, maximum_train_rank
from tslm.tensors.train_svd import split_train


@dataclass(frozen=True)
class RecursiveDecomposition:
    """Eq. 16. λ, W and U of a tensor of order n, with its own W and U at each level.

    ``U[k]`` has one row uᵢ of length 1 per term of level k+1; ``W[k]`` leads from level k+1 to level k+2.
    """

    weights: Tensor
    """λ, one weight per term of the last level."""
    W: tuple[Tensor, ...]
    """n−1 matrices (terms of the next level × terms of this level)."""
    U: tuple[Tensor, ...]
    """n matrices (terms × size of the mode)."""

    def __post_init__(self) -> None:
        if len(self.U) != len(self.W) + 1:
            raise ShapeError(f"{len(self.U)} matrices U need {len(self.U) - 1} matrices W, not {len(self.W)}")
        for k, (below, link, above) in enumerate(zip(self.U[:-1], self.W, self.U[1:], strict=True), 1):
            if link.shape != (len(above), len(below)):
                raise ShapeError(
                    f"W at level {k} is {show(link)}; U at level {k} is {show(below)} "
                    f"and at level {k + 1} {show(above)}, so it must be ({len(above)}×{len(below)})"
                )
        if self.weights.shape != (len(self.U[-1]),):
            raise ShapeError(
                f"λ is {show(self.weights)}, but the last U is {show(self.U[-1])}: one weight per row"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the full tensor."""
        return tuple(factor.shape[1] for factor in self.U)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Number of terms at each level."""
        return tuple(len(factor) for factor in self.U)

    @property
    def parameter_count(self) -> int:
        """Numbers stored: λ, all W, all U (the paper's O(m·r) leaves out W)."""
        return self.weights.numel() + sum(matrix.numel() for matrix in (*self.W, *self.U))

    def to_tensor(self, first: slice = slice(None)) -> Shaped[Tensor, "..."]:
        """Eq. 16. Return the full tensor, or only the part with the first mode in ``first``."""
        factors = [self.U[0][:, first], *self.U[1:]]
        state = torch.ones_like(factors[0][:1, 0]).expand(1, len(factors[0]))  # S₍₁₎ = 1
        for link, factor in zip(self.W, factors[:-1], strict=True):
            grown = state[:, None, :] * factor.mT
            state = grown.reshape(-1, len(factor)) @ link.mT
        full = (state * self.weights) @ factors[-1]
        return full.reshape([factor.shape[1] for factor in factors])

    def to(self, dtype: torch.dtype) -> RecursiveDecomposition:
        """Return the same decomposition in another dtype, laid out as it would be read from a file."""
        return RecursiveDecomposition(
            self.weights.to(dtype).contiguous(),
            tuple(link.to(dtype).contiguous() for link in self.W),
            tuple(factor.to(dtype).contiguous() for factor in self.U),
        )

    def to_network(self) -> TensorNetwork:
        """Figure 2. Return the decomposition as a network of U, W, λ and δ with open legs d1 … dn."""
        nodes: list[Node] = []
        last = len(self.U)
        for k, factor in enumerate(self.U, 1):
            rank = len(factor)
            above = f"h{k}"
            nodes.append(tensor_node(f"U{k}", factor, [f"u{k}", f"d{k}"]))
            nodes.append(delta_node(f"δ{k}", rank, [*([f"g{k}"] if k > 1 else []), f"u{k}", above]))
            if k < last:
                nodes.append(tensor_node(f"W{k}", self.W[k - 1], [f"g{k + 1}", above]))
        nodes.append(tensor_node("λ", self.weights, [f"h{last}"]))
        return TensorNetwork(nodes, [f"d{k}" for k in range(1, last + 1)])


def maximum_rank(shape: Sequence[int]) -> int:
    """Return a rank at which Eq. 16 is exact for every tensor of that shape."""
    bonds = [1, *[bond_limit(shape, k) for k in range(1, len(shape))], 1]
    inner = [
        min(bonds[k] * shape[k], shape[k] * bonds[k + 1], bonds[k] * bonds[k + 1])
        for k in range(1, len(shape) - 1)
    ]
    return max([maximum_train_rank(shape), *inner])


def decompose(
    tensor: Shaped[Tensor | np.ndarray, "..."], *, rank: int | None = None, tolerance: float | None = None
) -> Approximation[RecursiveDecomposition]:
    """Eq. 16. Return the recursive decomposition of a tensor.

    Args:
        tensor: any tensor, real or complex, or a NumPy array.
        rank: the most terms at any level.
        tolerance: the relative error allowed. With neither, the decomposition is exact to rounding.

    Returns:
        The decomposition with its true error and a proven bound of it.

    Example:
        >>> tensor = torch.rand(3, 4, 5)
        >>> torch.allclose(decompose(tensor).to_tensor(), tensor, atol=1e-5)
        True

    Raises:
        NumberError: a rank below 1 or above ``maximum_rank``, a tolerance out of range, a NaN or infinite entry.
    """
    scaled, scale = prepare_tensor(tensor)
    shape = tuple(scaled.shape)
    check_rank(rank, tolerance, maximum_rank(shape), shape)
    inner = max(0, len(shape) - 2)
    bond = None if rank is None else min(rank, maximum_train_rank(shape))
    share = tolerance if tolerance is None or not inner else tolerance / 2
    train, discarded, norm = split_train(scaled, rank=bond, tolerance=share)
    budget = (tolerance or 0.0) / 2 * norm / max(1, inner)
    noise = max(1e-12, 20 * torch.finfo(scaled.dtype).eps)
    form, cut = _convert_train(train, rank, budget, noise)
    form = form.to(scaled.dtype)
    error, bound = measure_error(scaled, form), discarded + cut + round_off(scaled, norm)
    if scale != 1:
        form = RecursiveDecomposition(form.weights * scale, form.W, form.U)
    return Approximation(form, error * scale, bound * scale, norm * scale)


def _convert_train(
    train: TensorTrain, rank: int | None, budget: float, noise: float
) -> tuple[RecursiveDecomposition, float]:
    """Return a train in the form of Eq. 16, in double precision, and the sum of the errors made at its levels.

    Levels are taken from the last to the first. ``weighting`` stands for all that is right of the present bond: that
    part of T is weighting·Q with orthonormal rows of Q, so errors of a weighted core are errors of T.
    """
    cores = left_canonical(TensorTrain(tuple(widen(core) for core in train.cores))).cores
    left, weights, right = torch.linalg.svd(cores[-1][:, :, 0], full_matrices=False)
    if len(cores) == 1:
        return RecursiveDecomposition(weights, (), (left @ right,)), 0.0
    U, W = [right], list[Tensor]()
    # outgoing[j, b]: how term j of the level above reads bond b.
    outgoing, weighting, cut = left.mT, left * weights, 0.0
    for core in reversed(cores[1:-1]):
        weighted, unweight = _weigh(core, weighting)
        terms, error = find_terms(weighted, limit=rank, budget=budget, noise=noise)
        cut += error
        lengths = terms.u.norm(dim=1, keepdim=True)
        lengths = torch.where(lengths > 0, lengths, torch.ones_like(lengths))
        W.append(outgoing @ ((terms.z * lengths) @ unweight).mT)
        U.append(terms.u / lengths)
        outgoing = terms.x
        approximate = terms.to_tensor()
        weighting = torch.linalg.qr(approximate.reshape(len(approximate), -1).mT, mode="r")[1].mT
    W.append(outgoing)
    U.append(cores[0][0].mT)  # orthonormal, so of length 1
    return RecursiveDecomposition(weights, tuple(reversed(W)), tuple(reversed(U))), cut


def _weigh(core: Tensor, weighting: Tensor) -> tuple[Tensor, Tensor]:
    """Return the core with its last bond in orthonormal coordinates of T, and the matrix that leads back."""
    rows, scale, _ = torch.linalg.svd(weighting, full_matrices=False)
    # Directions that T hardly has are left out: what they add lies below the rounding of T itself.
    kept = max(1, int((scale > torch.finfo(core.dtype).eps * scale[0]).sum()))
    rows, scale = rows[:, :kept], scale[:kept]
    safe = torch.where(scale > 0, scale, torch.ones_like(scale))
    return core @ (rows * scale), (rows / safe).mH
