"""An n-gram tensor, decomposed and turned back into a language model.

**Tensor.** The ``words`` most frequent words are classes of their own, all others one class more. T holds the share
of every window of ``order`` classes in the training text (Claim 1); the windows of a line begin with ``<eos>``.

**Scaling.** Plain T is ruled by the few commonest words. With ``scaling = "margins"`` what is decomposed is
K = T / √(p ⊗ … ⊗ p), p the class frequencies: the geometry of the χ² distance from independence. For order 2 rank 1
is then the unigram model, and every truncation keeps the row sums of T; but its first terms go to rare pairs that
always stand together, so low ranks of plain T make better models.

**Renormalisation.** A truncated tensor is no distribution: entries can be negative and rows need not sum to what they
should. For each history the row is scaled back, negative entries are set to zero, and the rest is divided by its sum.
What that removed is reported as ``clipped``, the share of |T̂| that was negative. The result is mixed with the unigram
model, μ·row + (1 − μ)·unigram, so that no word is impossible; μ is found on the validation split by maximum
likelihood. A row with nothing positive is the unigram model.

**Words.** p(word | history) = p(class | classes of the history) · p(word | class), the last factor from counts. So
every word of the vocabulary has a probability, and perplexities compare with those of all other models.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from tslm.config import check
from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RunError
from tslm.models.base import LanguageModel
from tslm.models.ngram.class_tensor import NgramTensor, Scaling, read_windows, start_history
from tslm.models.weights import load_weights, save_weights
from tslm.tensors.decompose import RecursiveDecomposition, decompose, maximum_rank


@dataclass(frozen=True, kw_only=True)
class CompressedConfig:
    """Which n-gram tensor is decomposed, and how far."""

    order: int = 2
    """N, the number of modes: 2 for bigrams, 3 for trigrams."""

    words: int = 2000
    """How many of the most frequent words have a row of their own."""

    rank: int = 64
    """r of Eq. 16."""

    scaling: Scaling = "none"
    """``none`` decomposes T as it is, ``margins`` divides by the square roots of the frequencies first."""

    def __post_init__(self) -> None:
        check(2 <= self.order <= 4, f"model.order = {self.order} must be 2 to 4")
        check(self.words >= 1, f"model.words = {self.words} must be 1 or more")
        check(self.rank >= 1, f"model.rank = {self.rank} must be 1 or more")


class CompressedModel(LanguageModel[Tensor]):
    """An n-gram model whose tensor is stored as a recursive decomposition (Eq. 16). The state is the history."""

    kind: ClassVar[str] = "compressed"

    def __init__(
        self,
        vocabulary: Vocabulary,
        form: RecursiveDecomposition | Tensor,
        scale_C: Float[Tensor, "C"],
        unigram_V: Float[Tensor, "V"],
        weight: float,
    ) -> None:
        self.vocabulary = vocabulary
        self.form = form
        self.scale_C = scale_C
        self.unigram_V = unigram_V
        self.weight = weight
        """μ, the share of the tensor against the unigram model."""
        self.order = len(form.shape)
        classes = len(scale_C)
        self.class_V = torch.arange(len(vocabulary)).clamp_max(classes - 1)
        share_C = torch.zeros(classes, dtype=torch.float64).index_add_(0, self.class_V, unigram_V)
        self.within_V = torch.nan_to_num(unigram_V / share_C[self.class_V])

    @classmethod
    def fit(cls, config: CompressedConfig, corpus: Corpus) -> CompressedModel:
        """Count, decompose, and find μ on the validation split."""
        ngrams = NgramTensor.count(corpus, config.order, config.words, config.scaling)
        rank = min(config.rank, maximum_rank(ngrams.scaled.shape))
        return cls.wrap(ngrams, decompose(ngrams.scaled, rank=rank).form, corpus)

    @classmethod
    def wrap(
        cls, ngrams: NgramTensor, form: RecursiveDecomposition | Tensor, corpus: Corpus
    ) -> CompressedModel:
        """Return the model of a decomposed tensor, or of the tensor itself, with μ from the validation split."""
        model = cls(corpus.vocabulary, form, ngrams.scale_C, ngrams.unigram_V, weight=1.0)
        model.weight = model.find_weight(corpus.splits["valid"])
        model.rule = corpus.rule
        return model

    def find_weight(self, ids: NDArray[np.int32]) -> float:
        """Return the μ of greatest likelihood on a text, by expectation maximisation."""
        tokens = torch.from_numpy(np.asarray(ids, dtype=np.int64))[None]
        tensor_T = self._tensor_probability(tokens, self.start(1))[0]
        unigram_T = self.unigram_V[tokens[0]]
        possible = (tensor_T + unigram_T) > 0
        tensor_T, unigram_T = tensor_T[possible], unigram_T[possible]
        weight = 0.5
        for _ in range(200):
            mixed = weight * tensor_T
            after = float((mixed / (mixed + (1 - weight) * unigram_T)).mean())
            if abs(after - weight) < 1e-7:
                break
            weight = after
        # A word the tensor gives nothing must stay possible, and the other way round.
        return min(max(weight, 1e-4), 1 - 1e-4)

    def start(self, batch: int) -> Int[Tensor, "B H"]:
        """Return histories of ``<eos>``, as at the beginning of a line."""
        return start_history(batch, self.order, self.vocabulary)

    def score(
        self, tokens_BT: Int[np.ndarray, "B T"], state: Int[Tensor, "B H"]
    ) -> tuple[Float[np.ndarray, "B T"], Int[Tensor, "B H"]]:
        """Return ln p of each token; equal histories are worked out once."""
        scores_BT, after = self._score(torch.from_numpy(tokens_BT.astype(np.int64)), state)
        return scores_BT.numpy(), after

    def _score(self, tokens_BT: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        tensor_BT = self._tensor_probability(tokens_BT, state)
        mixed_BT = self.weight * tensor_BT + (1 - self.weight) * self.unigram_V[tokens_BT]
        windows = read_windows(tokens_BT, state, self.vocabulary.eos_id)
        after = windows[:, -1, 1:] if tokens_BT.shape[1] else state
        after = torch.where(
            (after == self.vocabulary.eos_id).flip(1).cumsum(1).flip(1) > 0, self.vocabulary.eos_id, after
        )
        return mixed_BT.log(), after

    def predict(self, state: Int[Tensor, "B H"]) -> Float[np.ndarray, "B V"]:
        """Return ln p of every word after each history."""
        rows_BC = self.read_rows(self.class_V[state])
        words_BV = rows_BC[:, self.class_V] * self.within_V
        return (self.weight * words_BV + (1 - self.weight) * self.unigram_V).log().numpy()

    def read_rows(self, classes_BH: Int[Tensor, "B H"]) -> Float[Tensor, "B C"]:
        """Eq. 15. Return p(next class | classes of the history): the row of T̂, scaled back, clipped, normalised."""
        rows_BC = (read_form(self.form, classes_BH) * self.scale_C).clamp_min(0)
        sums_B = rows_BC.sum(1, keepdim=True)
        unigram_C = torch.zeros_like(self.scale_C).index_add_(0, self.class_V, self.unigram_V)
        # A history that occurs has a share of at least one in the tokens: far less is rounding, not knowledge.
        return torch.where(sums_B > 1e-12, rows_BC / sums_B.clamp_min(1e-300), unigram_C)

    def clipped(self) -> float:
        """Return the share of |T̂| that is negative and set to zero."""
        classes = len(self.scale_C)
        negative = total = 0.0
        for first in range(classes):
            block = (
                self.form[first]
                if isinstance(self.form, Tensor)
                else self.form.to_tensor(slice(first, first + 1))
            )
            block = block.reshape([classes] * (self.order - 1)) * self.scale_C[first]
            for mode in range(self.order - 1):
                block = block * self.scale_C.reshape([-1, *[1] * (self.order - 2 - mode)])
            negative -= float(block.clamp_max(0).sum())
            total += float(block.abs().sum())
        return negative / total if total else 0.0

    @property
    def parameter_count(self) -> int:
        """Numbers of the decomposition, the unigram frequencies, the scale of each class, and μ."""
        stored = self.form.numel() if isinstance(self.form, Tensor) else self.form.parameter_count
        return stored + len(self.unigram_V) + len(self.scale_C) + 1

    def save(self, folder: Path) -> None:
        """Write ``model.safetensors``."""
        tensors = {
            "scale": self.scale_C,
            "unigram": self.unigram_V,
            "weight": torch.tensor(self.weight, dtype=torch.float64),
        }
        if isinstance(self.form, Tensor):
            tensors["tensor"] = self.form
        else:
            tensors["lambda"] = self.form.weights
            tensors |= {f"W.{k}": link for k, link in enumerate(self.form.W)}
            tensors |= {f"U.{k}": factor for k, factor in enumerate(self.form.U)}
        save_weights(folder, tensors)

    @classmethod
    def load(cls, folder: Path, config: Any, vocabulary: Vocabulary) -> CompressedModel:
        """Read ``model.safetensors``."""
        tensors = load_weights(folder, {"unigram": (torch.float64, (len(vocabulary),))})
        try:
            if "tensor" in tensors:
                form = tensors["tensor"]
            else:
                order = sum(name.startswith("U.") for name in tensors)
                form = RecursiveDecomposition(
                    tensors["lambda"],
                    tuple(tensors[f"W.{k}"] for k in range(order - 1)),
                    tuple(tensors[f"U.{k}"] for k in range(order)),
                )
            return cls(vocabulary, form, tensors["scale"], tensors["unigram"], float(tensors["weight"]))
        except (KeyError, ValueError) as error:
            raise RunError(
                f"{folder}: the model's tensors do not fit together ({error}); train it again"
            ) from error

    def _tensor_probability(self, tokens_BT: Tensor, state: Tensor) -> Float[Tensor, "B T"]:
        """Return p(token | history) by the tensor alone."""
        windows = read_windows(tokens_BT, state, self.vocabulary.eos_id).reshape(-1, self.order)
        distinct, place = torch.unique(self.class_V[windows[:, :-1]], dim=0, return_inverse=True)
        targets = self.class_V[windows[:, -1]]
        found = torch.zeros(len(targets), dtype=torch.float64)
        block = max(1, 2**22 // len(self.scale_C))
        for begin in range(0, len(distinct), block):
            inside = (place >= begin) & (place < begin + block)
            rows_BC = self.read_rows(distinct[begin : begin + block])
            found[inside] = rows_BC[place[inside] - begin, targets[inside]]
        return (found * self.within_V[windows[:, -1]]).reshape(tokens_BT.shape)


def read_form(form: RecursiveDecomposition | Tensor, classes_BH: Int[Tensor, "B H"]) -> Float[Tensor, "B C"]:
    """Eq. 19. Return the rows of a tensor at given histories, by the recursion: no tensor is built."""
    if isinstance(form, Tensor):
        return form[tuple(classes_BH.unbind(1))]
    state = torch.ones_like(form.U[0][:, classes_BH[:, 0]]).mT
    for mode, link in enumerate(form.W):
        state = (state * form.U[mode][:, classes_BH[:, mode]].mT) @ link.mT
    return (state * form.weights) @ form.U[-1]
