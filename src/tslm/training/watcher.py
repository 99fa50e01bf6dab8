"""What a user sees while a model trains: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tslm.training.position import Position


class Watcher:
    """Is told of every step and every epoch; this one shows nothing."""

    def step(self, position: Position, total: int, measured: Mapping[str, float]) -> None:
        """A step is done; ``measured`` has at least ``loss``, ``tokens`` and ``gradient_norm``."""

    def epoch(self, position: Position, epochs: int, train: float, valid: float) -> None:
        """An epoch is done."""

    def close(self) -> None:
        """The training has ended."""

    def tell(self, line: str) -> None:
        """Something else that takes its time has begun."""


class Terminal(Watcher):
    """A live line on a terminal; off a terminal, a plain line every half minute and one per epoch."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.live = self.console.is_terminal
        self.progress = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]:.3f}  perplexity {task.fields[perplexity]:.1f}"),
            TextColumn("{task.fields[rate]:,.0f} tokens/s"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.live,
        )
        self.task: Any = None
        self.began = self.printed = time.perf_counter()
        self.tokens = self.first_step = 0
        self.smooth: float | None = None

    def step(self, position: Position, total: int, measured: Mapping[str, float]) -> None:
        """Move the bar; off a terminal, now and then print a line."""
        now, loss = time.perf_counter(), measured["loss"]
        if self.smooth is None:
            self.smooth, self.first_step = loss, position.step - 1
        self.smooth += 0.02 * (loss - self.smooth)
        self.tokens += int(measured["tokens"])
        rate = self.tokens / max(now - self.began, 1e-9)
        perplexity = math.exp(min(self.smooth, 700))
        if self.live:
            fields: dict[str, Any] = {
                "epoch": position.epoch + 1,
                "loss": self.smooth,
                "perplexity": perplexity,
                "rate": rate,
            }
            if self.task is None:
                self.progress.start()
                self.task = self.progress.add_task("", total=total, completed=position.step, **fields)
            self.progress.update(self.task, completed=position.step, **fields)
        elif now - self.printed > 30:
            self.printed = now
            left = (now - self.began) / (position.step - self.first_step) * (total - position.step)
            self._print(
                f"epoch {position.epoch + 1}  step {position.step}/{total}  loss {self.smooth:.3f}  "
                f"perplexity {perplexity:.1f}  {rate:,.0f} tokens/s  {_duration(left)} left"
            )

    def epoch(self, position: Position, epochs: int, train: float, valid: float) -> None:
        """Print the epoch's perplexities."""
        best = "  best so far" if position.best_epoch == position.epoch else ""
        self._print(
            f"epoch {position.epoch}/{epochs}  train perplexity {train:.2f}  valid perplexity {valid:.2f}{best}  "
            f"({_duration(position.seconds)})"
        )

    def close(self) -> None:
        """Take the live line away."""
        self.progress.stop()

    def tell(self, line: str) -> None:
        """Print the line."""
        self._print(line)

    def _print(self, line: str) -> None:
        if self.live:
            self.console.print(line, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
