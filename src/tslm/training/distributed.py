"""Several processes, one run: each reads its own columns of the text, and the gradients are summed.

Started by ``torchrun``; a single process is a group of one, communicates with nobody and needs no PyTorch for it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Group:
    """This process's place among all."""

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes the run folder and prints."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.world > 1:
            from torch import distributed

            distributed.all_reduce(tensor)
        return tensor

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all processes, which have the same shape everywhere."""
        if self.world == 1:
            return [tensor]
        import torch
        from torch import distributed

        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        distributed.all_gather(parts, tensor.contiguous())
        return parts

    def share_bytes(self, data: bytes) -> bytes:
        """Return the leading process's bytes everywhere."""
        if self.world == 1:
            return data
        import torch
        from torch import distributed

        size = int(self.share(float(len(data))))
        tensor = torch.frombuffer(bytearray(data or size), dtype=torch.uint8) if size else torch.empty(0)
        if size:
            distributed.broadcast(tensor, src=0)
        return bytes(tensor.numpy())

    def share(self, value: float) -> float:
        """Return the leading process's value everywhere."""
        if self.world == 1:
            return value
        import torch
        from torch import distributed

        tensor = torch.tensor([value], dtype=torch.float64)
        distributed.broadcast(tensor, src=0)
        return float(tensor)


def started_group() -> Group:
    """Return this process's place in what ``torchrun`` describes in the environment."""
    return Group(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


@contextmanager
def joined_group() -> Generator[Group, None, None]:
    """Join the group that ``torchrun`` has started, and leave it after the block."""
    group = started_group()
    if group.world == 1:
        yield group
        return
    from torch import distributed

    distributed.init_process_group("gloo")
    try:
        yield group
        # All leave together: a process that ends early would take its connections from under the others.
        distributed.barrier()
    finally:
        distributed.destroy_process_group()
