"""What a model thinks of each word of a sentence, and which earlier words made it think so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tslm.corpus.vocabulary import EOS
from tslm.errors import CorpusError, SizeLimitError, UnsupportedError
from tslm.inference.cuts import effective_ranks
from tslm.inference.score import finite
from tslm.models.base import LanguageModel
from tslm.models.recurrent.cells import TslmCell
from tslm.models.recurrent.heads import SoftmaxHead, score_targets
from tslm.models.recurrent.model import RecurrentModel
from tslm.models.recurrent.scan import multiplicative_scan

LONGEST = 200
"""Words of a sentence: the effects of every word on every other take the square of it."""

Reference = Literal["mean", "ones"]
"""What stands in for a word: the mean factor of all words (Eq. 14), or the factor that changes nothing."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A word that could have stood here."""

    word: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class WordReport:
    """A word and what the model expected in its place."""

    word: str
    known: bool
    """Whether it is in the vocabulary; it was read as ``<unk>`` where not."""
    log_probability: float
    rank: int
    """1 for the word the model thought likeliest."""
    surprise: float
    """−log2 p, in bits."""
    entropy: float
    """How many bits of surprise the model expected here; a word far above it is an odd one."""
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True, kw_only=True)
class Effects:
    """How much each earlier word changes each word's log-probability."""

    method: str
    """What was done, in words."""
    exact: bool
    """Whether it is an exact contraction of the model's own network with the word's mode summed over."""
    matrix: Float[np.ndarray, "T T"]
    """Row s, column t: ln p(word t | all) − ln p(word t | word s replaced); zero unless s < t."""


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """The effective rank across each cut of a sentence's network."""

    method: str
    exact: bool
    ranks: tuple[float, ...]
    """After each word but ``<eos>``: how many independent features of the words so far matter to what follows."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A sentence explained."""

    words: tuple[WordReport, ...]
    """The last is ``<eos>``."""
    effects: Effects | None
    state_norms: tuple[float, ...] | None
    """‖h‖ after each word but ``<eos>``, for TSLM."""
    cuts: Cuts | None

    @property
    def log_probability(self) -> float:
        """Ln p of the sentence."""
        return sum(word.log_probability for word in self.words)


def explain(
    model: LanguageModel[Any],
    sentence: str,
    *,
    top: int = 5,
    reference: Reference = "mean",
    effects: bool = True,
    cuts: bool = True,
) -> Explanation:
    """Explain every word of a sentence, its ``<eos>`` included.

    Args:
        model: any language model; the effects of words are exact for TSLM alone.
        sentence: words between spaces.
        top: how many alternatives.
        reference: what replaces a word of a TSLM to see its effect.
        effects: whether to find the effects.
        cuts: whether to find the effective ranks.

    Raises:
        CorpusError: no word, or one for which there is neither id nor ``<unk>``.
        SizeLimitError: more than 200 words.
    """
    words = sentence.split()
    if not words:
        raise CorpusError("the sentence has no word; give at least one")
    if len(words) > LONGEST:
        raise SizeLimitError(f"the sentence has {len(words)} words; at most {LONGEST} can be explained")
    ids_T = torch.from_numpy(model.vocabulary.encode([*words, EOS]).astype(np.int64))
    reports = tuple(explain_words(model, [*words, EOS], top=top))
    cell = _tslm_cell(model)
    if cell is None:
        found = _replace_by_unk(model, ids_T) if effects else None
        return Explanation(words=reports, effects=found, state_norms=None, cuts=None)
    assert isinstance(model, RecurrentModel)  # noqa: S101
    with torch.inference_mode():
        factors_TR = _factors(model, cell, ids_T)
        found = _contract(model, cell, factors_TR, ids_T, reference) if effects else None
        states_TR, _ = _scan(cell, factors_TR.unsqueeze(1))
        norms = tuple(states_TR[1:, 0].norm(dim=-1).tolist())
    return Explanation(
        words=reports,
        effects=found,
        state_norms=norms,
        cuts=_cut(model, cell, factors_TR, states_TR[:, 0]) if cuts else None,
    )


