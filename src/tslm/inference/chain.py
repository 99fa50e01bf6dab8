"""The network of a sentence, contracted word by word: effects of words on words, norms of states, ranks of cuts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from tslm.errors import UnsupportedError
from tslm.inference.cuts import effective_ranks
from tslm.inference.explain import Cuts, Effects, Explanation, Reference, WordReport
from tslm.models.base import LanguageModel
from tslm.models.recurrent.cells import TslmCell
from tslm.models.recurrent.heads import SoftmaxHead, score_targets
from tslm.models.recurrent.model import RecurrentModel
from tslm.models.recurrent.scan import multiplicative_scan


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
    """Explain a sentence under a model whose first layer is a TSLM; ``ids_T`` ends with ``<eos>``."""
    assert isinstance(model, RecurrentModel)  # noqa: S101
    cell = model.chain()
    assert cell is not None  # noqa: S101
    factors_TR = _factors(model, cell, torch.from_numpy(ids_T.astype(np.int64)))
    tokens_T = torch.from_numpy(ids_T.astype(np.int64))
    states_TR, _ = _scan(cell, factors_TR.unsqueeze(1))
    return Explanation(
        words=reports,
        effects=_contract(model, cell, factors_TR, tokens_T, reference) if effects else None,
        state_norms=tuple(states_TR[1:, 0].norm(dim=-1).tolist()),
        cuts=_cut(model, cell, factors_TR, states_TR[:, 0]) if cuts else None,
    )


def _factors(model: RecurrentModel, cell: TslmCell, ids_T: Tensor) -> Float[Tensor, "T R"]:
    """Return the factors of all words read: ``<eos>``, which begins every text, and the words but the last."""
    read_T = torch.cat([torch.tensor([model.vocabulary.eos_id]), ids_T[:-1]])
    return cell.factors(F.embedding(read_T, model.embedding) * math.sqrt(model.config.embedding))


def mean_factor(model: RecurrentModel, cell: TslmCell) -> Float[Tensor, " R"]:
    """Eq. 14. The all-ones vector of the vocabulary, divided by |V|, as a factor: the mean of all words' factors."""
    return cell.factors(model.embedding * math.sqrt(model.config.embedding)).mean(0)


def _scan(cell: TslmCell, factors_TBR: Tensor) -> tuple[Tensor, Tensor]:
    return multiplicative_scan(
        factors_TBR,
        factors_TBR.new_ones(factors_TBR.shape[1:]),
        cell.recurrent_weight(),
        cell.b,
        normalise=cell.variant == "normalised",
    )


def is_exact(model: RecurrentModel, cell: TslmCell) -> bool:
    """Whether the logits are multilinear in the words' factors: a tensor network, contracted exactly."""
    return cell.variant != "normalised" and model.config.layers == 1 and model.config.head == "softmax"


def _contract(
    model: RecurrentModel, cell: TslmCell, factors_TR: Tensor, ids_T: Tensor, reference: Reference
) -> Effects:
    """Eqs. 14, 19. Contract the network once as it is and once for every word with that word's factor replaced."""
    T = len(ids_T)
    replacement_R = mean_factor(model, cell) if reference == "mean" else torch.ones_like(factors_TR[0])
    # Row 0 is the sentence itself; row s has word s replaced. Word s stands in place s, behind the <eos> of place 0.
    factors_TBR = factors_TR.unsqueeze(1).repeat(1, T, 1)
    for place in range(1, T):
        factors_TBR[place, place] = replacement_R
    states_TBR, _ = _scan(cell, factors_TBR)
    for layer in range(1, model.config.layers):
        states_TBR, _ = model.cell(layer)(states_TBR, model.cell(layer).start(T))
    latents_NKM, log_prior_NK = model.head(states_TBR.flatten(0, 1))
    targets_N = ids_T.repeat_interleave(T)
    scores_TB = score_targets(latents_NKM, log_prior_NK, model.output_VM, model.bias, targets_N).view(T, T)
    matrix = (scores_TB[:, :1] - scores_TB).double().t().numpy()
    # Row 0 (the sentence) goes, and <eos>, which nothing follows, comes in as the last row.
    matrix = np.triu(np.concatenate([matrix[1:], np.zeros((1, T))]), 1)
    what = "the mean factor of all words (Eq. 14)" if reference == "mean" else "the all-ones factor"
    exact = is_exact(model, cell)
    how = "exact contraction" if exact else f"the {cell.variant} recurrence, not multilinear,"
    return Effects(method=f"{how} with the word replaced by {what}", exact=exact, matrix=matrix)


def _cut(model: RecurrentModel, cell: TslmCell, factors_TR: Tensor, states_TR: Tensor) -> Cuts | None:
    """Return the effective ranks, where there is one chain."""
    if model.config.layers > 1:
        return None
    all_VR = cell.factors(model.embedding * math.sqrt(model.config.embedding)).double()
    scales_T = torch.ones(len(factors_TR), dtype=torch.float64)
    if cell.variant == "normalised":
        # ‖h‖² = R s² x / R with x the mean square before scaling: s = sqrt(1 − mean h²).
        scales_T = (1 - states_TR.double().pow(2).mean(-1)).clamp(min=0).sqrt()
    softmax = model.config.head == "softmax"
    output = model.output_VM.double() if softmax else torch.eye(model.config.rank, dtype=torch.float64)
    bias = model.bias.double() if softmax else torch.zeros(model.config.rank, dtype=torch.float64)
    if isinstance(model.head, SoftmaxHead) and model.head.projection is not None:
        output = output @ model.head.projection.weight.double()
    ranks = effective_ranks(
        cell.recurrent_weight().double(),
        cell.b.double(),
        factors_TR.double(),
        all_VR,
        output,
        bias,
        scales_T=scales_T,
        centred=softmax,
    )
    frozen = ", each state's scale held at this sentence's value" if cell.variant == "normalised" else ""
    what = "the logits" if softmax else "the last state"
    return Cuts(
        method=f"exp of the entropy of the squared singular values of {what} as a matrix (words up to the cut) × "
        "(words behind it, output), its mean row taken off; each word kept, or else replaced by any word, with equal "
        f"chance{frozen}",
        exact=is_exact(model, cell),
        ranks=tuple(ranks.tolist()),
    )


def require_tslm(model: LanguageModel[Any]) -> tuple[RecurrentModel, TslmCell]:
    """Return a model of one TSLM layer and its cell.

    Raises:
        UnsupportedError: it is none.
    """
    cell = model.chain() if isinstance(model, RecurrentModel) else None
    if cell is None or not isinstance(model, RecurrentModel) or model.config.layers > 1:
        raise UnsupportedError(
            f"a model of kind {model.kind!r} is not one TSLM layer: it has no chain to draw"
        )
    return model, cell
