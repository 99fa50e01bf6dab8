"""Hidden states that begin as groups of the states of a trained recurrent model.

The recurrent model reads a part of the training text. The states in which it is behind the words of a cluster fall into
k groups, and each group is a hidden state: so every word of the text has one, and the probabilities are fitted to what
follows what, for a few steps, before the text is summed over all hidden states.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tslm.errors import RecipeError, UnsupportedError
from tslm.models.base import LanguageModel
from tslm.models.probabilistic.factors import Factors
from tslm.models.probabilistic.forward import TINY, Features
from tslm.models.probabilistic.hidden import HiddenStates
from tslm.models.recurrent.model import RecurrentModel

COLUMNS, LENGTH = 64, 4096
"""How many texts of how many words are read at the most: the beginning of the training text."""

READ_AT_ONCE = 64
"""How many words of each."""

LOOKED_AT = 4000
"""How many states of a cluster k-means sees; the others then go to the nearest group."""

STEPS, BATCH, RATE = 150, 1400, 0.005
"""How the probabilities are fitted to the groups."""


def start_from(model: HiddenStates[Any], source: LanguageModel[Any], ids: Int[np.ndarray, " N"]) -> None:
    """Start the hidden states of a model from the states of a recurrent one, in a text that both know.

    Raises:
        RecipeError: the other model is not recurrent, or knows other words.
        UnsupportedError: SciPy is not installed.
    """
    if not isinstance(source, RecurrentModel):
        raise RecipeError(
            f"model.start_run is a model of kind {source.kind!r}; give a recurrent one, whose states can be grouped"
        )
    if source.vocabulary.words != model.vocabulary.words:
        raise RecipeError("model.start_run knows other words than the corpus; give a run of the same corpus")
    columns = max(1, min(COLUMNS, len(ids) // READ_AT_ONCE))
    length = min(LENGTH, len(ids) // columns)
    text_BT = torch.from_numpy(np.array(ids[: columns * length], np.int64).reshape(columns, length))
    states_BT = _group(model, text_BT, _read(source, text_BT))
    _fit(model, text_BT, states_BT)


@torch.no_grad()
def _read(source: RecurrentModel, text_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T M"]:
    """Return what the recurrent model expects behind each word, as a direction."""
    source.eval()
    carried, parts = source.begin(len(text_BT)), list[Tensor]()
    for words_BT in text_BT.split(READ_AT_ONCE, 1):
        outputs_TBR, carried = source.read(words_BT.t(), carried)
        directions_NM = source.head.direction(outputs_TBR.flatten(0, 1))
        parts.append(directions_NM.unflatten(0, outputs_TBR.shape[:2]))
    return torch.cat(parts).transpose(0, 1)


def _group(
    model: HiddenStates[Any], text_BT: Int[Tensor, "B T"], expected_BTM: Float[Tensor, "B T M"]
) -> Int[Tensor, "B T"]:
    """Return the hidden state of each word, from 0 to k − 1 within its cluster."""
    try:
        from scipy.cluster.vq import kmeans2
    except ImportError as error:
        raise UnsupportedError(
            "states are grouped with SciPy, which is not installed: pip install 'tslm[probabilistic]'"
        ) from error
    random, k = np.random.default_rng(model.config.seed), model.config.states
    states_BT, cluster_BT = torch.zeros_like(text_BT), model.cluster_V[text_BT]
    for cluster in range(model.config.clusters):
        here_BT = cluster_BT == cluster
        rows_NM = expected_BTM[here_BT]
        if len(rows_NM) < k:
            # Too few to group: a state each.
            states_BT[here_BT] = torch.arange(len(rows_NM))
            continue
        some_NM = rows_NM[random.permutation(len(rows_NM))[: max(LOOKED_AT, k)]]
        with warnings.catch_warnings():
            # A group that has lost all its members stays where it was.
            warnings.simplefilter("ignore", UserWarning)
            centres, _ = kmeans2(some_NM.double().numpy(), k, iter=8, minit="++", rng=random)
        centres_kM = torch.from_numpy(centres).to(rows_NM)
        states_BT[here_BT] = (centres_kM.square().sum(1) - 2 * rows_NM @ centres_kM.t()).argmin(1)
    return states_BT


def _fit(model: HiddenStates[Any], text_BT: Int[Tensor, "B T"], states_BT: Int[Tensor, "B T"]) -> None:
    """Raise the probability of each word and its state after the state before it, some words at a time."""
    before_N, state_N = states_BT[:, :-1].flatten(), states_BT[:, 1:].flatten()
    word_N, cluster_N = text_BT[:, 1:].flatten(), model.cluster_V[text_BT[:, :-1]].flatten()
    chooser = torch.Generator().manual_seed(model.config.seed)
    optimiser = torch.optim.Adam(model.parts.parameters(), lr=RATE)
    for _ in range(STEPS):
        n = torch.randint(len(word_N), (BATCH,), generator=chooser)
        factors, after_n = model.parts.factors(model.layout), model.cluster_V[word_N[n]]
        chance_n = (
            factors.onward_CkC[cluster_N[n], before_N[n], after_n]
            * _transitions(factors, cluster_N[n], before_N[n], after_n, state_N[n])
            * factors.emission_Pk[factors.row_V[word_N[n]], state_N[n]]
        )
        optimiser.zero_grad()
        (-(chance_n + TINY).log().mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parts.parameters(), 1.0)
        optimiser.step()
    model.forget()


def _transitions(
    factors: Factors, cluster_N: Tensor, before_N: Tensor, after_N: Tensor, state_N: Tensor
) -> Float[Tensor, " N"]:
    """Return p(next state | state, next cluster) of some pairs of states."""
    if isinstance(factors.shared, Features):
        return (factors.shared.leave_kF[before_N] * factors.shared.reach_Fk.t()[state_N]).sum(1)
    if factors.shared is not None:
        return factors.shared[before_N, state_N]
    return factors.blocks(cluster_N, after_N)[torch.arange(len(before_N)), before_N, state_N]
