"""A trained exact cell as a tensor train: all sentences of n words at once, each leg a choice of words.

An exact cell's state is affine in the state before, so with one more coordinate that is always 1 it is a product of
matrices, one per word: h = Â(wₙ) ⋯ Â(w₁) ĥ₀. With a leg for the word in every place that is a matrix product state,

    T[w₁, …, wₙ, y] = V̂_y Â(wₙ) ⋯ Â(w₁) ĥ₀ ,

and its entry at a sentence is the logit of the next word y. The output gate, a vector of the last word alone, is part
of that word's core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tslm.corpus.vocabulary import EOS
from tslm.errors import CorpusError, InputError, NumberError, UnsupportedError
from tslm.files import whole
from tslm.inference.chain import is_exact
from tslm.inference.inputs import ModelLike, open_model, read_string
from tslm.inference.network import lift, lift_vector, require_chain
from tslm.models.recurrent.cells import ChainCell
from tslm.models.recurrent.model import RecurrentModel
from tslm.tables import text_table
from tslm.tensors.algebra import check_size
from tslm.tensors.canonical import cut_entropies
from tslm.tensors.train import TensorTrain

MEMORY_LIMIT = 2**30
"""Bytes of all cores together."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Unrolled:
    """A model's recurrence as a tensor train, and what its cuts say.

    Example:
        >>> from tslm.models.recurrent.cells.gated import GatedConfig
        >>> from tslm.models.recurrent.config import RecurrentConfig
        >>> model = RecurrentModel(RecurrentConfig(cell=GatedConfig(), rank=8, embedding=8), vocabulary).eval()
        >>> found = unroll(model, "in the beginning", words=20)
        >>> found.train.ranks, found.error < 1e-5, len(found.at("the beginning in")) == len(vocabulary)
        ((9, 9, 9), True, True)
    """

    train: TensorTrain
    """Legs: a word of ``words`` in each place, then the next word, any of the vocabulary. Double precision."""
    words: tuple[str, ...]
    """What the legs count, in their order."""
    vocabulary: tuple[str, ...]
    """What the last leg counts."""
    sentence: tuple[str, ...] | None
    """The sentence it was made for."""
    model_logits: Float[Tensor, " V"] | None
    """The model's own logits behind that sentence, from its recurrence."""
    rule: Any

    @property
    def entropies(self) -> tuple[float, ...]:
        """The entanglement entropy of every cut in nats, all sentences of these words alike."""
        return tuple(cut_entropies(self.train))

    @property
    def centred_entropies(self) -> tuple[float, ...]:
        """The same with each next word's mean logit over all sentences taken off: what depends on the words read."""
        return tuple(cut_entropies(centre(self.train)))

    @property
    def logits(self) -> Float[Tensor, " V"] | None:
        """The train's entries at the sentence."""
        return None if self.sentence is None else self._entries(self.sentence)

    @property
    def error(self) -> float | None:
        """The largest difference between the train's logits of the sentence and the model's own."""
        if self.logits is None or self.model_logits is None:
            return None
        return float((self.logits - self.model_logits).abs().max())

    def at(self, sentence: str) -> Float[Tensor, " V"]:
        """Return the logits behind any sentence of as many of these words.

        Raises:
            CorpusError: it has another number of words, or one that has no place in the legs.
        """
        return self._entries(tuple(self.rule.split(sentence)))

    @property
    def unknown(self) -> tuple[str, ...]:
        """The words of the sentence that the model does not know; they were read as ``<unk>``."""
        known = set(self.vocabulary)
        return tuple(word for word in self.sentence or () if word not in known)

    def to_quimb(self) -> Any:
        """Return the train as ``quimb.tensor.MatrixProductState``.

        Raises:
            UnsupportedError: quimb is not installed.
        """
        from tslm.interop.quimb import train_to_quimb

        return train_to_quimb(self.train)

    def to_tensorly(self) -> Any:
        """Return the train as ``tensorly.tt_tensor.TTTensor``.

        Raises:
            UnsupportedError: TensorLy is not installed.
        """
        from tslm.interop.tensorly import train_to_tensorly

        return train_to_tensorly(self.train)

    def save(self, path: str | Path) -> None:
        """Write the cores as ``core_0``, ``core_1``, … of a safetensors file, or of an .npz file."""
        path = Path(path)
        cores = {f"core_{place}": core.contiguous() for place, core in enumerate(self.train.cores)}
        if path.suffix not in (".npz", ".safetensors"):
            raise InputError(
                f"{path} is neither .safetensors nor .npz; give a name that ends with one of them"
            )
        with whole(path) as temporary, temporary.open("wb") as file:
            if path.suffix == ".npz":
                arrays: dict[str, Any] = {name: core.numpy() for name, core in cores.items()}
                np.savez(file, **arrays)
            else:
                from safetensors.torch import save

                file.write(save(cores, metadata={"words": "\n".join(self.words)}))

    def as_json(self) -> dict[str, Any]:
        """Return sizes, entropies and, for a sentence, its likeliest next words as plain values."""
        best: list[dict[str, Any]] = []
        if self.logits is not None:
            log_V = self.logits.log_softmax(0)
            for place in log_V.argsort(descending=True)[:5].tolist():
                probability = math.exp(float(log_V[place]))
                best.append({"word": self.vocabulary[place], "probability": probability})
        return {
            "shape": list(self.train.shape),
            "ranks": list(self.train.ranks),
            "parameters": self.train.parameter_count,
            "words": list(self.words),
            "entropies": list(self.entropies),
            "centred_entropies": list(self.centred_entropies),
            "sentence": None if self.sentence is None else list(self.sentence),
            "unknown": list(self.unknown),
            "error": self.error,
            "next": best or None,
        }

    def __repr__(self) -> str:
        told = self.as_json()
        places = told["sentence"] or [f"word {place}" for place in range(1, len(told["shape"]))]
        rows = [
            [place, str(size), str(rank), f"{entropy:.3f}", f"{centred:.3f}"]
            for place, size, rank, entropy, centred in zip(
                places,
                told["shape"],
                told["ranks"],
                told["entropies"],
                told["centred_entropies"],
                strict=False,
            )
        ]
        lines = [text_table(["cut behind", "leg", "bond", "entropy", "centred"], rows, left=(0,))]
        lines.append(f"next word: a leg of {told['shape'][-1]:,}; {told['parameters']:,} numbers in all")
        if told["next"]:
            best = "  ".join(f"{entry['word']} {entry['probability']:.3f}" for entry in told["next"])
            lines += [best, f"logits differ from the model's own by at most {told['error']:.1e}"]
        return "\n".join(lines)

    def _entries(self, words: tuple[str, ...]) -> Float[Tensor, " V"]:
        if len(words) != len(self.train) - 1:
            raise CorpusError(f"a sentence of {len(words)} words; the train is of {len(self.train) - 1}")
        state_R = torch.ones(1, dtype=self.train.dtype)
        for word, core in zip(words, self.train.cores, strict=False):
            if word not in self.words:
                raise CorpusError(f"{word!r} has no place in the legs; make the train of a sentence with it")
            state_R = state_R @ core[:, self.words.index(word)]
        return state_R @ self.train.cores[-1][:, :, 0]


