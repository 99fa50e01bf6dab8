"""The n-gram tensor over classes of words, explicit: the ``words`` most frequent ones, and all others as one class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.tensors.algebra import check_size

MEMORY_LIMIT = 2 * 2**30
"""Bytes the explicit n-gram tensor may take."""

Scaling = Literal["margins", "none"]


@dataclass(frozen=True)
class NgramTensor:
    """The scaled n-gram tensor of a corpus and what is needed to go back to words."""

    scaled: Tensor
    """K, or T without scaling; one mode of C classes per word of the window."""
    scale_C: Tensor
    """What each mode was divided by."""
    class_V: Tensor
    """The class of each word."""
    unigram_V: Tensor
    """Frequency of each word."""

    @classmethod
    def count(cls, corpus: Corpus, order: int, words: int, scaling: Scaling) -> NgramTensor:
        """Eq. 13. Count the windows of the training split.

        Raises:
            SizeLimitError: the tensor would take more than 2 GiB; the message names its size.
        """
        size = len(corpus.vocabulary)
        classes = size if words >= size else words + 1
        shape = [classes] * order
        check_size(
            shape,
            torch.float64,
            MEMORY_LIMIT,
            f"the {order}-gram tensor of {words} words",
            "take fewer words (--words)",
        )
        ids = torch.from_numpy(np.asarray(corpus.splits["train"], dtype=np.int64))
        counts_V = torch.bincount(ids, minlength=size).double()
        class_V = torch.arange(size).clamp_max(classes - 1)
        windows = read_windows(
            ids[None], start_history(1, order, corpus.vocabulary), corpus.vocabulary.eos_id
        )
        flat = torch.zeros(len(ids), dtype=torch.int64)
        for column in class_V[windows[0]].unbind(-1):
            flat = flat * classes + column
        shares = torch.bincount(flat, minlength=classes**order).double().reshape(shape) / len(ids)
        frequency_C = torch.zeros(classes, dtype=torch.float64).index_add_(0, class_V, counts_V) / len(ids)
        scale_C = (
            frequency_C.clamp_min(1 / len(ids)).sqrt()
            if scaling == "margins"
            else torch.ones_like(frequency_C)
        )
        for mode in range(order):
            shares /= scale_C.reshape([-1, *[1] * (order - 1 - mode)])
        return cls(shares, scale_C, class_V, counts_V / counts_V.sum())


def start_history(batch: int, order: int, vocabulary: Vocabulary) -> Int[Tensor, "B H"]:
    """Return histories of ``<eos>``."""
    return torch.full((batch, order - 1), vocabulary.eos_id)


def read_windows(tokens_BT: Int[Tensor, "B T"], state: Int[Tensor, "B H"], eos: int) -> Int[Tensor, "B T N"]:
    """Return each token behind its history; what lies before an ``<eos>`` is forgotten, as ``<eos>``."""
    reach = state.shape[1]
    stream = torch.cat([state, tokens_BT.long()], 1)
    length = tokens_BT.shape[1]
    columns = [stream[:, reach : reach + length]]
    for back in range(1, reach + 1):
        column = stream[:, reach - back : reach - back + length]
        if back > 1:
            column = torch.where(columns[-1] == eos, eos, column)
        columns.append(column)
    return torch.stack(columns[::-1], -1)
