"""Truncated back-propagation through time: the loop that trains every recurrent model."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tslm.corpus.sources import Corpus
from tslm.corpus.statistics import count_words
from tslm.corpus.streams import Columns
from tslm.devices import random_state, set_random_state
from tslm.errors import RunError, Stopped
from tslm.evaluation.perplexity import evaluate, evaluate_windows
from tslm.models.arrays import check_regular
from tslm.models.recurrent.heads.base import CrossEntropy
from tslm.models.trainable import Trainable
from tslm.seals import check_seal
from tslm.training.beside import Beside
from tslm.training.checkpoint import (
    module_tensors,
    optimiser_tensors,
    part,
    read_checkpoint,
    restore_optimiser,
    save_checkpoint,
)
from tslm.training.config import ObjectiveConfig, TrainConfig
from tslm.training.distributed import Group
from tslm.training.metrics import Metrics
from tslm.training.objective import Objective
from tslm.training.optimiser import make_optimiser
from tslm.training.penalties import penalise
from tslm.training.position import STATE, Position
from tslm.training.schedule import learning_rate
from tslm.training.watcher import Watcher


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
    ) -> None:
        self.model, self.config, self.corpus = model, config, corpus
        self.folder, self.group, self.watcher = folder, group, watcher
        self.device = next(model.parameters()).device
        if config.batch % group.world:
            raise RunError(
                f"train.batch = {config.batch} does not divide among {group.world} processes; choose a multiple"
            )
        if group.world > 1 and self.device.type != "cpu":
            raise RunError(
                f"several processes train on the CPU, not on {self.device.type!r}; leave torchrun out, or set "
                'train.device = "cpu"'
            )
        if config.precision != "single" and not model.lowers:
            raise RunError(
                f"a model of kind {model.kind!r} is trained in single precision; leave train.precision out"
            )
        if objective.counts and not model.asks:
            raise RunError(
                f"a model of kind {model.kind!r} does not learn beside counts; leave objective.counts out"
            )
        if config.moments == "words" and not model.word_vectors():
            raise RunError(f"a model of kind {model.kind!r} has no vectors of words; leave train.moments out")
        # The initial weights are the same everywhere; from here on, each process has its own dropout.
        torch.manual_seed(config.seed + 1_000_003 * group.rank)
        self.columns = Columns(
            corpus.splits["train"],
            batch=config.batch,
            window=config.window,
            eos_id=corpus.vocabulary.eos_id,
            rank=group.rank,
            world=group.world,
        )
        self.model.follow(self.columns.starts_B)
        self.beside = Beside(corpus, config, group).to(self.device) if objective.counts else None
        learning = nn.ModuleList([self.model, *([] if self.beside is None else [self.beside])])
        self.optimiser = make_optimiser(config, learning, model.word_vectors())
        self.parameters = list(learning.parameters())
        # Kept from step to step, and dense: what comes as rows of a few words is added to it in place.
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        # All processes must sum over the same sampled words, or the gradients would belong to different losses.
        generator = torch.Generator().manual_seed(config.seed)
        counts_V = torch.from_numpy(count_words(corpus, "train"))
        self.objective = Objective(objective, len(corpus.vocabulary), generator, counts_V)
        self.average = [parameter.detach().clone() for parameter in self.parameters] if config.average else []
        self.position = Position(fingerprint=corpus.fingerprint)
        self.kept_step = 0
        self.cells = self.model.begin(self.columns.batch)
        self.stop_requested = False

    def run(self) -> Position:
        """Train to the end, or raise ``Stopped`` where Ctrl-C or a signal asks for it."""
        self._resume()
        self.metrics = Metrics(self.folder, self.position.metrics_bytes) if self.group.leads else None
        self.model.train()
        epochs = self.config.epochs
        total = epochs * len(self.columns)
        with _SignalsNoted(self):
            while self.position.epoch < epochs and not self._out_of_patience():
                self._epoch(total)
        return self.position

    def _out_of_patience(self) -> bool:
        patience = self.config.patience
        return patience > 0 and self.position.epoch - self.position.best_epoch >= patience

    def _epoch(self, total: int) -> None:
        position, began = self.position, time.perf_counter()
        for inputs_BT, targets_BT in self.columns.windows(position.window):
            rate = learning_rate(self.config, position.step, total, position.plateaus)
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            measured = self._step(inputs_BT, targets_BT)
            position.window += 1
            position.step += 1
            position.epoch_nats += measured["loss"] * measured["tokens"]
            position.epoch_tokens += int(measured["tokens"])
            if self.group.leads:
                self.watcher.step(position, total, measured)
            if position.step % self.config.metric_steps == 0 and self.metrics is not None:
                self.metrics.append({"step": position.step, "learning_rate": rate, **measured})
            stop = self.group.share(float(self.stop_requested)) > 0
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
                raise Stopped(
                    f"stopped at step {position.step} of {total}; the same command goes on from there"
                )
        position.seconds += time.perf_counter() - began
        self._end_epoch()

    def _step(self, inputs_BT: Tensor, targets_BT: Tensor) -> dict[str, float]:
        """One window: forward, backward, clip, update. Returns what metrics.jsonl wants to know."""
        model, config = self.model, self.config
        if config.state == "reset":
            self.cells = model.begin(self.columns.batch)
        cross_entropy: CrossEntropy = self.objective.loss
        if self.beside is not None:
            cross_entropy = partial(self.objective.loss, counted_N2=self.beside(self.position.window))
        with self._precision():
            loss, cells, states_TBR, latents = model.read_window(
                inputs_BT.t().contiguous().to(self.device),
                targets_BT.t().to(self.device),
                self.cells,
                cross_entropy,
            )
        self.cells = tuple(tuple(state.detach() for state in cell) for cell in cells)
        count = int((targets_BT >= 0).sum())
        penalised = penalise(loss, config, states_TBR, latents)
        nats, tokens = self.group.sum(
            torch.tensor([loss.item() * count, count], dtype=torch.float64)
        ).tolist()
        self.optimiser.zero_grad(set_to_none=False)
        # Scaled before the backward pass: the processes' gradients then add up to that of the mean over all tokens.
        (penalised * (count / tokens)).backward()
        self._share_gradients()
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = float(nn.utils.get_total_norm(gradients))
        if norm > config.clip:
            nn.utils.clip_grads_with_norm_(self.parameters, config.clip, torch.tensor(norm))
        measured = {"loss": nats / tokens, "tokens": tokens, "gradient_norm": norm}
        if not (math.isfinite(nats) and math.isfinite(norm)):
            self._explain_divergence(measured, states_TBR)
        self.optimiser.step()
        if self.average:
            decay = min(config.average, (1 + self.position.step) / (10 + self.position.step))
            for average, parameter in zip(self.average, self.parameters, strict=True):
                average.lerp_(parameter.detach(), 1 - decay)
        if (self.position.step + 1) % config.metric_steps == 0:
            mean_square = self.group.sum(states_TBR.detach().pow(2).mean()) / self.group.world
            measured["state_norm"] = float(mean_square.sqrt())
            measured |= model.diagnostics()
        return measured

    def _precision(self) -> AbstractContextManager[object]:
        """Lower the products of a step to bfloat16 where the recipe asks for it."""
        lowered = self.config.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16) if lowered else nullcontext()

    def _share_gradients(self) -> None:
        """Sum the gradients of all processes."""
        if self.group.world == 1:
            return
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        flat = self.group.sum(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, shared in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(shared.view_as(gradient))

    def _explain_divergence(self, measured: dict[str, float], states_TBR: Tensor) -> None:
        largest = float(states_TBR.detach().abs().max())
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
        if self.group.leads:
            ids = self.corpus.splits["valid"]
            with self._averaged():
                # What chooses the epoch is what the run is measured by in the end.
                valid = (
                    evaluate_windows(self.model, ids, config.window)
                    if config.state == "reset"
                    else evaluate(self.model, ids, reset=False).perplexity
                )
        else:
            valid = 0.0
        valid = self.group.share(valid)
        train = math.exp(min(position.epoch_nats / max(position.epoch_tokens, 1), 700))
        position.epoch += 1
        if position.best is None or valid < position.best:
            position.best, position.best_epoch = valid, position.epoch
            if self.group.leads:
                with self._averaged():
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
                **self.model.diagnostics(),
            }
            self.metrics.append(entry)
            self.watcher.epoch(position, config.epochs, train, valid)
        position.window, position.epoch_nats, position.epoch_tokens = 0, 0.0, 0
        self.cells = self.model.begin(self.columns.batch)
        self._checkpoint()

    @contextmanager
    def _averaged(self) -> Generator[None, None, None]:
        """Put the averaged weights into the model for a block, where the recipe asks for an average."""

        def swap() -> None:
            for parameter, average in zip(self.parameters, self.average, strict=False):
                parameter.data, average.data = average.data, parameter.data

        swap()
        try:
            yield
        finally:
            swap()

    def _checkpoint(self) -> None:
        """Save everything that the next step depends on. Every process sends its part; the leading one writes."""
        tensors = {**module_tensors(self.model), **optimiser_tensors(self.optimiser)}
        tensors |= {f"average/{number}": value for number, value in enumerate(self.average)}
        if self.beside is not None:
            tensors |= {f"beside/{key}": value for key, value in self.beside.state_dict().items()}
        for rank, random in enumerate(self.group.gather(torch.get_rng_state())):
            tensors[f"random/torch/{rank}"] = random
        if (random := random_state(self.device)) is not None:
            tensors["random/device"] = random
        tensors["random/objective"] = self.objective.generator.get_state()
        for layer, cell in enumerate(self.cells):
            for number, state in enumerate(cell):
                for rank, value in enumerate(self.group.gather(state)):
                    tensors[f"cells/{layer}/{number}/{rank}"] = value
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
            self.model.load_state_dict(part(tensors, "model"))
            restore_optimiser(self.optimiser, tensors)
            if self.beside is not None:
                self.beside.load_state_dict(part(tensors, "beside"))
            for number, value in enumerate(self.average):
                value.copy_(tensors[f"average/{number}"])
            rank = self.group.rank
            torch.set_rng_state(tensors[f"random/torch/{rank}"])
            if "random/device" in tensors:
                set_random_state(self.device, tensors["random/device"])
            self.objective.generator.set_state(tensors["random/objective"])
            self.cells = tuple(
                tuple(
                    tensors[f"cells/{layer}/{number}/{rank}"].to(self.device) for number in range(len(cell))
                )
                for layer, cell in enumerate(self.cells)
            )
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
            signal.signal(number, handler)
