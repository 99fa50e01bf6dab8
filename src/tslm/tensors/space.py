"""Words and sentences in tensor space: Eqs. 4–15, the two claims, explicitly and in factored form.

The explicit form builds all mⁿ entries and is meant for small spaces: it refuses to take more memory than a limit. The
factored form keeps a sentence as its n vectors and the language as a weighted list of sentences, costs n·m numbers per
sentence, and gives the same values for any length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from tslm.errors import NumberError, ShapeError
from tslm.tensors.algebra import check_finite, check_size, inner_product, rank_one, show

MEMORY_LIMIT = 2**30
"""Bytes an explicit tensor may take unless the caller says otherwise."""

FACTORED = "use MixedRepresentation, which never builds it"


def one_hot(ids_N: Int[Tensor, "*N"], size: int) -> Float[Tensor, "*N V"]:
    """Eqs. 4, 22. Return words as basis vectors: the coefficients α of word d are 1 at d and 0 elsewhere, in float64.

    Raises:
        NumberError: an id outside the vocabulary.
    """
    if ids_N.numel() and (int(ids_N.min()) < 0 or int(ids_N.max()) >= size):
        raise NumberError(
            f"ids from {int(ids_N.min())} to {int(ids_N.max())}; expected 0 to {size - 1}, the vocabulary"
        )
    return torch.nn.functional.one_hot(ids_N.long(), size).double()


def embed(ids_N: Int[Tensor, "*N"], coefficients_VM: Float[Tensor, "V M"]) -> Float[Tensor, "*N M"]:
    """Eq. 4. Return words as combinations Σ α_d e_d of M basis vectors: one row of coefficients per word.

    Raises:
        NumberError: an id outside the vocabulary.
    """
    if ids_N.numel() and (int(ids_N.min()) < 0 or int(ids_N.max()) >= len(coefficients_VM)):
        raise NumberError(
            f"ids from {int(ids_N.min())} to {int(ids_N.max())} for coefficients {show(coefficients_VM)}"
        )
    return coefficients_VM[ids_N.long()]


def sentence_tensor(
    vectors_NM: Float[Tensor, "N M"], *, memory_limit: int = MEMORY_LIMIT
) -> Float[Tensor, "..."]:
    """Eqs. 5, 6, 7, 24, 25. Return s = w₁ ⊗ … ⊗ wₙ, whose coefficients A are of rank one: Mᴺ entries.

    Raises:
        SizeLimitError: it would take more memory than the limit.
    """
    words, size = vectors_NM.shape
    check_size([size] * words, vectors_NM.dtype, memory_limit, "the sentence tensor", FACTORED)
    return rank_one(list(vectors_NM))


def project(coefficients: Shaped[Tensor, "..."], sentence: Shaped[Tensor, "..."]) -> Float[Tensor, ""]:
    """Eqs. 10, 11, 27. Return p(s) = ⟨s, c⟩ = Σ T·A from the explicit tensors.

    Raises:
        ShapeError: T and A differ in shape.
    """
    return inner_product(coefficients, sentence)


def pad_prefix(vectors_IM: Float[Tensor, "I M"], length: int) -> Float[Tensor, "N M"]:
    """Eqs. 14, 28. Return w₁ ⊗ … ⊗ w_i ⊗ **1** ⊗ … ⊗ **1** as its N vectors: the prefix padded with all-ones vectors.

    Raises:
        ShapeError: the prefix is longer than the sentence.
    """
    given, size = vectors_IM.shape
    if given > length:
        raise ShapeError(f"a prefix of {given} words {show(vectors_IM)} for sentences of {length} words")
    return torch.cat([vectors_IM, vectors_IM.new_ones(length - given, size)])


def count_conditional(sentences_SN: Int[Tensor, "S N"], prefix_I: Int[Tensor, "I"]) -> float:
    """Eq. 13. Return count(w₁ … w_i) / count(w₁ … w_{i−1}) over the beginnings of the sentences; 0 for 0/0."""
    length = len(prefix_I)
    if not 1 <= length <= sentences_SN.shape[1]:
        raise ShapeError(
            f"a prefix of {length} words for sentences {show(sentences_SN)}; expected 1 to all of them"
        )
    before = (sentences_SN[:, : length - 1] == prefix_I[:-1]).all(1)
    both = before & (sentences_SN[:, length - 1] == prefix_I[-1])
    return int(both.sum()) / int(before.sum()) if bool(before.any()) else 0.0


@dataclass(frozen=True)
class MixedRepresentation:
    """Eq. 8. The language c = Σ pᵢ sᵢ as S weighted sentences of N vectors each, never as Mᴺ entries.

    Example:
        >>> language = MixedRepresentation.from_sentences(torch.tensor([[0, 1], [0, 1], [1, 0]]), size=2)
        >>> language.probability(one_hot(torch.tensor([0, 1]), 2))
        tensor(0.6667, dtype=torch.float64)
    """

    probabilities_S: Tensor
    vectors_SNM: Tensor

    def __post_init__(self) -> None:
        if self.vectors_SNM.ndim != 3 or self.probabilities_S.shape != self.vectors_SNM.shape[:1]:
            raise ShapeError(
                f"probabilities {show(self.probabilities_S)} and sentences {show(self.vectors_SNM)} do not fit; "
                "expected (S) and (S×N×M)"
            )
        if 0 in self.vectors_SNM.shape:
            raise ShapeError(
                f"sentences {show(self.vectors_SNM)}; expected at least one sentence of one word"
            )
        check_finite(self.vectors_SNM, "the sentences' vectors")
        total = float(self.probabilities_S.sum())
        if bool((self.probabilities_S < 0).any()) or not math.isclose(total, 1, rel_tol=1e-9):
            raise NumberError(f"probabilities sum to {total}; expected numbers from 0 on that sum to 1")

    @classmethod
    def from_sentences(
        cls,
        sentences_SN: Int[Tensor, "S N"],
        *,
        size: int | None = None,
        coefficients_VM: Float[Tensor, "V M"] | None = None,
    ) -> MixedRepresentation:
        """Eq. 8. Return the mixture of the sentences of a corpus, equal sentences put together.

        Args:
            sentences_SN: ids, all sentences of one length.
            size: the vocabulary, for one-hot words.
            coefficients_VM: the words' coefficients, for embedded words.
        """
        if (size is None) == (coefficients_VM is None):
            raise ShapeError("give size for one-hot words or coefficients_VM for embedded ones, and not both")
        distinct, counts = torch.unique(sentences_SN, dim=0, return_counts=True)
        vectors = (
            one_hot(distinct, size or 0) if coefficients_VM is None else embed(distinct, coefficients_VM)
        )
        return cls((counts.double() / counts.sum()).to(vectors.dtype), vectors)

    @property
    def length(self) -> int:
        """N."""
        return self.vectors_SNM.shape[1]

    def to_tensor(self, *, memory_limit: int = MEMORY_LIMIT) -> Float[Tensor, "..."]:
        """Eqs. 9, 26. Return T, the coefficients of c: Mᴺ entries.

        Raises:
            SizeLimitError: it would take more memory than the limit; the message names it.
        """
        _, words, size = self.vectors_SNM.shape
        check_size(
            [size] * words,
            self.vectors_SNM.dtype,
            memory_limit,
            "the tensor of the language",
            "use probability, which never builds it",
        )
        total = self.vectors_SNM.new_zeros([size] * words)
        for probability, vectors_NM in zip(self.probabilities_S, self.vectors_SNM, strict=True):
            total += probability * rank_one(list(vectors_NM))
        return total

    def probability(self, vectors_NM: Float[Tensor, "N M"]) -> Float[Tensor, ""]:
        """Eqs. 10, 23. Return ⟨s, c⟩ = Σᵢ pᵢ Πₖ ⟨wₖ, wᵢₖ⟩ in factored form.

        Claim 1: with one-hot words this is the share of the sentence in the corpus.

        Raises:
            ShapeError: the sentence is of another length or another space.
        """
        if vectors_NM.shape != self.vectors_SNM.shape[1:]:
            raise ShapeError(
                f"a sentence {show(vectors_NM)} for a language of sentences {show(self.vectors_SNM)}"
            )
        matches_SN = torch.einsum("nm,snm->sn", vectors_NM, self.vectors_SNM)
        return self.probabilities_S @ matches_SN.prod(1)

    def log_probability(
        self, vectors_NM: Float[Tensor, "N M"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Eq. 10. Return sign and ln|⟨s, c⟩|, for sentences so long that the product leaves the range of numbers."""
        matches_SN = torch.einsum("nm,snm->sn", vectors_NM, self.vectors_SNM)
        logs_S = matches_SN.abs().log().sum(1) + self.probabilities_S.log()
        signs_S = matches_SN.sign().prod(1)
        top = logs_S.max()
        if not bool(torch.isfinite(top)):
            return torch.zeros_like(top), top
        total = (signs_S * (logs_S - top).exp()).sum()
        return total.sign(), top + total.abs().log()

    def prefix_probability(self, vectors_IM: Float[Tensor, "I M"]) -> Float[Tensor, ""]:
        """Eq. 32, Claim 2. Return p(w₁ … w_i) = ⟨w₁ⁱ, c⟩, the prefix padded with all-ones vectors."""
        return self.probability(pad_prefix(vectors_IM, self.length))

    def conditional_probability(self, vectors_IM: Float[Tensor, "I M"]) -> Float[Tensor, ""]:
        """Eq. 15. Return p(w_i | w₁ … w_{i−1}) as the ratio of two inner products; 0 where the history never occurs."""
        history = self.prefix_probability(vectors_IM[:-1])
        return (
            self.prefix_probability(vectors_IM) / history if bool(history != 0) else torch.zeros_like(history)
        )

    def chain_probability(self, vectors_NM: Float[Tensor, "N M"]) -> Float[Tensor, ""]:
        """Eq. 12. Return p(w₁) Π p(w_i | w₁ … w_{i−1}), which equals ``probability``."""
        product = torch.ones_like(self.probabilities_S[0])
        for length in range(1, len(vectors_NM) + 1):
            product = product * self.conditional_probability(vectors_NM[:length])
        return product


def entry_probability(coefficients: Shaped[Tensor, "..."], sentence_N: Int[Tensor, "N"]) -> Float[Tensor, ""]:
    """Claim 1. Return p(s) = T[d₁ … dₙ], the entry at the words of a sentence (one-hot words)."""
    if len(sentence_N) != coefficients.ndim:
        raise ShapeError(f"a sentence of {len(sentence_N)} words for a tensor {show(coefficients)}")
    return coefficients[tuple(sentence_N.tolist())]


def marginal_probability(
    coefficients: Shaped[Tensor, "..."], prefix_I: Int[Tensor, "I"]
) -> Float[Tensor, ""]:
    """Eqs. 29, 30, 31. Return p(w₁ … w_i) = Σ T[d₁ … d_i, :, …] over all endings (one-hot words)."""
    if len(prefix_I) > coefficients.ndim:
        raise ShapeError(f"a prefix of {len(prefix_I)} words for a tensor {show(coefficients)}")
    return coefficients[tuple(prefix_I.tolist())].sum()
