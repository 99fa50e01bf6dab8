"""A sentence as a chain of tensors, contracted word by word: effects of words on words, their shares, ranks of cuts."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tslm.inference.cascade import explain_cascade
from tslm.inference.cuts import SPREAD, Parts, effective_ranks
from tslm.inference.explanation import Contributions, Cuts, Effects, Explanation, Reference, WordReport
from tslm.models.base import LanguageModel
from tslm.models.recurrent.cells import ChainCell
from tslm.models.recurrent.model import RecurrentModel


@torch.inference_mode()
def explain_chain(
    model: LanguageModel[Any],
    ids_T: NDArray[np.int32],
    reports: tuple[WordReport, ...],
    *,
    reference: Reference,
    effects: bool,
    cuts: bool,
) -> Explanation:
    """Explain a sentence under a model whose first layer is a chain of tensors; ``ids_T`` ends with ``<eos>``."""
    assert isinstance(model, RecurrentModel)  # noqa: S101
    cell = model.chain()
    assert cell is not None  # noqa: S101
    if model.config.cascade:
        return explain_cascade(model, ids_T, reports, reference=reference, effects=effects)
    targets_T = torch.from_numpy(ids_T.astype(np.int64))
    # What is read: <eos>, which begins every text, and the words but the last.
    read_T = torch.cat([torch.tensor([model.vocabulary.eos_id]), targets_T[:-1]])
    words_TM = model.embed(read_T)
    states_TBR, _ = cell(words_TM.unsqueeze(1), cell.start(1))
    states_TR = states_TBR[:, 0]
    alone = model.config.layers == 1
    return Explanation(
        words=reports,
        effects=_find_effects(model, cell, words_TM, states_TR, targets_T, reference) if effects else None,
        contributions=_share_out(model, cell, words_TM, targets_T)
        if effects and cell.exact and (alone or (model.config.skip and model.product is None))
        else None,
        state_norms=tuple(states_TR[1:].norm(dim=-1).tolist()),
        cuts=_cut(model, cell, words_TM, states_TR) if cuts and alone else None,
    )


def is_exact(model: RecurrentModel, cell: ChainCell) -> bool:
    """Whether the logits are a contraction of one chain of tensors: linear in the state, whose cell is exact.

    Read out through products they are one of two chains, which is exact too, but another network.
    """
    return (
        cell.exact
        and model.config.layers == 1
        and model.config.reads_linearly
        and model.head.linear() is not None
    )


def _find_effects(
    model: RecurrentModel,
    cell: ChainCell,
    words_TM: Tensor,
    states_TR: Tensor,
    targets_T: Tensor,
    reference: Reference,
) -> Effects:
    """Eqs. 14, 19. Contract the network as it is, and for every word with that word's place filled by a stand-in."""
    T = len(targets_T)
    W_RR = cell.recurrent_weight()
    before_TR = states_TR[:-1]
    # The state after the stand-in for word s needs only the true state before it; word s stands in place s.
    stands_TR = (
        cell.average_step(before_TR, model.embed(torch.arange(len(model.vocabulary))))
        if reference == "mean"
        else cell.neutral_step(before_TR)
    )
    outputs_TBR = states_TR.unsqueeze(1).repeat(1, T, 1)
    for t in range(1, T):
        # Rows 1 … t−1 have met their stand-in and read on; row t meets it now.
        if t > 1:
            factors = tuple(part.expand(t - 1, -1).unsqueeze(0) for part in cell.factors(words_TM[t]))
            outputs_TBR[t, 1:t] = cell.scan(factors, cell.carry(outputs_TBR[t - 1, 1:t]), W_RR)[0][0]
        outputs_TBR[t, t] = stands_TR[t - 1]
    outputs_TBR, _ = model.read_above(outputs_TBR, model.begin(T))
    # The gate of a word that is replaced stays the sentence's own: what is asked is what the state knew of it.
    outputs_TBR = model.read_out(outputs_TBR, words_TM.unsqueeze(1).expand(-1, T, -1))
    scores_TB = model.head.score(
        outputs_TBR.flatten(0, 1), model.output_VM, model.bias, targets_T.repeat_interleave(T)
    ).view(T, T)
    matrix = (scores_TB[:, :1] - scores_TB).double().t().numpy()
    # Row 0 (the sentence) goes, and <eos>, which nothing follows, comes in as the last row.
    matrix = np.triu(np.concatenate([matrix[1:], np.zeros((1, T))]), 1)
    exact = is_exact(model, cell)
    averaged = "logits" if exact else "states" if cell.exact else "factors"
    mean = f"the mean of all words (Eq. 14, of {averaged})"
    what = mean if reference == "mean" else "a word that changes nothing"
    return Effects(
        method=f"{_name_method(model, cell)} with the word replaced by {what}", exact=exact, matrix=matrix
    )


