"""Words that are spelt alike, so that what training learns of one it learns, in part, of the others."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

FEWEST = 3
"""How many words must share a part for it to count."""


def parts_of(word: str) -> set[str]:
    """Return what a word may share with others: endings, beginnings, possible stems, what hyphens join, its shape.

    Example:
        >>> sorted(parts_of("Talks"))
        ['-ks', '-lks', '-s', '=talk', '=talks', 'tal-', 'talk-', '~A']
        >>> parts_of("<unk>")
        set()
    """
    if word.startswith("<") and word.endswith(">"):
        return set()
    low, size = word.lower(), len(word)
    parts = {f"-{low[-n:]}" for n in range(1, 5) if size > n + 1}
    parts |= {f"{low[:n]}-" for n in range(3, 7) if size > n}
    parts |= {f"={low[:n]}" for n in range(max(4, size - 3), size + 1)}
    if "-" in low.strip("-"):
        parts |= {f"+{part}" for part in low.split("-") if part}
    shape = re.sub(r"\d+", "0", re.sub(r"[^\W\d_]+", lambda run: "a" if run[0].islower() else "A", word))
    return parts | {f"~{shape}"}


class Spelling:
    """The matrix that says which words (V) share which parts (C); each word's row has length one.

    Args:
        words: the vocabulary.
        device: where the vectors are.
    """

    def __init__(self, words: Sequence[str], device: torch.device | None = None) -> None:
        sharing: dict[str, list[int]] = {}
        for number, word in enumerate(words):
            for part in sorted(parts_of(word)):
                sharing.setdefault(part, []).append(number)
        # A part of most words, such as the shape of a word in small letters, tells nothing.
        kept = [numbers for numbers in sharing.values() if FEWEST <= len(numbers) <= len(words) / 2]
        word_E = torch.tensor([number for numbers in kept for number in numbers], dtype=torch.int64)
        sizes_C = torch.tensor([len(numbers) for numbers in kept], dtype=torch.int64)
        part_E = torch.repeat_interleave(torch.arange(len(kept)), sizes_C)
        sizes_V = torch.bincount(word_E, minlength=len(words))
        share_E = sizes_V[word_E].rsqrt()
        order_E = torch.argsort(word_E, stable=True)
        self.parts = len(kept)
        self._words = _Bags(word_E, sizes_C, share_E, device)
        self._parts = _Bags(part_E[order_E], sizes_V, share_E[order_E], device)

    def gather(self, words_VM: Float[Tensor, "V M"]) -> Float[Tensor, "C M"]:
        """Return what each part has of its words."""
        return self._words.sum(words_VM)

    def spread(self, parts_CM: Float[Tensor, "C M"]) -> Float[Tensor, "V M"]:
        """Return what each word has of its parts."""
        return self._parts.sum(parts_CM)


class _Bags:
    """Weighted sums of rows, one for each bag of them."""

    def __init__(
        self, rows_E: Tensor, sizes_N: Tensor, weight_E: Tensor, device: torch.device | None
    ) -> None:
        self._rows_E, self._weight_E = rows_E.to(device), weight_E.to(device)
        self._starts_N = (sizes_N.cumsum(0) - sizes_N).to(device)

    def sum(self, table: Float[Tensor, "X M"]) -> Float[Tensor, "N M"]:
        weight_E = self._weight_E.to(table.dtype)
        return F.embedding_bag(
            self._rows_E, table, self._starts_N, mode="sum", per_sample_weights=weight_E, sparse=False
        )
