"""Metrics for TensorBoard, an optional extra: ``pip install tslm[tensorboard]``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tslm.errors import UnsupportedError
from tslm.training.position import Position
from tslm.training.watcher import Watcher


class TensorBoard(Watcher):
    """Writes loss and perplexities as TensorBoard events, and passes everything on to another watcher."""

    def __init__(self, folder: Path, then: Watcher) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UnsupportedError("TensorBoard is not installed; pip install tslm[tensorboard]") from error
        self.writer = SummaryWriter(folder)
        self.then = then

    def step(self, position: Position, total: int, measured: Mapping[str, float]) -> None:
        """Write the loss and the norms."""
        for name, value in measured.items():
            self.writer.add_scalar(name, value, position.step)
        self.then.step(position, total, measured)

    def epoch(self, position: Position, epochs: int, train: float, valid: float) -> None:
        """Write the perplexities."""
        self.writer.add_scalar("perplexity/train", train, position.epoch)
        self.writer.add_scalar("perplexity/valid", valid, position.epoch)
        self.then.epoch(position, epochs, train, valid)

    def tell(self, line: str) -> None:
        """Pass the line on."""
        self.then.tell(line)

    def close(self) -> None:
        """Flush what was written."""
        self.writer.close()
        self.then.close()