def unroll(
    model: ModelLike, sentence: str | None = None, *, length: int | None = None, words: int = 50
) -> Unrolled:
    """Eq. 17. Return a trained exact model as the tensor train of all sentences of n words.

    Args:
        model: a model, or its run folder: one layer of a pure, biased or bounded TSLM, or of a gated model, whose state
            a matrix or a linear output gate reads.
        sentence: whose length the train has, and whose words are among its legs.
        length: n, where no sentence is given.
        words: how many of the most frequent words are in the legs besides.

    Raises:
        UnsupportedError: the model is no exact tensor network.
        InputError: neither a sentence nor a length was given, or both.
        SizeLimitError: the cores would take more than 1 GiB.
    """
    opened = open_model(model)
    recurrent, cell = require_chain(opened)
    if not is_exact(recurrent, cell):
        raise UnsupportedError(
            "the model's logits are no contraction of one chain of tensors: its cell is normalised, or tanh, products "
            "or a mixture of softmaxes read its state; give a pure, biased, bounded or gated one with a softmax"
        )
    if (sentence is None) == (length is None):
        raise InputError("give a sentence or a length, and not both")
    if words < 0 or (length is not None and length < 1):
        raise NumberError(f"{words} words and length {length}; expected 0 or more, and 1 or more")
    read = None if sentence is None else tuple(opened.rule.split(read_string(sentence, "sentence")))
    if read is not None and not read:
        raise CorpusError("the sentence has no word; give at least one")
    vocabulary = opened.vocabulary
    # A word that the model does not know is read as <unk>; its leg keeps the name it was given.
    frequent = [word for word in vocabulary.words if word != EOS][:words]
    names = tuple(dict.fromkeys([*(read or ()), *frequent]))
    if not names:
        raise NumberError("no word for the legs; give a sentence, or words=1 or more")
    ids_X = torch.from_numpy(vocabulary.encode(list(names)).astype(np.int64))
    places = len(read) if read is not None else length or 0
    cores = make_cores(recurrent, cell, ids_X, places)
    logits = None if read is None else _read_logits(recurrent, vocabulary.encode(list(read)))
    return Unrolled(
        train=TensorTrain(cores),
        words=names,
        vocabulary=tuple(vocabulary.words),
        sentence=read,
        model_logits=logits,
        rule=opened.rule,
    )


