"""A sentence under a trained model as a tensor network whose contraction is the model's own logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tslm.corpus.vocabulary import EOS
from tslm.errors import CorpusError, UnsupportedError
from tslm.models.base import LanguageModel
from tslm.models.recurrent.cells import ChainCell
from tslm.models.recurrent.cells.tslm import TslmCell
from tslm.models.recurrent.heads.softmax import SoftmaxHead
from tslm.models.recurrent.model import RecurrentModel
from tslm.tensors.network import TensorNetwork
from tslm.tensors.sentence import chain_network, operator_network


@dataclass(frozen=True)
class SentenceNetwork:
    """The network behind the prediction of the word after a sentence."""

    network: TensorNetwork
    words: tuple[str, ...]
    """The words read, ``<eos>``, which begins every text, first."""
    logits: bool
    """Whether it contracts to the logits; else to the last state, which no matrix reads out."""
    exact: bool
    """Whether it holds for all sentences alike; else numbers of this sentence are held fixed in it."""
    notes: tuple[str, ...]
    """What a picture of it must say."""

    def contract(self) -> Float[Tensor, " V"]:
        """Return the logits of the next word, or the last state with its constant coordinate."""
        return self.network.contract()


def require_chain(model: LanguageModel[Any]) -> tuple[RecurrentModel, ChainCell]:
    """Return a model of one layer whose words bring factors of their own, and its cell.

    Raises:
        UnsupportedError: it is none.
    """
    cell = model.chain() if isinstance(model, RecurrentModel) else None
    if isinstance(model, RecurrentModel) and model.config.pairs:
        raise UnsupportedError(
            "a model that reads pairs of words is no chain of single words; give one without model.pairs"
        )
    if cell is None or not isinstance(model, RecurrentModel):
        raise UnsupportedError(
            f"a model of kind {model.kind!r} is no chain of tensors; give a TSLM or gated model"
        )
    if model.config.layers > 1:
        built = "cascade" if model.config.cascade else "stack"
        raise UnsupportedError(
            f"a {built} of {model.config.layers} layers is no single chain of bond {model.config.rank}; "
            "give a model of one layer"
        )
    return model, cell


@torch.no_grad()
def build_network(model: LanguageModel[Any], sentence: str) -> SentenceNetwork:
    """Figure 3. Return the network of ⟨T₍t₎, A₍t−1₎⟩ for the words of a sentence.

    Every bias is part of it: state and words have one more coordinate that is always 1 (see ``lift_biases``). The words
    of a pure or biased TSLM are α with U; where tanh acts on a word, its factor f stands for both; a gated cell's word
    is a matrix A. The divisors of a normalised cell are multiplied into the factors of this sentence.

    Example:
        >>> from tslm.models.recurrent.config import RecurrentConfig
        >>> model = RecurrentModel(RecurrentConfig(rank=8, embedding=8), vocabulary).eval()
        >>> found = build_network(model, "in the beginning")
        >>> _, state = model.score(vocabulary.encode(["in", "the", "beginning"])[None], model.start(1))
        >>> np.allclose(found.contract().log_softmax(-1), model.predict(state)[0], atol=1e-5)
        True

    Raises:
        UnsupportedError: the model is no chain of one layer.
        CorpusError: the sentence has no word.
    """
    recurrent, cell = require_chain(model)
    words = model.rule.split(sentence)
    if not words:
        raise CorpusError("the sentence has no word; give at least one")
    read_T = torch.from_numpy(recurrent.vocabulary.encode([EOS, *words]).astype(np.int64))
    alphas_TM = recurrent.embed(read_T)
    readout, logits, notes = _find_readout(recurrent, alphas_TM[-1])
    notes = ["one coordinate of state and words is always 1: it carries the biases", *notes]
    if not isinstance(cell, TslmCell):
        A_TRR, c_TR, first_TR = cell.operators(alphas_TM)
        operators_TRR = torch.stack([lift(A, c) for A, c in zip(A_TRR[1:], c_TR[1:], strict=True)])
        network = operator_network(lift_vector(first_TR[0]), operators_TRR, readout=readout)
        notes = ["Aₜ is the matrix of word t", *notes]
    else:
        W_hat, linear = lift(cell.recurrent_weight(), cell.b), cell.variant in ("pure", "biased")
        words_TM = alphas_TM if linear else cell.factors(alphas_TM)[0]
        if not cell.exact:
            words_TM = words_TM * _find_scales(cell, alphas_TM).unsqueeze(1)
            notes = [
                *notes,
                "fₜ is scaled by the divisor of this sentence's state: no tensor of all sentences",
            ]
        elif not linear:
            notes = ["fₜ = tanh(U αₜ + c)", *notes]
        words_hat = torch.cat([words_TM, words_TM.new_ones(len(words_TM), 1)], 1)
        U_hat = lift(cell.U, cell.c) if linear else None
        network = chain_network(W_hat, words_hat, U_RM=U_hat, readout=readout)
    return SentenceNetwork(network, (EOS, *words), logits, cell.exact, tuple(notes))


def lift(matrix: Float[Tensor, "P Q"], bias: Float[Tensor, " P"]) -> Float[Tensor, "P1 Q1"]:
    """Return [[A, b], [0, 1]]: an affine map as a linear one with a constant coordinate."""
    last = torch.cat([matrix.new_zeros(matrix.shape[1]), matrix.new_ones(1)])
    return torch.cat([torch.cat([matrix, bias[:, None]], 1), last[None]])


def lift_vector(vector: Float[Tensor, " P"]) -> Float[Tensor, " P1"]:
    """Return a vector with the constant coordinate."""
    return torch.cat([vector, vector.new_ones(1)])


def _find_readout(model: RecurrentModel, last_M: Tensor) -> tuple[list[tuple[str, Tensor]], bool, list[str]]:
    """Return what stands between the last state and the logits, whether it can be said, and what else to say."""
    if model.product is not None:
        return (
            [],
            False,
            ["the open leg is the state, of which two copies are multiplied as they are read out"],
        )
    if not isinstance(model.head, SoftmaxHead) or model.config.output_gate == "tanh":
        what = "tanh" if isinstance(model.head, SoftmaxHead) else "a mixture of softmaxes"
        return [], False, [f"the open leg is the state, which {what} reads: no tensor"]
    readout: list[tuple[str, Tensor]] = []
    if model.gate is not None:
        opened_R = model.open_gate(last_M)
        readout.append(("o", lift_vector(opened_R)))
    if model.head.projection is not None:
        weight_MR = model.head.projection.weight
        readout.append(("P", lift(weight_MR, weight_MR.new_zeros(len(weight_MR)))))
    readout.append(("V", torch.cat([model.output_VM, model.bias[:, None]], 1)))
    return readout, True, ["o is the output gate of the last word"] if model.gate is not None else []


def _find_scales(cell: TslmCell, alphas_TM: Tensor) -> Float[Tensor, " T"]:
    """Return what the states of a normalised cell are multiplied by: 1/√(1 + mean x²) = √(1 − mean h²)."""
    states_TBR, _ = cell(alphas_TM.unsqueeze(1), cell.start(1))
    return (1 - states_TBR[:, 0].pow(2).mean(-1)).sqrt()
