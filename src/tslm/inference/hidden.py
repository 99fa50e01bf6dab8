"""A sentence under a probabilistic model: which hidden states it went through, and what its parts say of each other.

All of it is contraction of the one network, W and emissions, with the words of the sentence (Eqs. 11, 14): a word is
forgotten by summing over every word in its place, a half by summing over every beginning of its length.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from tslm.inference.explanation import Cuts, Effects, Explanation, HiddenState, StateReport, WordReport
from tslm.models.probabilistic.model import ProbabilisticModel
from tslm.models.probabilistic.network import ALL, Network

SHOWN_STATES = 3
"""How many of the likeliest states of a word are named."""

SHOWN_WORDS = 5
"""How many words tell what a state or a cluster is like."""


@torch.no_grad()
def explain_hidden(
    model: ProbabilisticModel,
    ids_T: NDArray[np.int32],
    reports: tuple[WordReport, ...],
    *,
    effects: bool,
    cuts: bool,
) -> Explanation:
    """Explain a sentence; ``ids_T`` ends with ``<eos>``."""
    network, ids = model.network, ids_T.tolist()
    passes = Passes(network, ids)
    posterior = [
        _share(belief_k * after_k) for belief_k, after_k in zip(passes.beliefs, passes.after, strict=True)
    ]
    return Explanation(
        words=reports,
        effects=_find_effects(network, ids, passes) if effects else None,
        contributions=None,
        state_norms=None,
        cuts=_cut(posterior, passes) if cuts else None,
        states=tuple(
            _describe(network, word, chance_k) for word, chance_k in zip(ids, posterior, strict=True)
        ),
    )


class Passes:
    """The network contracted with a sentence from both ends.

    Attributes:
        beliefs: p(state of the word | words up to it), over the states of its cluster.
        log_left: ln p(words up to each).
        after: p(words behind | state of the word), over the states of its cluster, up to a factor.
        log_right: ln p(words behind each), whatever the words before them.
    """

    def __init__(self, network: Network, ids: list[int]) -> None:
        value, states, total = network.begin_R, ALL, 0.0
        self.beliefs: list[Tensor] = []
        self.log_left: list[float] = []
        for word in ids:
            value, log_word = _step(network, value, states, word)
            states, total = network.of_word(word), total + log_word
            self.beliefs.append(value)
            self.log_left.append(total)
        prior_R, priors = network.begin_R, list[Tensor]()
        for _ in ids:
            prior_R = network.move(prior_R)
            priors.append(prior_R)
        # From the end: p(words behind | state), for all states, scaled so that nothing underflows.
        after_R, log_scale = torch.ones_like(prior_R), 0.0
        self.after: list[Tensor] = []
        self.log_right: list[float] = []
        for place in range(len(ids) - 1, -1, -1):
            own = network.of_word(ids[place])
            self.after.insert(0, after_R[own])
            self.log_right.insert(0, log_scale + math.log(float(priors[place] @ after_R)))
            after_R = network.pull(network.emission_k(ids[place]) * after_R[own], after=own)
            largest = float(after_R.max())
            after_R, log_scale = after_R / largest, log_scale + math.log(largest)


def _step(network: Network, value: Tensor, states: slice, word: int) -> tuple[Tensor, float]:
    """Return what is believed behind a word, and ln p of it."""
    value = network.move(value, states, network.of_word(word)) * network.emission_k(word)
    total = float(value.sum())
    return value / total, math.log(total)


def _share(weight: Tensor) -> Float[Tensor, " k"]:
    return weight / weight.sum()


def _find_effects(network: Network, ids: list[int], passes: Passes) -> Effects:
    """Eq. 14. Read the sentence again for each word, that word summed over."""
    T = len(ids)
    matrix = np.zeros((T, T))
    log_word = np.diff(passes.log_left, prepend=0.0)
    for forgotten in range(T - 1):
        if forgotten:
            value, states = passes.beliefs[forgotten - 1], network.of_word(ids[forgotten - 1])
        else:
            value, states = network.begin_R, ALL
        value, states = network.move(value, states), ALL
        for place in range(forgotten + 1, T):
            value, log_without = _step(network, value, states, ids[place])
            states = network.of_word(ids[place])
            matrix[forgotten, place] = log_word[place] - log_without
    return Effects(
        method="exact: the word summed over, every word in its place with its probability (Eq. 14)",
        exact=True,
        matrix=matrix,
    )


def _cut(posterior: list[Tensor], passes: Passes) -> Cuts:
    """Return how many states each cut goes through, and the information of the two sides about each other."""
    whole = passes.log_left[-1]
    information = [
        (whole - left - right) / math.log(2)
        for left, right in zip(passes.log_left[:-1], passes.log_right[:-1], strict=True)
    ]
    ranks = [math.exp(-float(torch.special.xlogy(chance_k, chance_k).sum())) for chance_k in posterior[:-1]]
    return Cuts(
        method="exp of the entropy of the hidden state behind the word, given the whole sentence; information: "
        "log2 p(sentence) − log2 p(words up to the cut) − log2 p(words behind it), all beginnings of that length "
        "summed over: the pointwise mutual information of the sides, whose mean over texts is their mutual information",
        exact=True,
        ranks=tuple(ranks),
        information=tuple(information),
    )


def _describe(network: Network, word: int, chance_k: Tensor) -> StateReport:
    """Return the cluster of a word and its likeliest states, each by the words that it emits most."""
    model = network.model
    cluster = int(model.cluster_V[word])
    members = (model.cluster_V == cluster).nonzero().squeeze(1)
    emission_Xk = network.emission_Vk[members]
    # Each word of the cluster, by what a long text would have of it here: all states with equal weight.
    common = members[emission_Xk.sum(1).topk(min(SHOWN_WORDS, len(members))).indices]
    states: list[HiddenState] = []
    for place in chance_k.topk(min(SHOWN_STATES, len(chance_k))).indices.tolist():
        top = emission_Xk[:, place].topk(min(SHOWN_WORDS, len(members)))
        states.append(
            HiddenState(
                number=cluster * model.config.states + place,
                probability=float(chance_k[place]),
                words=tuple(
                    (model.vocabulary.words[int(members[number])], chance)
                    for number, chance in zip(top.indices.tolist(), top.values.tolist(), strict=True)
                ),
            )
        )
    return StateReport(
        cluster=cluster,
        cluster_words=tuple(model.vocabulary.words[number] for number in common.tolist()),
        states=tuple(states),
    )
