"""Metrics for TensorBoard, an optional extra: ``pip install tslm[tensorboard]``."""

from __future__ import annotations

from pathlib import Path

from tslm.errors import UnsupportedError
from tslm.training.checkpoint import Position
from tslm.training.progress import Watcher


class TensorBoard(Watcher):
    """Writes loss and perplexities as TensorBoard events, and passes everything on to another watcher."""

    def __init__(self, folder: Path, then: Watcher) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UnsupportedError("TensorBoard is not installed; pip install tslm[tensorboard]") from error
        self.writer = SummaryWriter(folder)
        self.then = then

    def step(self, position: Position, total: int, loss: float, tokens: int) -> None:
        """Write the loss."""
        self.writer.add_scalar("loss", loss, position.step)
        self.then.step(position, total, loss, tokens)

    def epoch(self, position: Position, epochs: int, train: float, valid: float) -> None:
        """Write the perplexities."""
        self.writer.add_scalar("perplexity/train", train, position.epoch)
        self.writer.add_scalar("perplexity/valid", valid, position.epoch)
        self.then.epoch(position, epochs, train, valid)

    def close(self) -> None:
        """Flush what was written."""
        self.writer.close()
        self.then.close()
