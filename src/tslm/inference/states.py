"""The state of one sentence: a matrix product state whose cuts are those of ``tslm explain``.

``unroll`` counts all sentences alike. ``tslm explain`` asks about one: every word of it is kept with probability ½ and
otherwise replaced by any word, all equally likely. So the entry of a sentence x₁ … x_T and a next word y is

    ψ[x₁, …, x_T, y] = √(p₁(x₁) ⋯ p_T(x_T)) · (logit of y behind x₁ … x_T, less the mean over y)

less, for the cut behind word t, its mean over the words up to t: what does not depend on them is nothing they have to
say. The entanglement entropy of that cut is the logarithm of the effective rank that ``explain`` finds by recursion,
without ever forming a leg of the vocabulary's size. Here every leg is one: this is for small vocabularies, and for
those who want to look at the state with other tools.
"""

from __future__ import annotations

import torch

from tslm.errors import CorpusError, NumberError, UnsupportedError
from tslm.inference.chain import is_exact
from tslm.inference.cuts import KEPT
from tslm.inference.inputs import ModelLike, open_model, read_string
from tslm.inference.network import require_chain
from tslm.inference.unroll import make_cores
from tslm.tensors.train import TensorTrain


@torch.no_grad()
def sentence_state(model: ModelLike, sentence: str, cut: int) -> TensorTrain:
    """Return the state of a sentence, centred for one of its cuts, as a tensor train.

    Args:
        model: a model, or its run folder: one that ``unroll`` takes.
        sentence: T words; a word that the model does not know is read as ``<unk>``.
        cut: t, from 1 to T: behind which word to cut.

    Returns:
        A train of T legs of the vocabulary's size and one for the next word. ``cut_entropies`` of it at ``cut``, or
        quimb's entropy there, is the logarithm of ``tslm.explain(…).cuts.ranks[cut − 1]``.

    Raises:
        UnsupportedError: the model is no exact tensor network.
        NumberError: there is no such cut.
        SizeLimitError: the cores would take more than 1 GiB.
    """
    opened = open_model(model)
    recurrent, cell = require_chain(opened)
    if not is_exact(recurrent, cell):
        raise UnsupportedError(
            "the model's logits are no contraction of one chain of tensors; give a pure, biased, bounded or gated "
            "model with a softmax that reads its state as it is or through a linear gate"
        )
    words = opened.rule.split(read_string(sentence, "sentence"))
    if not words:
        raise CorpusError("the sentence has no word; give at least one")
    if not 1 <= cut <= len(words):
        raise NumberError(f"cut {cut} of a sentence of {len(words)} words; give one from 1 to {len(words)}")
    V = len(opened.vocabulary)
    *cores, output = make_cores(recurrent, cell, torch.arange(V), len(words))
    output = output - output.mean(1, keepdim=True)
    chances = []
    for number in opened.vocabulary.encode(words).tolist():
        chance_V = torch.full((V,), (1 - KEPT) / V, dtype=torch.float64)
        chance_V[number] += KEPT
        chances.append(chance_V)
    weighted = [core * chance_V.sqrt()[:, None] for core, chance_V in zip(cores, chances, strict=True)]
    mean_1R = torch.ones(1, 1, dtype=torch.float64)
    for core, chance_V in zip(cores[:cut], chances, strict=False):
        mean_1R = mean_1R @ torch.einsum("axb,x->ab", core, chance_V)
    right = [*weighted[cut:], output]
    right[0] = torch.einsum("ab,bxc->axc", mean_1R, right[0])
    roots = [chance_V.sqrt()[None, :, None] for chance_V in chances[:cut]]
    return TensorTrain((*weighted, output)) - TensorTrain((*roots, *right))
