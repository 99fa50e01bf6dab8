"""A sentence under a cascade of cells: effects of words on words, and the exact share of each word in each logit."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from tslm.inference.explanation import Contributions, Effects, Explanation, Reference, WordReport
from tslm.models.recurrent.cells import CellState
from tslm.models.recurrent.cells.gated import GatedCell
from tslm.models.recurrent.dropout import evaluating
from tslm.models.recurrent.model import RecurrentModel
from tslm.stopping import check_wanted

SIDE_BY_SIDE = 2048
"""How many words stand in for one at a time, when the mean over all of them is formed."""
MOST_DOUBLINGS = 7
"""Of a logit's degree: beyond it the quadrature's weights and nodes have lost too many digits to call it exact."""


def explain_cascade(
    model: RecurrentModel,
    ids_T: NDArray[np.int32],
    reports: tuple[WordReport, ...],
    *,
    reference: Reference,
    effects: bool,
) -> Explanation:
    """Explain a sentence under a cascade; ``ids_T`` ends with ``<eos>``."""
    # Gradients are taken, which tensors made in inference mode do not allow.
    with evaluating(model), torch.inference_mode(False):
        targets_T = torch.from_numpy(ids_T.astype(np.int64))
        read_T = torch.cat([torch.tensor([model.vocabulary.eos_id]), targets_T[:-1]])
        with torch.no_grad():
            words_TM = model.embed(read_T)
            states_TBR, _ = model.cell(0)(words_TM.unsqueeze(1), model.cell(0).start(1))
            found = _find_effects(model, read_T, words_TM, targets_T, reference) if effects else None
        return Explanation(
            words=reports,
            effects=found,
            contributions=_share_out(model, words_TM, targets_T) if effects else None,
            state_norms=tuple(states_TBR[1:, 0].norm(dim=-1).tolist()),
            cuts=None,
        )


def _find_effects(
    model: RecurrentModel,
    read_T: Int[Tensor, " T"],
    words_TM: Float[Tensor, "T M"],
    targets_T: Int[Tensor, " T"],
    reference: Reference,
) -> Effects:
    """Read the sentence as it is, and again with a stand-in in each word's place: a row for each place."""
    T = len(read_T)
    matrix = np.zeros((T, T))
    # What is read out behind each word, and the states after it.
    outputs_T, after_T = [], [model.begin(1)]
    for word in read_T:
        outputs_1BR, after = model.read(word.view(1, 1), after_T[-1])
        outputs_T.append(outputs_1BR[0])
        after_T.append(after)
    # Place t is after_T[t]: a word there that changes nothing leaves the states as they are.
    stands_T = _stand_in(model, after_T[:-1]) if reference == "mean" else after_T[:-1]
    rows: tuple[CellState, ...] | None = None
    for t in range(1, T):
        check_wanted()
        # The gates of a word that is replaced stay the sentence's own: what is asked is what the states knew of it.
        outputs = [outputs_T[t], _read_out(model, stands_T[t], words_TM[t : t + 1])]
        if rows is not None:
            others_1BR, rows = model.read(read_T[t].expand(1, t - 1), rows)
            outputs.insert(1, others_1BR[0])
        rows = stands_T[t] if rows is None else _join(rows, stands_T[t])
        scores_B = model.head.score(
            torch.cat(outputs), model.output_VM, model.bias, targets_T[t].expand(t + 1)
        ).double()
        # Row s is of place s + 1 of what is read, for <eos> before the sentence is no word of it.
        matrix[:t, t] = (scores_B[0] - scores_B[1:]).numpy()
    exact = model.config.reads_linearly and model.head.linear() is not None
    what = "exact contraction of the logits" if exact else "the states of all cells read on"
    mean = f"the mean of all words (Eq. 14, of {'logits' if exact else 'the states after each'})"
    stand = mean if reference == "mean" else "a word that changes nothing"
    return Effects(method=f"{what} with the word replaced by {stand}", exact=exact, matrix=matrix)


def _stand_in(model: RecurrentModel, before_T: list[tuple[CellState, ...]]) -> list[tuple[CellState, ...]]:
    """Return, for states before a word, those after the mean of all words: the mean of the states after each."""
    V = len(model.vocabulary)
    totals = [[torch.zeros_like(cell[0]) for cell in before] for before in before_T]
    cells = [cast(GatedCell, model.cell(layer)) for layer in range(model.config.layers)]
    weights = [cell.recurrent_weight() for cell in cells]
    for words_N in torch.arange(V).split(SIDE_BY_SIDE):
        words_NM = model.embed(words_N)
        factors = [cell.factors(words_NM) for cell in cells]
        for before, total in zip(before_T, totals, strict=True):
            check_wanted()
            fed_NR = None
            for layer, cell in enumerate(cells):
                brought = factors[layer] if fed_NR is None else cell.feed(factors[layer], fed_NR)
                hold_NR, mix_NR, add_NR, *keep = brought
                state_1R = before[layer][0]
                seen_NR = state_1R * keep[0] if keep else state_1R
                state_NR = hold_NR * state_1R + mix_NR * F.linear(seen_NR, weights[layer]) + add_NR
                total[layer] += state_NR.sum(0) / V
                if layer < len(model.feeds):
                    fed_NR = model.feed(layer).pass_on(model.feed(layer)(state_NR, words_NM))
    return [tuple((part_1R,) for part_1R in total) for total in totals]


