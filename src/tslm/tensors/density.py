"""Density matrices of sequences: a language as a mixed state, and a tensor train as a pure one.

    >>> windows = torch.tensor([[0, 1], [0, 1], [1, 0], [1, 1]])
    >>> language = MixedState.from_windows(windows, size=2)  # ρ = Σ pᵢ |sᵢ⟩⟨sᵢ|
    >>> language.entropy(base=2)  # of orthogonal words: Shannon's
    1.5
    >>> language.mutual_information([0], [1], base=2)
    0.3113
    >>> blurred = MixedState.from_windows(windows, words_VM=torch.tensor([[1.0, 0.0], [0.8, 0.6]]))
    >>> blurred.entropy(base=2) < 1.5  # words that overlap are told apart less well
    True
    >>> language.fidelity(language)
    1.0

Words are unit vectors: one-hot, or rows of an embedding. ρ has Mᴺ rows; what is computed needs only the Gram matrix of
the S different windows, with the same eigenvalues, or ρ itself where that is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from tslm.errors import NumberError, ShapeError, SizeLimitError
from tslm.tensors.algebra import check_size, show
from tslm.tensors.canonical import entropy
from tslm.tensors.train import TensorTrain, check_shapes, inner, log_norm

MOST_ROWS = 6000
"""Of a matrix whose eigenvalues are asked for: about a minute on one core."""

MEMORY_LIMIT = 2**30


@dataclass(frozen=True)
class MixedState:
    """ρ = Σ pᵢ |sᵢ⟩⟨sᵢ| over S different windows sᵢ = w₁ ⊗ … ⊗ w_N, every word a unit vector."""

    windows_SN: Int[Tensor, "S N"]
    probabilities_S: Float[Tensor, " S"]
    words_VM: Shaped[Tensor, "V M"] | None
    """A unit row for each word; None where words are orthogonal."""
    size: int
    """V."""

    @classmethod
    def from_windows(
        cls,
        windows_SN: Int[Tensor, "S N"],
        *,
        probabilities_S: Float[Tensor, " S"] | None = None,
        words_VM: Shaped[Tensor, "V M"] | None = None,
        size: int | None = None,
    ) -> MixedState:
        """Return the mixture of windows, equal ones put together.

        Args:
            windows_SN: ids of words.
            probabilities_S: of each window, up to a common factor; all equal when left out.
            words_VM: vectors of all words, which are divided by their lengths; one-hot when left out.
            size: the number of words, where there are no vectors.

        Raises:
            ShapeError: there is no window, or nothing says how many words there are.
            NumberError: an id is no word, a weight is negative, a word's vector is zero.
        """
        if not windows_SN.numel() or (words_VM is None) == (size is None):
            raise ShapeError(
                f"windows {show(windows_SN)}: give at least one, with size for one-hot words or words_VM for others"
            )
        count = len(words_VM) if words_VM is not None else size or 0
        if int(windows_SN.min()) < 0 or int(windows_SN.max()) >= count:
            raise NumberError(
                f"ids from {int(windows_SN.min())} to {int(windows_SN.max())}; expected 0 to {count - 1}"
            )
        weights_S = torch.ones(len(windows_SN)) if probabilities_S is None else probabilities_S
        if float(weights_S.min()) < 0 or not float(weights_S.sum()) > 0:
            raise NumberError(
                f"weights from {float(weights_S.min()):.3g}; expected none below 0, and one above"
            )
        if words_VM is not None:
            lengths = words_VM.norm(dim=1, keepdim=True)
            if float(lengths.min()) == 0:
                raise NumberError(f"word {int(lengths[:, 0].argmin())} is the vector 0, which is no state")
            words_VM = (words_VM / lengths).to(torch.complex128 if words_VM.is_complex() else torch.float64)
        return cls(*_merge(windows_SN.long(), weights_S.double(), count), words_VM, count)

    @property
    def length(self) -> int:
        """N."""
        return self.windows_SN.shape[1]

    def reduce(self, positions: Sequence[int]) -> MixedState:
        """Return the state of some positions, the others traced out: of product states, just left out.

        Raises:
            ShapeError: there is no such position, or none was given.
        """
        chosen = sorted(set(positions))
        if not chosen or chosen[0] < 0 or chosen[-1] >= self.length:
            raise ShapeError(f"positions {list(positions)} of windows of {self.length} words, counted from 0")
        merged = _merge(self.windows_SN[:, chosen], self.probabilities_S, self.size)
        return MixedState(*merged, self.words_VM, self.size)

    def to_matrix(self, *, memory_limit: int = MEMORY_LIMIT) -> Shaped[Tensor, "D D"]:
        """Return ρ itself, Mᴺ × Mᴺ.

        Raises:
            SizeLimitError: it would take more memory than the limit.
        """
        rows = self._dimension
        dtype = torch.float64 if self.words_VM is None else self.words_VM.dtype
        check_size([rows, rows], dtype, memory_limit, "the density matrix", "ask for its entropy")
        vectors_SD = self._vectors() * self.probabilities_S.sqrt()[:, None]
        return vectors_SD.mT @ vectors_SD.conj()

    def probability(self, window_N: Int[Tensor, " N"]) -> float:
        """Return ⟨s|ρ|s⟩ = Σ pᵢ Π |⟨w_k, w_ik⟩|²: with one-hot words the share of the window, Claim 1."""
        overlaps_S = self._overlap(self.windows_SN, window_N[None].long())[:, 0]
        return float(self.probabilities_S @ overlaps_S.abs().square())

    def eigenvalues(self) -> Float[Tensor, " K"]:
        """Return the eigenvalues of ρ that are not zero, largest first.

        Raises:
            SizeLimitError: neither ρ nor the windows' Gram matrix is small enough.
        """
        if self.words_VM is None:
            return self.probabilities_S.sort(descending=True).values
        count = len(self.probabilities_S)
        if min(count, self._dimension) > MOST_ROWS:
            raise SizeLimitError(
                f"{count:,} different windows of {self.length} words in {self.words_VM.shape[1]} dimensions; "
                f"eigenvalues are found of at most {MOST_ROWS:,}: take shorter or fewer windows"
            )
        if self._dimension < count:
            matrix = self.to_matrix()
        else:
            roots_S = self.probabilities_S.sqrt()
            matrix = roots_S[:, None] * self._overlap(self.windows_SN, self.windows_SN) * roots_S
        return torch.linalg.eigvalsh(matrix).clamp(min=0).flip(0)

    def entropy(self, positions: Sequence[int] | None = None, *, base: float | int = math.e) -> float:
        """Return the von Neumann entropy −tr ρ ln ρ, of all positions or of some.

        >>> MixedState.from_windows(torch.tensor([[0], [1], [2], [3]]), size=4).entropy(base=2)
        2.0
        """
        state = self if positions is None else self.reduce(positions)
        return entropy(state.eigenvalues(), base=base)

    def mutual_information(
        self, one: Sequence[int], other: Sequence[int], *, base: float | int = math.e
    ) -> float:
        """Return S(A) + S(B) − S(AB): what positions A tell of positions B."""
        if set(one) & set(other):
            raise ShapeError(f"positions {list(one)} and {list(other)} overlap")
        both = self.entropy([*one, *other], base=base)
        return self.entropy(one, base=base) + self.entropy(other, base=base) - both

    def fidelity(self, other: MixedState) -> float:
        """Return (tr √(√ρ σ √ρ))², 1 for equal states and 0 for orthogonal ones.

        With ρ = X X̅ᵀ and σ = Y Y̅ᵀ it is the squared sum of the singular values of X̅ᵀ Y, which has a row per window of
        one and a column per window of the other. Of one-hot words it is (Σ √(pᵢ qᵢ))².

        Raises:
            ShapeError: the windows differ in length or the words in number or dimension.
        """
        if (self.length, self.size) != (other.length, other.size):
            raise ShapeError(
                f"windows of {self.length} of {self.size} words and of {other.length} of {other.size}; expected alike"
            )
        if self.words_VM is None and other.words_VM is None:
            both = torch.cat([self.windows_SN, other.windows_SN])
            _, places = torch.unique(both, dim=0, return_inverse=True)
            p, q = torch.zeros(2, int(places.max()) + 1, dtype=torch.float64)
            p[places[: len(self.windows_SN)]] = self.probabilities_S
            q[places[len(self.windows_SN) :]] = other.probabilities_S
            return float((p * q).sqrt().sum()) ** 2
        if max(len(self.windows_SN), len(other.windows_SN)) > MOST_ROWS:
            raise SizeLimitError(
                f"{len(self.windows_SN):,} and {len(other.windows_SN):,} windows; at most {MOST_ROWS:,}"
            )
        overlaps = self._overlap(self.windows_SN, other.windows_SN, other)
        product = self.probabilities_S.sqrt()[:, None] * overlaps * other.probabilities_S.sqrt()
        return float(torch.linalg.svdvals(product).sum()) ** 2

    @property
    def _dimension(self) -> int:
        width = self.size if self.words_VM is None else self.words_VM.shape[1]
        return width**self.length

    def _word_vectors(self) -> Tensor:
        return torch.eye(self.size, dtype=torch.float64) if self.words_VM is None else self.words_VM

    def _vectors(self) -> Tensor:
        """Return all windows as rows of Mᴺ entries."""
        words = self._word_vectors()
        rows = words[self.windows_SN[:, 0]]
        for k in range(1, self.length):
            rows = (rows[:, :, None] * words[self.windows_SN[:, k]][:, None, :]).flatten(1)
        return rows

    def _overlap(self, left: Tensor, right: Tensor, other: MixedState | None = None) -> Tensor:
        """Return ⟨sᵢ, sⱼ⟩ of windows, as products of those of their words."""
        first = self._word_vectors()
        second = first if other is None else other._word_vectors()
        if first.shape != second.shape:
            raise ShapeError(f"words {show(first)} and {show(second)}; expected the same space")
        gram = first.conj().to(torch.promote_types(first.dtype, second.dtype)) @ second.mT.to(
            torch.promote_types(first.dtype, second.dtype)
        )
        product = torch.ones(len(left), len(right), dtype=gram.dtype)
        for k in range(self.length):
            product = product * gram[left[:, k]][:, right[:, k]]
        return product


def reduced_density(
    train: TensorTrain, positions: Sequence[int], *, memory_limit: int = MEMORY_LIMIT
) -> Shaped[Tensor, "D D"]:
    """Return the density matrix of some positions of the pure state |T⟩/‖T‖, all others traced out.

    >>> bell = TensorTrain((torch.eye(2)[None], torch.eye(2)[..., None]))
    >>> reduced_density(bell, [0])
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]])

    Raises:
        ShapeError: there is no such position.
        SizeLimitError: it would take more memory than the limit.
    """
    chosen = set(positions)
    if not chosen or min(chosen) < 0 or max(chosen) >= len(train):
        raise ShapeError(f"positions {list(positions)} of a train of {len(train)} cores, counted from 0")
    kept = math.prod(train.shape[k] for k in chosen)
    widest = max(1, *train.ranks) if train.ranks else 1
    check_size(
        [kept, kept, widest, widest], train.dtype, memory_limit, "the density matrix", "take fewer positions"
    )
    # Rows and columns of ρ so far, and the two bonds of ⟨T| and |T⟩.
    seen = torch.ones(1, 1, 1, 1, dtype=train.dtype, device=train.cores[0].device)
    for k, core in enumerate(train.cores):
        core = core.to(train.dtype)
        if k in chosen:
            grown = torch.einsum("xyab,amc,bnd->xmyncd", seen, core, core.conj())
            seen = grown.flatten(0, 1).flatten(1, 2)
        else:
            seen = torch.einsum("xyab,amc,bmd->xycd", seen, core, core.conj())
        seen = seen / seen.abs().max().clamp(min=torch.finfo(train.dtype).tiny)
    matrix = seen[:, :, 0, 0]
    return matrix / matrix.diagonal().sum()


def state_mutual_information(
    train: TensorTrain, one: Sequence[int], other: Sequence[int], *, base: float | int = math.e
) -> float:
    """Return S(A) + S(B) − S(AB) of the pure state |T⟩/‖T‖: twice ln m for positions that are entangled as can be.

    >>> bell = TensorTrain((torch.eye(2)[None], torch.eye(2)[..., None]))
    >>> state_mutual_information(bell, [0], [1], base=2)
    2.0
    """
    if set(one) & set(other):
        raise ShapeError(f"positions {list(one)} and {list(other)} overlap")
    parts = [reduced_density(train, part) for part in (one, other, [*one, *other])]
    first, second, both = (entropy(torch.linalg.eigvalsh(part).clamp(min=0), base=base) for part in parts)
    return first + second - both


def state_fidelity(left: TensorTrain, right: TensorTrain) -> float:
    """Return |⟨a, b⟩|² / (‖a‖² ‖b‖²), the overlap of two pure states of any length.

    >>> from tslm.tensors import draw_train
    >>> a = draw_train((2, 3, 2), 2)
    >>> state_fidelity(a, -3 * a)
    1.0
    """
    check_shapes(left, right)
    logs = [log_norm(train) / len(train) for train in (left, right)]
    units = [
        TensorTrain(tuple(core * math.exp(-log) for core in train.cores))
        for train, log in zip((left, right), logs, strict=True)
    ]
    return min(1.0, float(inner(*units).abs()) ** 2)


def _merge(windows_SN: Tensor, weights_S: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the different windows and their shares."""
    length = windows_SN.shape[1]
    if size**length < 2**62:  # one number per window is sorted much faster than rows
        radix = size ** torch.arange(length - 1, -1, -1)
        keys, places = torch.unique(windows_SN @ radix, return_inverse=True)
        distinct = keys[:, None] // radix % size
    else:
        distinct, places = torch.unique(windows_SN, dim=0, return_inverse=True)
    shares = torch.zeros(len(distinct), dtype=torch.float64).index_add_(0, places, weights_S)
    kept = shares > 0
    return distinct[kept], shares[kept] / shares.sum()
