"""A run with fewer units made from a trained one, saved as a run of its own, and what that cost and gained."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tslm.corpus.sources import Corpus
from tslm.errors import NumberError, RunError
from tslm.evaluation.perplexity import Perplexity, evaluate
from tslm.files import to_json, write_text
from tslm.inference.compression import compress_model
from tslm.inference.inputs import ModelLike, as_run, read_count
from tslm.inference.network import require_chain
from tslm.models.recurrent.model import RecurrentModel
from tslm.runs.folder import locked_run, prepare_folder
from tslm.runs.recipe import Recipe
from tslm.runs.run import Run, load
from tslm.runs.summary import Source, Training, summarise, write_summary
from tslm.runs.train import describe_training, measure
from tslm.training.distributed import Group
from tslm.training.trainer import Trainer
from tslm.training.watcher import Watcher

REPORT = "compression.json"
TIMED = (32, 64)
"""Texts that are read side by side, and their words, to measure the speed."""
GENTLER = 0.5
"""The share of the learning rate with which a compressed model is trained on."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """A model in figures."""

    rank: int
    parameters: int
    """All of them: most of a small model are word vectors, which stay as they are."""
    recurrent_parameters: int
    """Those of cell, output gate and read-out, which the rank decides."""
    recurrence_per_second: float
    """Words read, 32 texts side by side, without predicting any."""
    words_per_second: float
    """Words read and scored with the full softmax, which does not depend on the rank."""
    valid: float
    """Perplexity on the valid split."""


@dataclass(frozen=True, kw_only=True)
class Compression:
    """What became of a model, and where it is."""

    folder: Path
    before: Size
    after: Size
    seconds: float
    """Of choosing units and fitting, without training on."""
    tuned: int
    """Epochs that it was trained on afterwards."""
    test: float | None
    """Perplexity of the smaller model on the test split."""

    @property
    def loss(self) -> float:
        """What the valid perplexity has risen by, as a share."""
        return self.after.valid / self.before.valid - 1

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {**asdict(self), "folder": str(self.folder), "loss": self.loss}


def compress(
    run: ModelLike,
    out: str | Path,
    *,
    rank: int,
    tune: int = 0,
    seed: int = 0,
    data_dir: str | Path | None = None,
    watcher: Watcher | None = None,
) -> Compression:
    """Eq. 16. Reduce a trained exact cell to fewer units, and save it as a run folder of its own.

    Units are chosen by what the state reaches on the training text and what the output sees of it, and W and the
    read-out are fitted anew; see ``tslm.inference.compression``. Perplexity on valid is measured before and after.

    Args:
        run: the run folder of one layer of a pure, biased or bounded TSLM, or of a gated model.
        out: the folder to write.
        rank: how many units to keep.
        tune: epochs to train the smaller model on, with the run's own recipe at half its learning rate.
        seed: of the predictions that are drawn to see what the output sees.
        data_dir: where to look for named corpora first.
        watcher: is told of every step.

    Raises:
        TslmError: the model is no exact cell, the rank is not below its own, or the corpus or the folder is wrong.
    """
    opened, watcher = as_run(run), watcher or Watcher()
    recurrent, _ = require_chain(opened.model)
    folder, rank, tune = Path(out), read_count(rank, "rank"), read_count(tune, "tune")
    if tune < 0:
        raise NumberError(f"tune = {tune} epochs; expected 0 or more")
    if folder.resolve() == opened.folder.resolve():
        raise RunError(f"{folder} is the run itself; choose another folder with --out")
    corpus, began = opened.open_corpus(data_dir), time.perf_counter()
    watcher.tell(f"choosing {rank} units and fitting what reads them")
    smaller = compress_model(opened.model, corpus.splits["train"], rank, seed=seed)
    seconds = time.perf_counter() - began
    recipe = _change_recipe(opened.recipe, smaller, tune)
    with locked_run(folder):
        prepare_folder(folder, recipe, corpus.vocabulary, corpus.rule)
        if tune:  # training writes the weights itself: what an earlier call has reached is not to be undone
            training = _train_on(smaller, recipe, corpus, folder, watcher)
        else:
            smaller.save(folder)
            training = _past(opened)
        made = load(folder)
        assert isinstance(made, RecurrentModel)  # noqa: S101 - it was written above
        watcher.tell("measuring perplexity and speed before and after")
        trial = recipe.train is not None and not recipe.train.test
        measured = measure(made, corpus, recipe, ("valid",) if trial else ("valid", "test"))
        before = measure_size(recurrent, _valid(opened, corpus), corpus.splits["valid"])
        report = Compression(
            folder=folder,
            before=before,
            after=measure_size(made, measured["valid"], corpus.splits["valid"]),
            seconds=seconds,
            tuned=tune,
            test=measured["test"].perplexity if "test" in measured else None,
        )
        write_text(folder / REPORT, to_json(report.as_json() | {"from": opened.folder.name}, indent=2) + "\n")
        spent = time.perf_counter() - began
        write_summary(
            folder, summarise(recipe, made, Source.of(corpus), measured, seconds=spent, training=training)
        )
    return report


def _change_recipe(recipe: Recipe, smaller: RecurrentModel, tune: int) -> Recipe:
    """Return the recipe of the smaller model: trained as the large one was, or on from there."""
    train = recipe.train
    if train is not None and tune:
        train = replace(train, epochs=tune, learning_rate=GENTLER * train.learning_rate)
    return replace(recipe, model=smaller.config, train=train)


def _train_on(
    model: RecurrentModel, recipe: Recipe, corpus: Corpus, folder: Path, watcher: Watcher
) -> Training:
    if recipe.train is None or recipe.objective is None:
        raise RunError("the run was not trained by gradients; leave --tune out")
    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)
    trainer = Trainer(model, recipe.train, recipe.objective, corpus, folder, Group(), watcher)
    return describe_training(trainer.run(), corpus)


def _past(run: Run) -> Training:
    """Return how the larger model was trained: the smaller one has seen no gradient of its own."""
    if run.summary is not None and run.summary.training is not None:
        return run.summary.training
    return Training(epochs=0, best_epoch=0, tokens_per_second=0.0, threads=torch.get_num_threads())


def _valid(run: Run, corpus: Corpus) -> Perplexity:
    """Return what the run says of itself, or measure it."""
    if run.summary is not None and run.summary.valid is not None:
        return run.summary.valid
    return evaluate(run.model, corpus.splits["valid"])


def measure_size(model: RecurrentModel, valid: Perplexity, ids: NDArray[np.integer[Any]]) -> Size:
    """Measure a model: the best of five, for other work on the machine only ever slows it down."""
    words_BT = np.resize(ids, TIMED)
    reading, scoring = measure_speed(model, words_BT)
    words = (
        model.bias.numel() + model.embedding.numel() + (0 if model.output is None else model.output.numel())
    )
    return Size(
        rank=model.config.rank,
        parameters=model.parameter_count,
        recurrent_parameters=model.parameter_count - words,
        recurrence_per_second=reading,
        words_per_second=scoring,
        valid=valid.perplexity,
    )


def measure_speed(model: RecurrentModel, words_BT: NDArray[np.integer[Any]]) -> tuple[float, float]:
    """Return words per second of the recurrence alone, and of scoring; the best of five."""
    times: list[tuple[float, float]] = []
    words_TB = torch.from_numpy(np.array(words_BT.T, np.int64))
    for _ in range(5):
        start = time.perf_counter()
        with torch.inference_mode():
            model.cell(0)(model.embed(words_TB), model.cell(0).start(len(words_BT)))
        middle = time.perf_counter()
        model.score(words_BT, model.start(len(words_BT)))
        times.append((middle - start, time.perf_counter() - middle))
    reading, scoring = (words_BT.size / min(column) for column in zip(*times, strict=True))
    return reading, scoring