def _name_method(model: RecurrentModel, cell: ChainCell) -> str:
    """Say what is contracted, and why the logits are no contraction where they are none."""
    if is_exact(model, cell):
        return "exact contraction of the logits"
    if not cell.exact:
        return "the normalised recurrence, not multilinear,"
    if model.config.layers > 1:
        return "exact contraction of the first layer, the layers above it read again,"
    return f"exact contraction of the states, read out through {_name_readout(model)},"


def _name_readout(model: RecurrentModel) -> str:
    """Say what keeps the logits from being linear in the state."""
    if model.config.reads_linearly:
        return "a mixture of softmaxes"
    return "products" if model.product is not None else "tanh"


def _share_out(
    model: RecurrentModel, cell: ChainCell, words_TM: Tensor, targets_T: Tensor
) -> Contributions | None:
    """Eq. 19. Return what each earlier word adds to the logit of each word: h_t is a sum over the words read.

    h_t = Σ_s A(x_t) ⋯ A(x_{s+1}) c(x_s), so each word's term is carried on by the linear part alone. Where products are
    read out, h ⊙ (1 + Q h) is a sum over terms and pairs of terms; half of a pair is given to either, which makes each
    word's share the Shapley value of its term: what it adds in the mean over all orders in which the terms may come in.
    """
    linear_MR = model.head.linear()
    if linear_MR is None:
        return None
    T = len(targets_T)
    terms_TR = words_TM.new_zeros(0, cell.rank)
    opened_TR = model.open_gate(words_TM)
    if model.config.output_gate == "tanh":
        opened_TR = torch.ones_like(opened_TR)
    # Against the mean of all words: a constant added to every logit changes no probability.
    weight_TM = model.output_VM[targets_T] - model.output_VM.mean(0)
    matrix = np.zeros((T, T))
    for t in range(T):
        A_1RR, c_1R, first_1R = cell.operators(words_TM[t : t + 1])
        terms_TR = torch.cat([terms_TR @ A_1RR[0].t(), first_1R if t == 0 else c_1R])
        shares_TR = terms_TR
        if model.product is not None:
            state_R = terms_TR.sum(0)
            asked_TR = terms_TR @ model.product.t()
            shares_TR = terms_TR + (terms_TR * asked_TR.sum(0) + state_R * asked_TR) / 2
        read_TM = (shares_TR * opened_TR[t]) @ linear_MR.to(terms_TR).t()
        matrix[: t + 1, t] = (read_TM @ weight_TM[t]).double().numpy()
    where = "to the logit of each word"
    if model.config.output_gate == "tanh":
        where += " before gate and tanh"
    if model.product is not None:
        where += " (of what two words bring together, half is each one's)"
    above = "" if model.config.layers == 1 else ", in the first layer, to which those above add theirs"
    return Contributions(
        method=f"the exact, additive share {where}, against the mean of all words{above}; "
        "the first row is the beginning of the text",
        exact=model.config.layers == 1 and model.config.output_gate != "tanh",
        matrix=matrix,
    )


def _cut(model: RecurrentModel, cell: ChainCell, words_TM: Tensor, states_TR: Tensor) -> Cuts:
    """Return the effective ranks across the cuts of the chain."""
    every_VM = model.embed(torch.arange(len(model.vocabulary)))
    linear_MR = model.head.linear()
    logits = linear_MR is not None and model.config.reads_linearly
    gates = None
    if logits and model.gate is not None:
        gates = model.open_gate(words_TM[-1:]).double(), model.open_gate(every_VM).double()
    output = torch.eye(cell.rank, dtype=torch.float64)
    if logits:
        output = model.output_VM.double() @ cast(Tensor, linear_MR).double()
    everything = _bring(cell, every_VM)
    ranks = effective_ranks(
        cell.recurrent_weight().double(),
        states_TR[0].double(),
        _bring(cell, words_TM[1:]),
        everything,
        output,
        # ‖h‖² = R s² x / R with x the mean square before scaling: s = sqrt(1 − mean h²).
        scales_T=None if cell.exact else (1 - states_TR[1:].double().pow(2).mean(-1)).clamp(min=0).sqrt(),
        gates=gates,
        centred=logits,
    )
    frozen = "" if cell.exact else ", each state's scale held at this sentence's value"
    some = everything.keep_NR is not None and len(everything) > SPREAD
    what = "the logits" if logits else "the last state"
    word = f"any of {SPREAD} words spread over the vocabulary" if some else "any word"
    return Cuts(
        method=f"exp of the entropy of the squared singular values of {what} as a matrix (words up to the cut) × "
        "(words behind it, output), its mean row taken off; each word kept, or else replaced by "
        f"{word}, with equal chance{frozen}",
        exact=is_exact(model, cell) and not some,
        ranks=tuple(ranks.tolist()),
    )


def _bring(cell: ChainCell, words_NM: Tensor) -> Parts:
    """Return what words bring, in double precision."""
    hold_NR, mix_NR, add_NR, keep_NR = cell.affine_parts(words_NM)
    return Parts(
        hold_NR.double(), mix_NR.double(), add_NR.double(), None if keep_NR is None else keep_NR.double()
    )
