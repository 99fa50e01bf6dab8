"""From a recipe to a finished run folder: by counting, or by the gradient engine."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tslm.corpus.files import is_pipe
from tslm.corpus.sources import Corpus, open_corpus
from tslm.devices import place_model
from tslm.errors import RecipeError, RunError
from tslm.evaluation.perplexity import Perplexity, Tick, evaluate, evaluate_windows
from tslm.files import read_path, to_json
from tslm.models.base import Estimated, LanguageModel
from tslm.models.registry import model_class
from tslm.runs.folder import check_same, locked_run, prepare_folder
from tslm.runs.measured import Measured
from tslm.runs.recipe import MADE_BY, Recipe, origin_of, read_recipe
from tslm.runs.run import load
from tslm.runs.summary import (
    Source,
    Split,
    Summary,
    Training,
    parse_summary,
    read_summary,
    summarise,
    write_summary,
)
from tslm.training.distributed import Group, joined_group, started_group
from tslm.training.position import Position
from tslm.training.watcher import Watcher

if TYPE_CHECKING:
    from tslm.models.trainable import Trainable


def run_folder(recipe: str | Path, out: str | Path | None = None, overrides: Sequence[str] = ()) -> Path:
    """Return ``out``, or ``runs/<corpus>-<recipe>`` with the overrides in its name."""
    if out is not None:
        return read_path(out, "run folder")
    path = read_path(recipe, "recipe")
    changes = [override.split(".", 1)[-1].replace("=", "") for override in overrides]
    name = "-".join([read_recipe(path, overrides).corpus.name, path.stem, *changes])
    return Path("runs") / "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in name)


def train(
    recipe: Recipe | str | Path,
    out: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    data_dir: str | Path | None = None,
    watcher: Watcher | None = None,
) -> Summary:
    """Run a recipe to its end and return its summary; a run that was broken off goes on, a finished one is read.

    Args:
        recipe: a recipe, the path of one, or the name of one of the project's own: ``asv/kn5``.
        out: the run folder; by default ``runs/<corpus>-<recipe>``.
        overrides: changes to the recipe such as ``train.seed=2``.
        data_dir: where to look for named corpora first.
        watcher: is told of every step and epoch.

    Raises:
        TslmError: the recipe, the corpus or the folder is wrong.
    """
    if isinstance(recipe, Recipe):
        if out is None or overrides:
            raise RunError(
                "a recipe that is not a file needs out=, and takes no overrides: change the Recipe itself"
            )
        folder = read_path(out, "run folder")
    else:
        folder = run_folder(recipe, out, overrides)
        recipe = read_recipe(recipe, overrides)
    # A relative path would lead nowhere once the run is opened from another folder.
    paths = tuple(
        path if path == "-" or is_pipe(path) else str(Path(path).resolve()) for path in recipe.corpus.path
    )
    recipe = replace(recipe, corpus=replace(recipe.corpus, path=paths))
    origin = origin_of(recipe.kind)
    if origin == "made":
        return _read_made(recipe, folder)
    if origin == "estimated" and started_group().world > 1:
        raise RecipeError(
            f"a model of kind {recipe.kind!r} is counted at one go: run tslm train itself, without torchrun"
        )
    corpus = open_corpus(recipe.corpus, data_dir=data_dir)
    with joined_group() as group:
        if not group.leads:
            if not group.share(0.0):
                _train(recipe, corpus, folder, group, Watcher())
            return parse_summary(json.loads(group.share_bytes(b"")))
        with locked_run(folder):
            prepare_folder(folder, recipe, corpus.vocabulary, corpus.rule)
            finished = read_summary(folder)
            if finished is not None and finished.corpus.fingerprint != corpus.fingerprint:
                raise RunError(
                    f"{folder} holds a run on another text: its fingerprint differs; choose another folder with --out"
                )
            group.share(float(finished is not None))
            if finished is None and origin == "estimated":
                finished = _estimate(recipe, corpus, folder)
            elif finished is None:
                watcher = watcher or Watcher()
                position = _train(recipe, corpus, folder, group, watcher)
                watcher.tell("measuring the final perplexity")
                finished = _measure_trained(recipe, corpus, folder, position)
        group.share_bytes(to_json(finished.as_json()).encode())
        return finished


def measure(
    model: LanguageModel[Any],
    corpus: Corpus,
    recipe: Recipe,
    splits: Sequence[Split],
    tick: Tick | None = None,
) -> dict[Split, Perplexity]:
    """Return a finished model's perplexities. Validation has chosen by now: test is read this one time."""
    # The words of own text are a choice, those of a named corpus are given: what depends on none is for the former.
    sizes = corpus.sizes if recipe.corpus.path else {}
    return {
        split: evaluate(model, corpus.splits[split], size=sizes.get(split), tick=tick) for split in splits
    }


