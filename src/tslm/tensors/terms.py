"""One level of Eq. 16: a core of a tensor train as a short sum of products x ⊗ u ⊗ z."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Shaped
from torch import Tensor

from tslm.tensors.approximation import widen

SWEEPS = 60
"""Alternating least-squares sweeps at most."""


@dataclass(frozen=True)
class Terms:
    """The sum over r of x_r ⊗ u_r ⊗ z_r; rows of each matrix are the terms' vectors."""

    x: Tensor
    u: Tensor
    z: Tensor

    def to_tensor(self) -> Shaped[Tensor, "P M Q"]:
        """Return the core that the terms add up to."""
        left = torch.einsum("rp,rm->pmr", self.x, self.u)
        return left @ self.z

    def error(self, core: Shaped[Tensor, "P M Q"]) -> float:
        """Return the distance to a core."""
        return float(widen(core - self.to_tensor()).norm())


def find_terms(
    core: Shaped[Tensor, "P M Q"], *, limit: int | None, budget: float, noise: float
) -> tuple[Terms, float]:
    """Return few terms that add up to the core, and the error made.

    First the exact ways: simultaneous diagonalisation, which finds a core that has no more terms than its bonds,
    and singular vectors of the slices along each of the three modes. The slices' terms are orthogonal to one another,
    so what cutting them costs is known; alternating least squares then improves the cut and never worsens it.

    Args:
        core: a core of a tensor train.
        limit: the most terms allowed.
        budget: the error allowed.
        noise: the relative size of rounding in the core; an error no larger counts as none.
    """
    noise = noise * float(core.norm())
    best: tuple[Terms, float] | None = None
    found = _diagonalise(core)
    if found is not None and (limit is None or len(found.x) <= limit):
        best = found, found.error(core)
        if best[1] <= max(budget, noise):
            return best
    cuts = [_cut_slices(core, mode, limit, budget) for mode in range(3)]
    exact = [cut for cut in cuts if cut[1] <= max(budget, noise)]
    if exact:
        return min(exact, key=lambda cut: len(cut[0].x))
    best = min([*cuts, *([best] if best else [])], key=lambda cut: cut[1])
    return _improve(core, *best, budget)


def _cut_slices(core: Tensor, mode: int, limit: int | None, budget: float) -> tuple[Terms, float]:
    """Return the largest singular terms of the slices along a mode, and the norm of the others."""
    slices = core.movedim(mode, 0)
    left, singular, right = torch.linalg.svd(slices, full_matrices=False)
    flat = singular.reshape(-1)
    values, order = flat.sort(descending=True)
    tails = values.double().square().flip(0).cumsum(0).flip(0).sqrt()
    noise = torch.finfo(core.dtype).eps * max(core.shape) * float(values[0])
    kept = max(1, int((values.double() > noise).sum()))
    if budget > 0:
        kept = max(1, min(kept, int((tails > budget).sum())))
    if limit is not None:
        kept = min(kept, limit)
    which, term = order[:kept] // singular.shape[1], order[:kept] % singular.shape[1]
    unit = torch.eye(core.shape[mode], dtype=core.dtype, device=core.device)[which]
    first = left[which, :, term]
    second = right[which, term] * values[:kept, None]
    factors = [first, second]
    factors.insert(mode, unit)
    terms = Terms(*factors)
    return terms, terms.error(core)


def _diagonalise(core: Tensor) -> Terms | None:
    """Return the terms of a core that has as many as its smaller bond, or None when it plainly has not.

    For G = Σ x ⊗ u ⊗ z two mixtures of slices along the middle mode are Xᵀ·D₁·Z and Xᵀ·D₂·Z: the z diagonalise
    one against the other. The result is only a candidate, judged by its error.
    """
    if min(core.shape[0], core.shape[2]) < 2:
        return None
    generator = torch.Generator("cpu").manual_seed(0)
    mix = torch.randn(2, core.shape[1], generator=generator, dtype=torch.float64, device="cpu").to(core)
    first, second = torch.einsum("sm,pmq->spq", mix, core)
    rows, singular, columns = torch.linalg.svd(second, full_matrices=False)
    kept = int((singular > 1e-10 * singular[0]).sum())
    if kept == 0:
        return None
    projected = rows[:, :kept].mH @ first @ columns[:kept].mH / singular[:kept]
    values, vectors = torch.linalg.eig(projected)
    if not core.is_complex():
        if float(values.imag.abs().max()) > 1e-8 * float(values.abs().max()):
            return None
        vectors = vectors.real
    x = (rows[:, :kept] @ vectors).mT
    # With x known, the rest is linear: each slice along x's dual is a matrix that must have rank one.
    dual = torch.linalg.pinv(x.mT)
    slices = torch.einsum("rp,pmq->rmq", dual, core)
    left, scale, right = torch.linalg.svd(slices, full_matrices=False)
    return Terms(x, left[:, :, 0] * scale[:, :1], right[:, 0])


def _improve(core: Tensor, terms: Terms, error: float, budget: float) -> tuple[Terms, float]:
    """Return better terms of the same number by alternating least squares, keeping the best seen."""
    factors = [terms.x, terms.u, terms.z]
    unfolded = [core.movedim(mode, 0).reshape(core.shape[mode], -1) for mode in range(3)]
    best, least = terms, error
    previous = math.inf
    for _ in range(SWEEPS):
        for mode in range(3):
            others = [factors[other] for other in range(3) if other != mode]
            gram = (others[0] @ others[0].mH) * (others[1] @ others[1].mH)
            gram = gram + torch.eye(len(gram), dtype=gram.dtype, device=gram.device) * (
                1e-12 * gram.diagonal().mean()
            )
            product = (others[0][:, :, None] * others[1][:, None, :]).reshape(len(gram), -1)
            factors[mode] = torch.linalg.lstsq(gram.mT, product.conj() @ unfolded[mode].mT).solution
            if mode < 2:  # keep the lengths in the last factor
                lengths = factors[mode].norm(dim=1, keepdim=True).clamp_min(1e-300)
                factors[mode] = factors[mode] / lengths
        candidate = Terms(*factors)
        now = candidate.error(core)
        if now < least:
            best, least = candidate, now
        if not math.isfinite(now) or least <= budget or abs(previous - now) <= 1e-5 * now:
            break
        previous = now
    return best, least
