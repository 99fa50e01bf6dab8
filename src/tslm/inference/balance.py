"""What the state of a chain reaches on a text, what the output sees of it, and which directions hold most of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tslm.models.recurrent.cells import ChainCell
from tslm.models.recurrent.cells.gated import GatedCell
from tslm.models.recurrent.model import RecurrentModel

WINDOW = 40
"""Words through which gradients are followed."""
RIDGE = 1e-8
"""Of the regressions, as a share of each unit's own mean square: units that say the same are told apart by nobody."""


@dataclass(frozen=True)
class Reading:
    """What a model did on a text, one row per word but the first of each column."""

    before_NR: Tensor
    """What W was multiplied with: the state before the word, through the gate k where there is one."""
    states_NR: Tensor
    outputs_NR: Tensor
    """The states as the head sees them."""
    opened_NR: Tensor
    """The output gate, ones where there is none."""


@torch.no_grad()
def read_states(model: RecurrentModel, ids_TB: Int[Tensor, "T B"]) -> Reading:
    """Return what a model's states were while it read columns of a text."""
    cell = cast(ChainCell, model.cell(0))
    words_TBM = model.embed(ids_TB)
    states_TBR, _ = cell(words_TBM, cell.start(ids_TB.shape[1]))
    before_TBR = states_TBR[:-1]
    if isinstance(cell, GatedCell) and cell.split:
        before_TBR = before_TBR * cell.factors(words_TBM[1:])[3]
    outputs_TBR, opened_TBR = model.read_out(states_TBR, words_TBM), model.open_gate(words_TBM)
    found = (before_TBR, states_TBR[1:], outputs_TBR[1:], opened_TBR[1:])
    return Reading(*[part.flatten(0, 1).double() for part in found])


@torch.enable_grad()
def observe(model: RecurrentModel, ids_TB: Int[Tensor, "T B"], *, seed: int = 0) -> Float[Tensor, "R R"]:
    """Return the mean of g gᵀ, g the gradient by a state of the log-likelihood of what the model itself would predict.

    Predictions are drawn from the model, not read from the text: then products of gradients of different words vanish
    in the mean, and what is left is the Fisher information of all later predictions.
    """
    cell = cast(ChainCell, model.cell(0))
    generator = torch.Generator("cpu").manual_seed(seed)
    W_RR = cell.recurrent_weight().detach()
    total_RR = W_RR.new_zeros(cell.rank, cell.rank, dtype=torch.float64)
    carried, count = cell.start(ids_TB.shape[1]), 0
    for start in range(0, len(ids_TB) - WINDOW + 1, WINDOW):
        words_TBM = model.embed(ids_TB[start : start + WINDOW]).detach()
        factors = cell.factors(words_TBM)
        probes = [torch.zeros_like(words_TBM[0, :, :1]).expand(-1, cell.rank).clone() for _ in words_TBM]
        outputs: list[Tensor] = []
        for t, probe_BR in enumerate(probes):
            step = tuple(part[t : t + 1].detach() for part in factors)
            state_BR = cell.scan(step, carried, W_RR)[0][0] + probe_BR.requires_grad_()
            carried = cell.carry(state_BR)
            outputs.append(model.read_out(state_BR, words_TBM[t]))
        log_NV = model.head.predict(torch.cat(outputs), model.output_VM.detach(), model.bias.detach())
        drawn_N1 = torch.multinomial(log_NV.detach().exp(), 1, generator=generator)
        gradients = torch.autograd.grad(log_NV.gather(1, drawn_N1).sum(), probes)
        stacked_NR = torch.cat(gradients).double()
        total_RR += stacked_NR.mT @ stacked_NR
        count += len(stacked_NR)
        carried = tuple(part.detach() for part in carried)
    return total_RR / max(1, count)


def balance(
    states_NR: Float[Tensor, "N R"], seen_RR: Float[Tensor, "R R"]
) -> tuple[Float[Tensor, " R"], Float[Tensor, "R R"], Float[Tensor, "R R"]]:
    """Return the balanced values of a state and the two bases X, Y with YᵀX = 1 in which it is cut.

    The values are the roots of the eigenvalues of (reached · seen), what control theory calls Hankel singular values.
    Their first r directions, h ≈ X Yᵀ h, lose least of what is seen of what is reached. States are taken about their
    mean.

    >>> states, seen = torch.randn(500, 4).double(), torch.diag(torch.tensor([9.0, 4.0, 1.0, 0.0])).double()
    >>> values, left, right = balance(states, seen)
    >>> torch.allclose(right.mT @ left, torch.eye(4).double()), bool(values[3] < 1e-6)
    (True, True)
    """
    moved_NR = states_NR - states_NR.mean(0)
    reached_RR = moved_NR.mT @ moved_NR / len(moved_NR)
    root_RR = torch.linalg.cholesky(add_ridge(reached_RR))
    squares_R, turn_RR = torch.linalg.eigh(root_RR.mT @ seen_RR @ root_RR)
    turn_RR = turn_RR.flip(1)
    right_RR = torch.linalg.solve_triangular(root_RR.mT, turn_RR, upper=True)
    return squares_R.flip(0).clamp(min=0).sqrt(), root_RR @ turn_RR, right_RR


def add_ridge(moments_RR: Float[Tensor, "R R"]) -> Float[Tensor, "R R"]:
    """Return moments that have an inverse, units that never move included."""
    diagonal_R = moments_RR.diagonal()
    return moments_RR + torch.diag(RIDGE * diagonal_R + 1e-14 * diagonal_R.mean())


def choose_units(
    states_NR: Float[Tensor, "N R"], seen_RR: Float[Tensor, "R R"], rank: int, *, intercept: bool
) -> Int[Tensor, " S"]:
    """Return the units from which most of what is seen of all units can be told, in ascending order.

    Units go one after the other, each time the one whose loss costs least: its regression on those that are left leaves
    an error, which all others that were told by it inherit, and ``seen_RR`` says what that is worth. With P the inverse
    of the moments of the units that are left and B their regression of all units, it is (B seen Bᵀ)ᵢᵢ / Pᵢᵢ.
    """
    moved_NR = states_NR - states_NR.mean(0) if intercept else states_NR
    moments_RR = moved_NR.mT @ moved_NR / len(moved_NR)
    inverse_SS = torch.linalg.inv(add_ridge(moments_RR))
    worth_SS = seen_RR.clone()
    left_S = torch.arange(len(moments_RR))
    while len(left_S) > rank:
        unit = int((worth_SS.diagonal() / inverse_SS.diagonal()).argmin())
        kept = torch.arange(len(left_S)) != unit
        share_S = inverse_SS[kept, unit] / inverse_SS[unit, unit]
        row_S = worth_SS[unit, kept]
        inverse_SS = inverse_SS[kept][:, kept] - torch.outer(share_S, inverse_SS[unit, kept])
        crossed_SS = torch.outer(share_S, row_S)
        worth_SS = (
            worth_SS[kept][:, kept]
            - crossed_SS
            - crossed_SS.mT
            + worth_SS[unit, unit] * torch.outer(share_S, share_S)
        )
        left_S = left_S[kept]
    return left_S