def _read_out(
    model: RecurrentModel, state: tuple[CellState, ...], word_1M: Float[Tensor, "1 M"]
) -> Float[Tensor, "1 R"]:
    """Return what is read out of all cells behind a word."""
    *below, last = (cell[0] for cell in state)
    fed = [model.feed(layer)(part_1R, word_1M) for layer, part_1R in enumerate(below)]
    return torch.stack([*fed, model.read_out(last, word_1M)]).sum(0)


def _join(rows: tuple[CellState, ...], more: tuple[CellState, ...]) -> tuple[CellState, ...]:
    """Return states of two batches as those of one."""
    return tuple(
        tuple(torch.cat(pair) for pair in zip(row, other, strict=True))
        for row, other in zip(rows, more, strict=True)
    )


def _share_out(
    model: RecurrentModel, words_TM: Float[Tensor, "T M"], targets_T: Int[Tensor, " T"]
) -> Contributions | None:
    """Return each word's share of each logit, all gates being as they are in the sentence.

    Let word s bring only a part z_s of what it adds to the states. Each logit y is a polynomial of the parts, without
    them the output's bias, and ∫ ∂y/∂z_s (τ, …, τ) dτ from 0 to 1 is the word's share: what a little more of it adds,
    in the mean while all words come in together. The shares add up to the logit. For one cell they are the terms of a
    sum, and through products the Shapley values. The integrand is a polynomial of a known degree, so a few nodes of
    Gauss's quadrature give the integral exactly.
    """
    linear_MR = model.head.linear()
    # Products double the degree at each cell; the slope's is one less, and n nodes are exact up to 2 n − 1.
    doublings = model.config.layers if model.product is not None else 1
    if linear_MR is None or model.config.output_gate == "tanh" or doublings > MOST_DOUBLINGS:
        return None
    T = len(words_TM)
    nodes, weights = np.polynomial.legendre.leggauss(2 ** (doublings - 1))
    with torch.no_grad():
        weight_TM = model.output_VM[targets_T] - model.output_VM.mean(0)
        weight_TR = weight_TM @ linear_MR.to(weight_TM)

    def read(parts_T: Tensor) -> Tensor:
        return (_read_parts(model, words_TM, parts_T) * weight_TR).sum(-1)

    matrix = np.zeros((T, T))
    with torch.enable_grad():
        for node, weight in zip(nodes, weights, strict=True):
            check_wanted()
            parts_T = words_TM.new_full((T,), (node + 1) / 2)
            slope_TT = cast(Tensor, torch.autograd.functional.jacobian(read, parts_T))
            matrix += slope_TT.t().double().numpy() * (weight / 2)
    return Contributions(
        method="the exact, additive share in the logit of each word (Aumann–Shapley: what a little more of the word "
        "adds, in the mean while all words come in together), against the mean of all words; "
        "the first row is the beginning of the text",
        exact=True,
        matrix=matrix,
    )


def _read_parts(
    model: RecurrentModel, words_TM: Float[Tensor, "T M"], parts_T: Float[Tensor, " T"]
) -> Float[Tensor, "T R"]:
    """Return what is read out behind each word, where each adds only a part of what it adds to the states."""
    words_TBM, fed_TBR = words_TM.unsqueeze(1), None
    outputs: list[Tensor] = []
    for layer in range(model.config.layers):
        cell = cast(GatedCell, model.cell(layer))
        hold_TBR, mix_TBR, add_TBR, *keep = cell.factors(words_TBM)
        factors = (hold_TBR, mix_TBR, add_TBR * parts_T.view(-1, 1, 1), *keep)
        if fed_TBR is not None:
            factors = cell.feed(factors, fed_TBR)
        states_TBR, _ = cell.scan(factors, cell.start(1), cell.recurrent_weight())
        if layer < len(model.feeds):
            outputs.append(model.feed(layer)(states_TBR, words_TBM))
            fed_TBR = model.feed(layer).pass_on(outputs[-1])
        else:
            outputs.append(model.read_out(states_TBR, words_TBM))
    return torch.stack(outputs).sum(0)[:, 0]