def centre(train: TensorTrain) -> TensorTrain:
    """Return the train less its mean over all legs but the last."""
    state_R = torch.ones(1, dtype=train.dtype)
    for core in train.cores[:-1]:
        state_R = state_R @ core.mean(1)
    mean_V = state_R @ train.cores[-1][:, :, 0]
    ones = [torch.ones(1, size, 1, dtype=train.dtype) for size in train.shape[:-1]]
    return train - TensorTrain((*ones, mean_V[None, :, None]))


@torch.no_grad()
def make_cores(model: RecurrentModel, cell: ChainCell, ids_X: Tensor, places: int) -> tuple[Tensor, ...]:
    """Return a core for each place, bond × word × bond, and the one that reads the state out."""
    R, X = cell.rank + 1, len(ids_X)
    check_size([places, X, R, R], torch.float64, MEMORY_LIMIT, "the train", "take fewer words or places")
    words_XM = model.embed(ids_X)
    A_XRR, c_XR, _ = cell.operators(words_XM)
    lifted = torch.stack([lift(A, c) for A, c in zip(A_XRR.double(), c_XR.double(), strict=True)])
    begun_1R = cell.operators(model.embed(torch.tensor([model.vocabulary.eos_id])))[2]
    # Cores are bond before × word × bond behind, so matrices stand transposed.
    middle = lifted.permute(2, 0, 1)
    gated = middle
    if model.gate is not None:
        opened_XR = model.open_gate(words_XM).double()
        gated = middle * torch.cat([opened_XR, opened_XR.new_ones(X, 1)], 1)
    linear_MR = model.head.linear()
    assert linear_MR is not None  # noqa: S101 - an exact model has one
    output_VR = torch.cat([model.output_VM.double() @ linear_MR.double(), model.bias.double()[:, None]], 1)
    cores = [*[middle] * (places - 1), gated]
    cores[0] = torch.einsum("a,axb->xb", lift_vector(begun_1R[0].double()), cores[0])[None]
    return (*cores, output_VR.mT[:, :, None])


@torch.no_grad()
def _read_logits(model: RecurrentModel, ids_T: np.ndarray) -> Float[Tensor, " V"]:
    """Return the model's own logits behind a sentence, from its recurrence."""
    tokens_TB = torch.from_numpy(np.array([model.vocabulary.eos_id, *ids_T.tolist()], np.int64))[:, None]
    outputs_TBR, _ = model.read(tokens_TB, model.begin(1))
    latents_NKM, _ = model.head(outputs_TBR[-1])
    return torch.nn.functional.linear(latents_NKM[0, 0], model.output_VM, model.bias).double()
