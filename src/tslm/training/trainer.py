"""The loop that trains every model: window after window, epoch after epoch, with validation and checkpoints."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tslm.corpus.sources import Corpus
from tslm.corpus.streams import Columns
from tslm.errors import RunError, Stopped
from tslm.evaluation.perplexity import evaluate, evaluate_windows
from tslm.memory import kept_memory
from tslm.models.arrays import check_regular
from tslm.models.recurrent.products import bfloat16_speed
from tslm.models.trainable import Trainable
from tslm.seals import check_seal
from tslm.training.candidates import ESCAPED, warn_of_escape
from tslm.training.checkpoint import read_checkpoint, save_checkpoint
from tslm.training.config import ObjectiveConfig, TrainConfig
from tslm.training.distributed import Group
from tslm.training.learner import Learner
from tslm.training.metrics import Metrics
from tslm.training.position import STATE, Position
from tslm.training.schedule import learning_rate
from tslm.training.watcher import Watcher

SLOW = 0.8
"""In multiples of the speed in single precision: below it, bfloat16 is not worth having on this processor."""


class Trainer:
    """Trains a model in its run folder, from the last checkpoint to the end.

    Args:
        model: the model with the weights it begins with; the same in every process.
        config: how it is trained.
        objective: which words the loss sums over.
        corpus: what it learns.
        folder: where checkpoints, metrics and the best model go.
        group: the processes that train it together.
        watcher: is told of every step and epoch.
        texts: the text of each epoch, all of one length, where they differ; the corpus' train split when left out.
    """

    def __init__(
        self,
        model: Trainable[Any],
        config: TrainConfig,
        objective: ObjectiveConfig,
        corpus: Corpus,
        folder: Path,
        group: Group,
        watcher: Watcher,
        texts: Callable[[int], NDArray[np.int32]] | None = None,
    ) -> None:
        self.model, self.config, self.corpus = model, config, corpus
        self.folder, self.group, self.watcher = folder, group, watcher
        if config.batch % group.world:
            raise RunError(
                f"train.batch = {config.batch} does not divide among {group.world} processes; choose a multiple"
            )
        device = next(model.parameters()).device
        if group.world > 1 and device.type != "cpu":
            raise RunError(
                f"several processes train on the CPU, not on {device.type!r}; leave torchrun out, or set "
                'train.device = "cpu"'
            )
        # The initial weights are the same everywhere; from here on, each process has its own dropout.
        torch.manual_seed(config.seed + 1_000_003 * group.rank)
        self.texts = texts
        self.columns = self._cut(corpus.splits["train"] if texts is None else texts(0))
        self.model.follow(self.columns.starts_B)
        self.learner = Learner(model, config, objective, corpus, group, self.columns.batch)
        self.position = Position(fingerprint=corpus.fingerprint)
        self.kept_step = 0
        self.stop_requested = False

    def _cut(self, ids: NDArray[np.int32]) -> Columns:
        """Cut a text into the columns that this process reads."""
        return Columns(
            ids,
            batch=self.config.batch,
            window=self.config.window,
            eos_id=self.corpus.vocabulary.eos_id,
            rank=self.group.rank,
            world=self.group.world,
        )

    def run(self) -> Position:
        """Train to the end, or raise ``Stopped`` where Ctrl-C or a signal asks for it."""
        self._resume()
        self.metrics = Metrics(self.folder, self.position.metrics_bytes) if self.group.leads else None
        self.model.train()
        epochs = self.config.epochs
        total = epochs * len(self.columns)
        self._warn_of_precision()
        with kept_memory(), _SignalsNoted(self):
            while self.position.epoch < epochs and not self._out_of_patience():
                self._epoch(total)
        return self.position

    def _warn_of_precision(self) -> None:
        lowered = self.config.precision == "bfloat16" and self.learner.device.type == "cpu"
        if self.group.leads and lowered and (speed := bfloat16_speed()) < SLOW:
            self.watcher.tell(
                f"warning: this processor multiplies bfloat16 at {speed:.2f} of its speed in single precision; "
                "a new run with --set train.precision=single is faster here, with a result about as good"
            )

    def _out_of_patience(self) -> bool:
        patience = self.config.patience
        return patience > 0 and self.position.epoch - self.position.best_epoch >= patience

    def _epoch(self, total: int) -> None:
        position, began = self.position, time.perf_counter()
        if self.texts is not None:
            self.columns = self._cut(self.texts(position.epoch))
        for inputs_BT, targets_BT in self.columns.windows(position.window):
            rate = learning_rate(self.config, position.step, total, position.plateaus)
            self.learner.set_rate(rate)
            measured = self._step(inputs_BT, targets_BT)
            position.window += 1
            position.step += 1
            position.epoch_nats += measured["loss"] * measured["tokens"]
            position.epoch_tokens += int(measured["tokens"])
            if self.group.leads:
                self.watcher.step(position, total, measured)
            if position.step % self.config.metric_steps == 0 and self.metrics is not None:
                self.metrics.append({"step": position.step, "learning_rate": rate, **measured})
            stop = self._stops()
            # At the end of an epoch as well: validation takes its time, and a run may be stopped in it.
            if (
                stop
                or position.step % self.config.checkpoint_steps == 0
                or position.window == len(self.columns)
            ):
                position.seconds += time.perf_counter() - began
                began = time.perf_counter()
                self._checkpoint()
            if stop:
                self._stop(total)
        position.seconds += time.perf_counter() - began
        self._end_epoch()
        if self._stops():
            self._stop(total)

    def _stops(self) -> bool:
        """Return whether any process was asked to stop."""
        return self.group.share(float(self.stop_requested)) > 0

    def _stop(self, total: int) -> NoReturn:
        raise Stopped(f"stopped at step {self.position.step} of {total}; the same command goes on from there")

    def _step(self, inputs_BT: Tensor, targets_BT: Tensor) -> dict[str, float]:
        """One window: forward, backward, clip, update. Returns what metrics.jsonl wants to know."""
        step = self.position.step
        measured, states_TBR = self.learner.read(inputs_BT, targets_BT, self.position.window)
        if not (math.isfinite(measured["loss"]) and math.isfinite(measured["gradient_norm"])):
            self._explain_divergence(measured, states_TBR)
        self.learner.update(step)
        if (step + 1) % self.config.metric_steps == 0:
            measured |= self.learner.diagnose(states_TBR)
        return measured

    def _explain_divergence(self, measured: dict[str, float], states_TBR: Tensor) -> None:
        largest = float(states_TBR.abs().max())
        kept = (
            f"the last good state is of step {self.kept_step}" if self.kept_step else "no state was saved yet"
        )
        raise RunError(
            f"the loss is not finite at step {self.position.step + 1}: loss {measured['loss']}, gradient norm "
            f"{measured['gradient_norm']}, largest state {largest}; {kept}. Lower train.learning_rate or "
            "train.clip, or take a cell whose state is bounded"
        )

    def _end_epoch(self) -> None:
        position, config = self.position, self.config
        escape = None
        if self.group.leads:
            ids = self.corpus.splits["valid"]
            with self.learner.averaged():
                # What chooses the epoch is what the run is measured by in the end.
                valid = (
                    evaluate_windows(self.model, ids, config.window)
                    if config.state == "reset"
                    else evaluate(self.model, ids, reset=False).perplexity
                )
                # All columns, whoever trains: what is measured does not depend on the number of processes.
                escape = self.learner.escape(
                    Columns(
                        ids, batch=config.batch, window=config.window, eos_id=self.corpus.vocabulary.eos_id
                    )
                )
        else:
            valid = 0.0
        valid = self.group.share(valid)
        train = math.exp(min(position.epoch_nats / max(position.epoch_tokens, 1), 700))
        position.epoch += 1
        if position.best is None or valid < position.best:
            position.best, position.best_epoch = valid, position.epoch
            if self.group.leads:
                with self.learner.averaged():
                    self.model.save(self.folder)
        else:
            position.plateaus += 1
        if self.metrics is not None:
            entry = {
                "epoch": position.epoch,
                "step": position.step,
                "train_perplexity": train,
                "valid_perplexity": valid,
                "seconds": position.seconds,
                **({} if escape is None else {"escape": escape}),
                **self.model.diagnostics(),
            }
            self.metrics.append(entry)
            self.watcher.epoch(position, config.epochs, train, valid)
            if escape is not None and escape > ESCAPED:
                self.watcher.tell(warn_of_escape(escape, self.learner.objective.config))
        position.window, position.epoch_nats, position.epoch_tokens = 0, 0.0, 0
        self.learner.begin()
        self._checkpoint()

    def _checkpoint(self) -> None:
        """Save everything that the next step depends on. Every process sends its part; the leading one writes."""
        tensors = self.learner.collect()
        if self.metrics is not None:
            self.position.metrics_bytes = self.metrics.size
            save_checkpoint(self.folder, self.position, tensors)
        self.kept_step = self.position.step

    def _resume(self) -> None:
        path = self.folder / STATE
        if self.group.leads and path.exists():
            check_regular(path)
            check_seal(path, "delete it to start the run anew")
        # Only the leading process needs to have the folder.
        data = self.group.share_bytes(path.read_bytes() if self.group.leads and path.exists() else b"")
        if not data:
            return
        position, tensors = read_checkpoint(data, path)
        if position.fingerprint != self.position.fingerprint:
            raise RunError(
                f"{self.folder} holds a run on another text (fingerprint {position.fingerprint[:12]}, now "
                f"{self.position.fingerprint[:12]}); choose another folder with --out, or delete this one"
            )
        self.position, self.kept_step = position, position.step
        try:
            self.learner.restore(tensors)
        except (KeyError, RuntimeError, ValueError) as error:
            raise RunError(
                f"the training state in {self.folder} does not fit its recipe or the number of processes ({error}); "
                "delete the folder to start anew"
            ) from error


class _SignalsNoted:
    """Let Ctrl-C and SIGTERM finish the current step, save the state and stop; a second one stops at once."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._note)

    def _note(self, *_: object) -> None:
        if self.trainer.stop_requested:
            raise KeyboardInterrupt
        self.trainer.stop_requested = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            # None: whoever set it did so outside Python, and it cannot be put back.
            if handler is not None:
                signal.signal(number, handler)
