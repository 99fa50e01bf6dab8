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
        self.by_part = Bags(word_E, sizes_C, share_E, device)
        """For each part its words."""
        self.by_word = Bags(part_E[order_E], sizes_V, share_E[order_E], device)
        """For each word its parts."""

    def gather(self, words_VM: Float[Tensor, "V M"]) -> Float[Tensor, "C M"]:
        """Return what each part has of its words."""
        return self.by_part.sum(words_VM)

    def spread(self, parts_CM: Float[Tensor, "C M"]) -> Float[Tensor, "V M"]:
        """Return what each word has of its parts."""
        return self.by_word.sum(parts_CM)


class Bags:
    """Weighted sums of rows, one for each bag of them.

    Args:
        rows_E: the rows that are in a bag, bag after bag.
        sizes_N: how many each bag has.
        weight_E: the weight of each.
        device: where the vectors are.
    """

    def __init__(
        self, rows_E: Tensor, sizes_N: Tensor, weight_E: Tensor, device: torch.device | None
    ) -> None:
        self.rows_E, self._weight_E = rows_E.to(device), weight_E.to(device)
        self.starts = F.pad(sizes_N.cumsum(0), (1, 0)).to(device)
        """Where each bag begins, and after the last where it ends."""

    def weight_E(self, like: Tensor) -> Tensor:
        """Return the weights, in the precision of a table."""
        return self._weight_E.to(like.dtype)

    def sum(self, table: Float[Tensor, "X M"]) -> Float[Tensor, "N M"]:
        """Return the sum of each bag."""
        return F.embedding_bag(
            self.rows_E,
            table,
            self.starts,
            mode="sum",
            per_sample_weights=self.weight_E(table),
            include_last_offset=True,
        )
