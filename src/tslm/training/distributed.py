"""Several processes, one run: each reads its own columns of the text, and the gradients are summed.

Started by ``torchrun``; a single process is a group of one and communicates with nobody.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed


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
            distributed.all_reduce(tensor)
        return tensor

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all processes, which have the same shape everywhere."""
        if self.world == 1:
            return [tensor]
        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        distributed.all_gather(parts, tensor.contiguous())
        return parts

    def share_bytes(self, data: bytes) -> bytes:
        """Return the leading process's bytes everywhere."""
        if self.world == 1:
            return data
        size = int(self.share(float(len(data))))
        tensor = torch.frombuffer(bytearray(data or size), dtype=torch.uint8) if size else torch.empty(0)
        if size:
            distributed.broadcast(tensor, src=0)
        return bytes(tensor.numpy())

    def share(self, value: float) -> float:
        """Return the leading process's value everywhere."""
        if self.world == 1:
            return value
        tensor = torch.tensor([value], dtype=torch.float64)
        distributed.broadcast(tensor, src=0)
        return float(tensor)


@contextmanager
def joined_group() -> Generator[Group, None, None]:
    """Join the group that ``torchrun`` describes in the environment, and leave it after the block."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Group()
        return
    distributed.init_process_group("gloo")
    try:
        yield Group(distributed.get_rank(), world)
        # All leave together: a process that ends early would take its connections from under the others.
        distributed.barrier()
    finally:
        distributed.destroy_process_group()
