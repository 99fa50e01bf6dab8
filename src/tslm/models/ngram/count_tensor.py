"""Claims 1, 2. The n-gram model as a tensor, at the size of real corpora.

The tensor of order N has one axis per word of a window of N words, V + 1 entries each: the words and the
begin marker, which fills the window before the first word of a line. Every token of the corpus, ``<eos>``
included, ends exactly one window, and an entry of the tensor is the share of windows that read so. Nobody can
store (V + 1)ᴺ entries; the tree of the n-grams that occur holds the same tensor exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from tslm.config import check
from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RunError, ShapeError, SizeLimitError
from tslm.models.ngram.backoff import BackoffModel
from tslm.models.ngram.counting import MAX_ORDER, NgramCounts, count_corpus
from tslm.models.ngram.smoothing import BackoffTable, estimate_maximum_likelihood
from tslm.models.ngram.trie import MISSING, ROOT


@dataclass(frozen=True, kw_only=True)
class CountTensorConfig:
    """How n-grams are counted."""

    order: int = 3
    """N, the number of axes of the tensor, 1 to 7."""

    memory_gib: float | None = None
    """Count on disk, within about this much memory; counted in memory when left out."""

    def __post_init__(self) -> None:
        check(1 <= self.order <= MAX_ORDER, f"model.order = {self.order} must be 1 to {MAX_ORDER}")
        check(
            self.memory_gib is None or self.memory_gib >= 0.5,
            f"model.memory_gib = {self.memory_gib} must be 0.5 or more",
        )


@dataclass(frozen=True, kw_only=True)
class RecurrentForm:
    """Eq. 19. h_t = W h_{t−1} ⊙ U α_t with W h₀ = ``start``: then **1**ᵀh_t = p(first t words)."""

    W: Float[Tensor, "R R"]
    """Sparse: p(last word of the row's history | the column's history) where the one can follow the other."""

    U: Float[Tensor, "R V"]
    """Sparse: one where the row's history ends with the column's word."""

    start: Float[Tensor, "R"]
    """What stands for W h₀: the probabilities of the first word."""

    def read(self, tokens_T: Int[Tensor, "T"]) -> Float[Tensor, "T R"]:
        """Eq. 19. Return h_1 … h_T."""
        states: list[Tensor] = []
        moved = self.start
        for token in tokens_T:
            one_hot = torch.zeros(self.U.shape[1], dtype=self.U.dtype)
            one_hot[token] = 1
            states.append(moved * torch.mv(self.U, one_hot))
            moved = torch.mv(self.W, states[-1])
        return torch.stack(states)


class CountTensor(BackoffModel):
    """The maximum-likelihood n-gram model. As a language model it gives unseen words probability zero.

    Example:
        >>> tensor = CountTensor.fit(CountTensorConfig(order=3), corpus)
        >>> the_king = corpus.vocabulary.encode(["the", "king"])
        >>> tensor.conditional(the_king[None])  # p(king | the)
        array([0.0277])
    """

    kind: ClassVar[str] = "count-tensor"

    def __init__(self, table: BackoffTable, vocabulary: Vocabulary, counts: NDArray[np.integer]) -> None:
        """Make a model of its table and the counts behind it."""
        super().__init__(table, vocabulary)
        self.counts = counts

    @classmethod
    def fit(cls, config: CountTensorConfig, corpus: Corpus) -> CountTensor:
        """Count the training split of a corpus."""
        counts = count_corpus(corpus, corpus.vocabulary, order=config.order, memory_gib=config.memory_gib)
        model = cls.from_counts(counts, corpus.vocabulary)
        model.rule = corpus.rule
        return model

    @classmethod
    def from_counts(cls, counts: NgramCounts, vocabulary: Vocabulary) -> CountTensor:
        """Make the model of counts that are there already."""
        return cls(estimate_maximum_likelihood(counts), vocabulary, counts.counts)

    @property
    def byte_count(self) -> int:
        """How much memory (or mapped file) the arrays take."""
        return super().byte_count + self.counts.nbytes

    @cached_property
    def _running(self) -> NDArray[np.int64]:
        """The counts of all nodes before each node, so that a range of nodes is summed by one subtraction."""
        return np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])

    def joint(self, windows_BN: Int[np.ndarray, "B N"]) -> Float[np.ndarray, "B"]:
        """Eq. 11, Claim 1. Return the entry of the tensor at each window: ⟨T, w₁ ⊗ … ⊗ w_N⟩."""
        if windows_BN.shape[1] != self.order:
            raise ShapeError(
                f"windows of {windows_BN.shape[1]} words do not fit a tensor of order {self.order}"
            )
        return self.prefix(windows_BN)

    def prefix(self, words_BK: Int[np.ndarray, "B K"]) -> Float[np.ndarray, "B"]:
        """Eq. 14, Claim 2. Return ⟨T, w₁ ⊗ … ⊗ w_K ⊗ **1** ⊗ … ⊗ **1**⟩: the share of windows that begin so.

        Args:
            words_BK: the first 0 ≤ K ≤ N words; the word V is the begin marker.
        """
        trie = self.table.trie
        B, K = len(words_BK), words_BK.shape[1]
        size = trie.vocabulary_size
        if self.order < K:
            raise ShapeError(
                f"{K} words do not fit a tensor of order {self.order}: give at most {self.order}"
            )
        if words_BK.size and (words_BK.min() < 0 or words_BK.max() > size):
            raise ShapeError(f"word ids must lie between 0 and {size} (the begin marker); got {words_BK}")
        if K == 0:
            return np.ones(B)
        nodes = np.full(B, ROOT)
        only_markers = np.full(B, fill_value=True)
        for words in words_BK.T:
            marker = words == size
            found = trie.find(nodes, words)
            # Several markers in a row are one node; a marker after a word is no window.
            nodes = np.where(only_markers & marker, trie.begin, np.where(marker, MISSING, found))
            only_markers = only_markers & marker
        shares = np.zeros(B)
        low = np.maximum(nodes, ROOT)
        high = low + 1
        for depth in range(self.order - K + 1):
            if depth:
                low, high = trie.first_children[low], trie.first_children[high]
            # Where nothing but markers was read, the rest of the window may go on with any number of them.
            counted = np.where(only_markers, depth > 0, depth == self.order - K) & (nodes >= 0)
            shares += np.where(counted, self._running[high] - self._running[low], 0)
        return shares / self.counts[ROOT]

    def conditional(self, words_BK: Int[np.ndarray, "B K"]) -> Float[np.ndarray, "B"]:
        """Eq. 15. Return p(w_K | w₁ … w_{K−1}), a ratio of two inner products; NaN for an unseen history."""
        with np.errstate(invalid="ignore"):
            return self.prefix(words_BK) / self.prefix(words_BK[:, :-1])

    def to_tensor(self, limit: int = 2**27) -> Float[Tensor, "..."]:
        """Eq. 9. Return T itself, (V + 1)ᴺ entries, for a vocabulary small enough.

        Raises:
            SizeLimitError: more than ``limit`` entries.
        """
        trie = self.table.trie
        base = trie.vocabulary_size + 1
        if math.pow(base, self.order) > limit:
            raise SizeLimitError(
                f"{base}^{self.order} entries are more than {limit}: use joint, prefix or conditional"
            )
        tensor = np.zeros((base,) * self.order)
        for level in range(1, self.order + 1):
            nodes = np.arange(int(trie.levels[level]), int(trie.levels[level + 1]))
            words = trie.spell(nodes, level)
            complete = (words[:, 0] == base - 1) & (level > 1) | (level == self.order) & (
                words[:, -1] < base - 1
            )
            pads = np.full((int(complete.sum()), self.order - level), base - 1)
            entries = np.concatenate([pads, words[complete]], axis=1)
            tensor[tuple(entries.T)] = self.counts[nodes[complete]] / self.counts[ROOT]
        return torch.as_tensor(tensor)

    def recurrent_form(self) -> RecurrentForm:
        """Eq. 19. Return the same model as a sparse recurrent tensor: the state is the history.

        A history is N − 1 words, or all words from the begin of the line; after ``<eos>`` it is the begin
        marker, which therefore counts as ending with ``<eos>``. For N = 1 there is one state, W is 1 and U
        holds p(w).
        """
        trie, eos = self.table.trie, self.vocabulary.eos_id
        size = trie.vocabulary_size
        one = torch.ones(1, dtype=torch.float64)
        if self.order == 1:
            probability = torch.as_tensor(np.exp(self.table.log_probability[1 : size + 1]))
            return RecurrentForm(W=one[:, None].to_sparse(), U=probability[None].to_sparse(), start=one)
        # Every n-gram of full length is a step, and so is every shorter one from the begin of a line.
        marked = (np.arange(low, high) for low, high in trie.marked()[1:-1])
        edges = np.concatenate([np.arange(trie.context_count, trie.node_count), *marked])
        words = trie.last_words(edges)
        sources = trie.parents[edges]
        targets = np.where(words == eos, trie.begin, trie.successors(edges))
        states, places = np.unique(np.concatenate([sources, targets]), return_inverse=True)
        R = len(states)
        W = torch.sparse_coo_tensor(  # pyright: ignore[reportUnknownMemberType]
            torch.as_tensor(np.stack([places[len(edges) :], places[: len(edges)]])),
            torch.as_tensor(np.exp(self.table.log_probability[edges])),
            (R, R),
            check_invariants=True,
        ).coalesce()
        ends = np.where(states == trie.begin, eos, trie.last_words(states))
        U = torch.sparse_coo_tensor(  # pyright: ignore[reportUnknownMemberType]
            torch.as_tensor(np.stack([np.arange(R), ends])),
            torch.ones(R, dtype=torch.float64),
            (R, size),
            check_invariants=True,
        ).coalesce()
        before = torch.zeros(R, dtype=torch.float64)
        before[int(np.searchsorted(states, trie.begin))] = 1
        return RecurrentForm(W=W, U=U, start=torch.mv(W, before))

    @classmethod
    def _restore(cls, table: BackoffTable, vocabulary: Vocabulary, arrays: dict[str, Any]) -> CountTensor:
        if "counts" not in arrays or len(arrays["counts"]) != table.trie.node_count:
            raise RunError("the file of this count tensor has no counts that fit; train the run again")
        return cls(table, vocabulary, arrays["counts"])

    def _arrays(self) -> dict[str, Any]:
        return {**super()._arrays(), "counts": self.counts}
