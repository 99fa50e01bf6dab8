"""What a model thinks of each word of a sentence, and which earlier words made it think so."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.vocabulary import EOS
from tslm.errors import CorpusError, SizeLimitError
from tslm.evaluation.scoring import score_text
from tslm.inference.explanation import Alternative, Effects, Explanation, Reference, WordReport
from tslm.inference.inputs import ModelLike, open_model, read_string
from tslm.models.base import HasNetwork, LanguageModel
from tslm.stopping import check_wanted

LONGEST = 200
"""Words of a sentence: the effects of every word on every other take the square of it."""


def explain(
    model: ModelLike,
    sentence: str,
    *,
    top: int = 5,
    reference: Reference = "mean",
    effects: bool = True,
    cuts: bool = True,
) -> Explanation:
    """Explain every word of a sentence, its ``<eos>`` included.

    Args:
        model: a model, or its run folder; effects are exact for an exact cell, or a cascade, read out linearly.
        sentence: what is to be explained, as people write it.
        top: how many alternatives.
        reference: what replaces a word of a TSLM or gated model to see its effect.
        effects: whether to find the effects.
        cuts: whether to find the effective ranks.

    Raises:
        CorpusError: no word, or one for which there is neither id nor ``<unk>``.
        SizeLimitError: more than 200 words.
    """
    model = open_model(model)
    words = model.rule.split(read_string(sentence, "sentence"))
    if not words:
        raise CorpusError("the sentence has no word; give at least one")
    if len(words) > LONGEST:
        raise SizeLimitError(f"the sentence has {len(words)} words; at most {LONGEST} can be explained")
    ids_T = model.vocabulary.encode([*words, EOS])
    reports = tuple(explain_words(model, [*words, EOS], top=top))
    if model.kind == "probabilistic":
        from tslm.inference.hidden import explain_hidden

        return explain_hidden(cast(Any, model), ids_T, reports, effects=effects, cuts=cuts)
    if not isinstance(model, HasNetwork) or model.chain() is None:
        found = _replace_by_unk(model, ids_T) if effects else None
        return Explanation(words=reports, effects=found, contributions=None, state_norms=None, cuts=None)
    from tslm.inference.chain import explain_chain  # a model without a network needs no PyTorch

    return explain_chain(model, ids_T, reports, reference=reference, effects=effects, cuts=cuts)


def explain_words(
    model: LanguageModel[Any], words: list[str], *, top: int = 5, state: Any = None
) -> list[WordReport]:
    """Return what the model expected in the place of each word, going from left to right.

    Args:
        model: any language model.
        words: the words.
        top: how many alternatives.
        state: the state to go on from; that of the beginning of a text when left out.
    """
    state, ids = model.start(1) if state is None else state, model.vocabulary.encode(words)
    scores, _ = score_text(model, ids, state)
    reports: list[WordReport] = []
    for word, number, score in zip(words, ids.tolist(), scores.tolist(), strict=True):
        check_wanted()
        log_V = model.predict(state)[0].astype(np.float64)
        best = np.argsort(-log_V, kind="stable")[:top].tolist()
        possible = log_V[log_V > -np.inf]
        entropy = -(np.exp(possible) * possible).sum() / math.log(2)
        reports.append(
            WordReport(
                word=word,
                known=word in model.vocabulary,
                log_probability=score,
                rank=int((log_V > log_V[number]).sum()) + 1,
                surprise=0.0 - score / math.log(2),
                entropy=float(entropy),
                alternatives=tuple(
                    Alternative(word=model.vocabulary.words[place], probability=math.exp(log_V[place]))
                    for place in best
                ),
            )
        )
        _, state = model.score(np.array([[number]]), state)
    return reports


def _replace_by_unk(model: LanguageModel[Any], ids_T: NDArray[np.int32]) -> Effects | None:
    """Leave-one-out for models without factors: the sentence once for each word, that word replaced by ``<unk>``."""
    unknown = model.vocabulary.unk_id
    if unknown is None:
        return None
    T = len(ids_T)
    tokens_BT = np.tile(ids_T, (T, 1))
    tokens_BT[np.arange(1, T), np.arange(T - 1)] = unknown
    scores_BT, _ = model.score(tokens_BT, model.start(T))
    with np.errstate(invalid="ignore"):
        matrix = (scores_BT[:1] - scores_BT).astype(np.float64)
    matrix = np.triu(np.concatenate([matrix[1:], np.zeros((1, T))]), 1)
    return Effects(
        method="leave-one-out: the word replaced by <unk> and the sentence read again; no contraction",
        exact=False,
        matrix=np.nan_to_num(matrix, posinf=np.inf, neginf=-np.inf),
    )