def _read_made(recipe: Recipe, folder: Path) -> Summary:
    """Return the summary of a model that is made of something else than a text, where it is made already."""
    finished = read_summary(folder)
    if finished is None:
        raise RecipeError(
            f"a model of kind {recipe.kind!r} is not learnt from a text; make one with: {MADE_BY[recipe.kind]}"
        )
    check_same(folder, recipe)
    return finished


def _estimate(recipe: Recipe, corpus: Corpus, folder: Path) -> Summary:
    began = time.perf_counter()
    estimated = model_class(recipe.kind)
    assert issubclass(estimated, Estimated)  # noqa: S101
    model = estimated.fit(recipe.model, corpus)
    model.rule = corpus.rule
    seconds = time.perf_counter() - began
    model.save(folder)
    measured = measure(model, corpus, recipe, ("valid", "test"))
    summary = summarise(recipe, model, Source.of(corpus), measured, seconds=seconds)
    write_summary(folder, summary)
    return summary


def _train(recipe: Recipe, corpus: Corpus, folder: Path, group: Group, watcher: Watcher) -> Position:
    """Train by gradients to the end, in every process of the group."""
    import torch

    from tslm.training.trainer import Trainer

    assert recipe.train is not None  # noqa: S101
    assert recipe.objective is not None  # noqa: S101
    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)
    model = _begin(recipe, corpus)
    place_model(model, recipe.train.device)
    trainer = Trainer(model, recipe.train, recipe.objective, corpus, folder, group, watcher)
    try:
        return trainer.run()
    finally:
        watcher.close()


def describe_training(position: Position, corpus: Corpus) -> Training:
    """Return what a summary says of training that has come so far."""
    import torch

    from tslm.models.recurrent import kernel

    return Training(
        epochs=position.epoch,
        best_epoch=position.best_epoch,
        steps=position.step,
        tokens_per_second=position.epoch * len(corpus.splits["train"]) / max(position.seconds, 1e-9),
        threads=torch.get_num_threads(),
        kernel=kernel.active() is not None,
    )


def _measure_trained(recipe: Recipe, corpus: Corpus, folder: Path, position: Position) -> Summary:
    config = recipe.train
    assert config is not None  # noqa: S101
    model = load(folder, config.device)
    known = Measured(folder)
    training = describe_training(position, corpus)
    if config.state == "reset":
        # Trained as a tensor of order n, it is measured as one too.
        windows = known.number(
            "windows", lambda: evaluate_windows(model, corpus.splits["valid"], config.window)
        )
        training = replace(training, valid_windows=windows)
    splits: tuple[Split, ...] = ("valid", "test") if config.test else ("valid",)
    measured: dict[Split, Perplexity] = {
        split: known.perplexity(split, lambda split=split: measure(model, corpus, recipe, (split,))[split])
        for split in splits
    }
    seconds = position.seconds
    summary = summarise(recipe, model, Source.of(corpus), measured, seconds=seconds, training=training)
    write_summary(folder, summary)
    known.forget()
    return summary


def _begin(recipe: Recipe, corpus: Corpus) -> Trainable[Any]:
    """Return the model with the weights that its seed gives, the same in every process."""
    import torch

    from tslm.models.probabilistic.hidden import HiddenStates
    from tslm.models.probabilistic.states import start_from
    from tslm.models.trainable import Trainable

    assert recipe.train is not None  # noqa: S101
    trained = model_class(recipe.kind)
    assert issubclass(trained, Trainable)  # noqa: S101
    torch.manual_seed(recipe.train.seed)
    model = trained(recipe.model, corpus.vocabulary)
    model.prepare(corpus)
    if isinstance(model, HiddenStates) and model.config.start_run:
        start_from(model, load(model.config.start_run), corpus.splits["train"])
    return model