@torch.inference_mode()
def explain_words(model: LanguageModel[Any], words: list[str], *, top: int = 5) -> list[WordReport]:
    """Return what the model expected in the place of each word, going from left to right."""
    state = model.start(1)
    reports: list[WordReport] = []
    for word, number in zip(words, model.vocabulary.encode(words).tolist(), strict=True):
        log_V = model.predict(state)[0].double()
        score = float(log_V[number])
        best = torch.topk(log_V, min(top, len(log_V)))
        probability_V = log_V.exp()
        entropy = -torch.where(probability_V > 0, probability_V * log_V, 0.0).sum() / math.log(2)
        reports.append(
            WordReport(
                word=word,
                known=word in model.vocabulary,
                log_probability=score,
                rank=int((log_V > score).sum()) + 1,
                surprise=0.0 - score / math.log(2),
                entropy=float(entropy),
                alternatives=tuple(
                    Alternative(word=model.vocabulary.words[place], probability=math.exp(value))
                    for value, place in zip(best.values.tolist(), best.indices.tolist(), strict=True)
                ),
            )
        )
        _, state = model.score(torch.tensor([[number]]), state)
    return reports


def describe_explanation(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as plain values for JSON; what is infinite there becomes None."""
    effects, cuts = explanation.effects, explanation.cuts
    return {
        "log_probability": finite(explanation.log_probability),
        "words": [describe_word(word) for word in explanation.words],
        "effects": None
        if effects is None
        else {
            "method": effects.method,
            "exact": effects.exact,
            "matrix": [[finite(value) for value in row] for row in effects.matrix.tolist()],
        },
        "state_norms": None if explanation.state_norms is None else list(explanation.state_norms),
        "cuts": None
        if cuts is None
        else {"method": cuts.method, "exact": cuts.exact, "ranks": list(cuts.ranks)},
    }


def describe_word(word: WordReport) -> dict[str, Any]:
    """Return the report of a word as plain values for JSON."""
    return {
        "word": word.word,
        "unknown": not word.known,
        "log_probability": finite(word.log_probability),
        "probability": math.exp(word.log_probability),
        "rank": word.rank,
        "surprise": finite(word.surprise),
        "entropy": word.entropy,
        "alternatives": [
            {"word": entry.word, "probability": entry.probability} for entry in word.alternatives
        ],
    }


def _tslm_cell(model: LanguageModel[Any]) -> TslmCell | None:
    """Return the first cell of a TSLM, or None for other models."""
    if not isinstance(model, RecurrentModel):
        return None
    cell = model.cell(0)
    return cell if isinstance(cell, TslmCell) else None


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


@torch.inference_mode()
def _replace_by_unk(model: LanguageModel[Any], ids_T: Tensor) -> Effects | None:
    """Leave-one-out for models without factors: the sentence once for each word, that word replaced by ``<unk>``."""
    unknown = model.vocabulary.unk_id
    if unknown is None:
        return None
    T = len(ids_T)
    tokens_BT = ids_T.repeat(T, 1)
    tokens_BT[torch.arange(1, T), torch.arange(T - 1)] = unknown
    scores_BT, _ = model.score(tokens_BT, model.start(T))
    with np.errstate(invalid="ignore"):
        matrix = (scores_BT[:1] - scores_BT).double().numpy()
    matrix = np.triu(np.concatenate([matrix[1:], np.zeros((1, T))]), 1)
    return Effects(
        method="leave-one-out: the word replaced by <unk> and the sentence read again; no contraction",
        exact=False,
        matrix=np.nan_to_num(matrix, posinf=np.inf, neginf=-np.inf),
    )


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
    cell = _tslm_cell(model)
    if cell is None or not isinstance(model, RecurrentModel) or model.config.layers > 1:
        raise UnsupportedError(
            f"a model of kind {model.kind!r} is not one TSLM layer: it has no chain to draw"
        )
    return model, cell
