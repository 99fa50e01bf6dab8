"""What transformers carries from token to token for a model of ours: its state."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tslm.errors import UnsupportedError

try:
    from transformers.cache_utils import Cache
except ImportError as error:
    raise UnsupportedError(
        "Hugging Face needs transformers 5; install it with: pip install 'tslm[hf]'"
    ) from error


class StateCache(Cache):
    """What has been read of each text of a batch: our state, one for each row.

    Reading never changes a state in place, so that two beams may go on from the same one.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.rows: list[Any] = []
        """The state of each row; None for one that has not begun."""
        self.length = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return how many tokens of each row were read, padding among them."""
        return self.length

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """Return −1: a state takes as much room after a million words as after one."""
        return -1

    @property
    def batch_size(self) -> int:
        """How many rows there are; −1 before anything is read."""
        return len(self.rows) or -1

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Go on from the given rows, as beam search asks for."""
        self.rows = [self.rows[row] for row in beam_idx.tolist()]

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the given rows."""
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Have every row several times."""
        self.rows = [row for row in self.rows for _ in range(repeats)]

    def reset(self) -> None:
        """Forget all that was read."""
        self.rows, self.length = [], 0

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse: a state does not know the words it was made of."""
        if tokens_to_remove:
            raise UnsupportedError(
                "a recurrent state cannot be taken back; use greedy, sampled or beam search"
            )
