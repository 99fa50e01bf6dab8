"""Canonical forms of tensor trains, and what they are for: rounding, Schmidt values, the entropy of every cut.

    >>> from tslm.tensors import draw_train, join
    >>> train = draw_train((2, 3, 4, 3), 5)
    >>> mixed = canonicalise(train, 2)  # cores 0, 1 orthonormal from the left, core 3 from the right
    >>> torch.allclose(mixed.to_tensor(), train.to_tensor())
    True
    >>> round_train(train + train).form.ranks == train.ranks  # the same tensor twice needs no larger bonds
    True
    >>> [len(values) for values in schmidt_values(train, unit=True)]
    [2, 5, 3]
    >>> cut_entropies(join(draw_train((2, 3), 2), draw_train((3, 2), 2)))[1]  # two parts apart
    0.0

A core is orthonormal from the left when Σ G̅[d]ᵀ G[d] over its mode is the identity, from the right when Σ G[d] G̅[d]ᵀ
is. With all cores before the centre of the first kind and all behind it of the second, the centre holds the tensor in
orthonormal coordinates: its norm is the tensor's, and its singular values are those of the cut beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from tslm.errors import NumberError, ShapeError
from tslm.tensors.approximation import Approximation
from tslm.tensors.train import TensorTrain, norm


def canonicalise(train: TensorTrain, centre: int, *, unit: bool = False) -> TensorTrain:
    """Return the same tensor in mixed canonical form about a core; bonds larger than they can need become smaller.

    >>> from tslm.tensors import draw_train
    >>> is_canonical(canonicalise(draw_train((2, 3, 2), 2), 1), 1)
    True

    Args:
        train: any train.
        centre: the number of the core, from 0 on.
        unit: divide by the norm, which for a long train may be beyond the range of numbers; zero stays zero.

    Raises:
        ShapeError: there is no such core.
    """
    if not -len(train) <= centre < len(train):
        raise ShapeError(
            f"a train of {len(train)} cores has no core {centre}; expected 0 to {len(train) - 1}"
        )
    centre %= len(train)
    cores = [core.to(train.dtype) for core in train.cores]
    for k in range(centre):
        before, mode, after = cores[k].shape
        basis, rest = torch.linalg.qr(cores[k].reshape(before * mode, after))
        cores[k] = basis.reshape(before, mode, -1)
        cores[k + 1] = torch.einsum("ab,bmc->amc", _shrink(rest) if unit else rest, cores[k + 1])
    for k in range(len(cores) - 1, centre, -1):
        before, mode, after = cores[k].shape
        basis, rest = torch.linalg.qr(cores[k].reshape(before, mode * after).mH)
        cores[k] = basis.mH.reshape(-1, mode, after)
        cores[k - 1] = cores[k - 1] @ (_shrink(rest) if unit else rest).mH
    if unit:
        cores[centre] = _shrink(cores[centre])
        cores[centre] = cores[centre] / cores[centre].norm().clamp(min=torch.finfo(train.dtype).tiny)
    return TensorTrain(tuple(cores))


def left_canonical(train: TensorTrain) -> TensorTrain:
    """Return the train with all cores but the last orthonormal from the left.

    >>> from tslm.tensors import draw_train
    >>> is_canonical(left_canonical(draw_train((2, 3, 2), 2)), 2)
    True
    """
    return canonicalise(train, len(train) - 1)


def right_canonical(train: TensorTrain) -> TensorTrain:
    """Return the train with all cores but the first orthonormal from the right.

    >>> from tslm.tensors import draw_train
    >>> is_canonical(right_canonical(draw_train((2, 3, 2), 2)), 0)
    True
    """
    return canonicalise(train, 0)


def is_canonical(train: TensorTrain, centre: int, *, tolerance: float = 1e-5) -> bool:
    """Return whether a train is in mixed canonical form about a core.

    >>> from tslm.tensors import draw_train
    >>> is_canonical(draw_train((2, 3, 2), 2), 1)
    False
    """
    for k, core in enumerate(train.cores):
        if k == centre:
            continue
        flat = core.reshape(-1, core.shape[2]).mH if k < centre else core.reshape(core.shape[0], -1)
        unit = torch.eye(len(flat), dtype=flat.dtype, device=flat.device)
        if not torch.allclose(flat @ flat.mH, unit, rtol=0, atol=tolerance):
            return False
    return True


def round_train(
    train: TensorTrain, *, rank: int | Sequence[int] | None = None, tolerance: float | None = None
) -> Approximation[TensorTrain]:
    """Return a train with smaller bonds, as near to the given one as ``decompose_train`` would be to its tensor.

    >>> from tslm.tensors import draw_train
    >>> train = draw_train((4, 4, 4, 4), 9)
    >>> cut = round_train(train, rank=3)
    >>> cut.form.ranks, cut.error <= cut.bound
    ((3, 3, 3), True)
    >>> round_train(train, tolerance=0.1).relative_error <= 0.1
    True

    The cuts are made one after the other in canonical form, each an orthogonal projection of what is left: the squared
    error is the sum of all discarded squared singular values. Without a limit only what lies below rounding is cut.

    Args:
        train: any train.
        rank: the largest bond, or one size per bond.
        tolerance: the relative error allowed.

    Raises:
        NumberError: a rank below 1, a tolerance out of range, or both given.
    """
    limits = _check_limits(rank, tolerance, len(train) - 1)
    dtype = train.dtype
    cores = list(right_canonical(train).cores)
    size = float(cores[0].norm())
    budget = (tolerance or 0.0) * size / math.sqrt(max(1, len(cores) - 1))
    noise = torch.finfo(dtype).eps * size
    squares = 0.0
    for k in range(len(cores) - 1):
        before, mode, after = cores[k].shape
        left, singular, right = torch.linalg.svd(cores[k].reshape(before * mode, after), full_matrices=False)
        tails = singular.double().square().flip(0).cumsum(0).flip(0).sqrt()
        kept = int((tails > max(budget, noise)).sum())
        limit = limits[k]
        kept = max(1, kept if limit is None else min(kept, limit))
        squares += float(tails[kept]) ** 2 if kept < len(tails) else 0.0
        cores[k] = left[:, :kept].reshape(before, mode, kept)
        rest = singular[:kept, None] * right[:kept]
        cores[k + 1] = torch.einsum("ab,bmc->amc", rest.to(dtype), cores[k + 1])
    form = TensorTrain(tuple(cores))
    bound = math.sqrt(squares) + 8 * len(cores) * noise * math.sqrt(max(train.shape))
    return Approximation(form, norm(form - train.to(dtype)), bound, size)


def schmidt_values(train: TensorTrain, *, unit: bool = False) -> list[Float[Tensor, " K"]]:
    """Return the singular values across the cut behind each core but the last, largest first.

    >>> from tslm.tensors import draw_train
    >>> values = schmidt_values(draw_train((2, 3, 2), 2))
    >>> torch.allclose(values[0].square().sum(), values[1].square().sum())  # both are ‖T‖²
    True

    They are those of T, or with ``unit`` of T/‖T‖, as a matrix (modes before the cut) × (modes behind it).
    """
    cores = list(canonicalise(train, 0, unit=unit).cores)
    found: list[Tensor] = []
    for k in range(len(cores) - 1):
        before, mode, after = cores[k].shape
        _, singular, right = torch.linalg.svd(cores[k].reshape(before * mode, after), full_matrices=False)
        found.append(singular)
        rest = (singular[:, None] * right).to(cores[k + 1].dtype)
        cores[k + 1] = torch.einsum("ab,bmc->amc", rest, cores[k + 1])
    return found


def cut_entropies(train: TensorTrain, *, base: float | int = math.e) -> list[float]:
    """Return the entanglement entropy of every cut: that of the squared Schmidt values as shares of their sum.

    >>> bell = TensorTrain((torch.eye(2)[None], torch.eye(2)[..., None]))
    >>> cut_entropies(bell, base=2)
    [1.0]

    Args:
        train: any train but zero.
        base: of the logarithm: e for nats, 2 for bits.
    """
    return [entropy(values.square(), base=base) for values in schmidt_values(train, unit=True)]


def entropy(weights: Shaped[Tensor, " K"], *, base: float | int = math.e) -> float:
    """Return −Σ p ln p of non-negative weights divided by their sum.

    >>> entropy(torch.tensor([1.0, 1.0, 0.0]), base=2)
    1.0

    Raises:
        NumberError: their sum is 0, or one is negative beyond rounding.
    """
    weights = weights.detach().double()
    total = float(weights.sum())
    if not total > 0 or float(weights.min()) < -1e-6 * total:
        raise NumberError(f"weights from {float(weights.min()):.3g} that sum to {total:.3g} have no entropy")
    shares = weights.clamp(min=0) / total
    return max(0.0, float(-torch.special.xlogy(shares, shares).sum())) / math.log(base)


def _shrink(tensor: Tensor) -> Tensor:
    """Return a tensor divided by its largest entry."""
    return tensor / tensor.abs().max().clamp(min=torch.finfo(tensor.dtype).tiny)


def _check_limits(rank: int | Sequence[int] | None, tolerance: float | None, bonds: int) -> list[int | None]:
    """Return the limit of each bond."""
    if rank is not None and tolerance is not None:
        raise NumberError(f"both rank {rank} and tolerance {tolerance} were given; give one of them")
    if tolerance is not None and not 0 <= tolerance < 1:
        raise NumberError(f"tolerance {tolerance}; expected a relative error from 0 up to, not including, 1")
    if rank is None or isinstance(rank, int):
        limits: list[int | None] = [rank] * bonds
    elif len(rank) == bonds:
        limits = list(rank)
    else:
        raise ShapeError(
            f"{len(rank)} ranks {list(rank)} for a train of {bonds} bonds; expected one per bond"
        )
    for limit in limits:
        if limit is not None and limit < 1:
            raise NumberError(f"rank {limit}; expected at least 1")
    return limits
