"""Streams that truncated back-propagation reads: contiguous columns cut into windows, no token dropped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from tslm.errors import ShapeError

PADDING = -100
"""Stands in the targets where a column has ended; ``torch.nn.functional.cross_entropy`` passes over it."""


class Columns:
    """A text as ``batch`` contiguous columns of equal length (to within one token), read window by window.

    Every token is a target exactly once in an epoch, whatever the batch, the window and the number of
    processes. A column starts with ``<eos>`` as the input that predicts its first token. When the text does
    not divide evenly, the first columns are one token longer, and the others end in one ``PADDING`` target at
    the very end of the last window. That window is narrower than the rest unless the columns divide evenly.

    Args:
        ids: the flat ids of one split.
        batch: how many columns all processes have together.
        window: how many tokens of each column are read at a time.
        eos_id: the id of ``<eos>``.
        rank: which process this is; it reads its own columns only.
        world: how many processes share the columns.

    Example:
        >>> columns = Columns(np.arange(5, 10, dtype=np.int32), batch=2, window=2, eos_id=0)
        >>> columns[0]
        (tensor([[0, 5],
                 [0, 8]]), tensor([[5, 6],
                                   [8, 9]]))
        >>> columns[1]
        (tensor([[6],
                 [9]]), tensor([[   7],
                                [-100]]))
    """

    def __init__(
        self, ids: NDArray[np.int32], *, batch: int, window: int, eos_id: int, rank: int = 0, world: int = 1
    ) -> None:
        if ids.ndim != 1 or not len(ids):
            raise ShapeError(f"a stream needs flat ids, at least one; given shape {ids.shape}")
        if batch < 1 or window < 1:
            raise ShapeError(f"batch {batch} and window {window} must be 1 or more")
        if not 0 <= rank < world:
            raise ShapeError(f"rank {rank} must be at least 0 and below world {world}")
        if batch < world:
            raise ShapeError(f"batch {batch} is too small for {world} processes; give each a column or more")
        self._ids = ids
        self._window = window
        self._eos_id = eos_id
        length, longer = divmod(len(ids), batch)
        self._longest = length + (longer > 0)
        # The first columns of all are the longer ones; a process owns a run of neighbouring columns.
        starts_B = np.arange(batch + 1) * length + np.minimum(np.arange(batch + 1), longer)
        own = slice(rank * batch // world, (rank + 1) * batch // world)
        self.starts_B = starts_B[:-1][own]
        """Where in the text each column begins."""
        self._ends_B = starts_B[1:][own]

    @property
    def batch(self) -> int:
        """How many columns this process reads."""
        return len(self.starts_B)

    @property
    def target_count(self) -> int:
        """How many tokens this process predicts in an epoch."""
        return int((self._ends_B - self.starts_B).sum())

    def __len__(self) -> int:
        """How many windows an epoch has; the same for every process."""
        return -(-self._longest // self._window)

    def __getitem__(self, index: int) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
        """Return the inputs and the targets of one window."""
        start = range(len(self))[index] * self._window
        stop = min(start + self._window, self._longest)
        # One place more on the left: the input of the first target is the token before it.
        places_BT = self.starts_B[:, None] + np.arange(start - 1, stop)
        inside_BT = (places_BT >= self.starts_B[:, None]) & (places_BT < self._ends_B[:, None])
        tokens_BT = self._ids[np.clip(places_BT, 0, len(self._ids) - 1)].astype(np.int64)
        inputs_BT = np.where(inside_BT, tokens_BT, self._eos_id)[:, :-1]
        targets_BT = np.where(inside_BT, tokens_BT, PADDING)[:, 1:]
        return torch.as_tensor(inputs_BT.copy()), torch.as_tensor(targets_BT.copy())

    def windows(self, start: int = 0) -> Iterator[tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]]:
        """Yield the windows from number ``start`` on, as a resumed run needs them."""
        for index in range(start, len(self)):
            yield self[index]
