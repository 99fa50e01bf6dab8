"""Masks of dropout, and a block without it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def make_mask(shape: tuple[int, ...], chance: float, like: Tensor) -> Tensor:
    """Return zeros with the given chance and 1 / (1 − chance) elsewhere, where and as ``like`` is."""
    # Compared with uniform numbers: drawing Bernoulli ones takes four times as long on a CPU.
    return (torch.rand(shape, device=like.device) >= chance).to(like.dtype).div_(1 - chance)


@contextmanager
def evaluating(module: nn.Module) -> Generator[None, None, None]:
    """Turn dropout off inside a block, and back to what it was after it."""
    was = module.training
    if was:
        module.eval()
    try:
        yield
    finally:
        if was:
            module.train()
