"""From a recipe to a finished run folder, and back from a run folder to a model."""

from __future__ import annotations

import platform
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from tslm.corpus.files import is_pipe
from tslm.corpus.reading import encode_file
from tslm.corpus.sources import Corpus, open_corpus
from tslm.errors import CorpusError, RunError
from tslm.evaluation.perplexity import Tick, evaluate, evaluate_windows
from tslm.models.base import Estimated, LanguageModel
from tslm.models.recurrent import kernel
from tslm.models.recurrent.model import RecurrentModel
from tslm.models.registry import model_class
from tslm.runs.folder import locked_run, open_run, prepare_folder, read_summary, write_summary
from tslm.runs.recipe import Recipe, is_trained, read_recipe, recipe_tables
from tslm.training.distributed import Group, joined_group
from tslm.training.trainer import Trainer
from tslm.training.watcher import Watcher


def load(folder: str | Path) -> LanguageModel[Any]:
    """Open the model of a run folder, whatever its kind. Nothing in the folder is executed.

    Raises:
        RunError: the folder is missing, damaged, or no run folder.
    """
    folder = Path(folder)
    recipe, vocabulary = open_run(folder)
    return model_class(recipe.kind).load(folder, recipe.model, vocabulary)


def run_folder(recipe: str | Path, out: str | Path | None = None, overrides: Sequence[str] = ()) -> Path:
    """Return ``out``, or ``runs/<corpus>-<recipe>`` with the overrides in its name."""
    if out is not None:
        return Path(out)
    path = Path(recipe)
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
) -> dict[str, Any]:
    """Run a recipe to its end and return its summary; a run that was broken off goes on, a finished one is read.

    Args:
        recipe: a recipe, or the path of one.
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
        folder = Path(out)
    else:
        folder = run_folder(recipe, out, overrides)
        recipe = read_recipe(Path(recipe), overrides)
    # A relative path would lead nowhere once the run is opened from another folder.
    paths = tuple(
        path if path == "-" or is_pipe(path) else str(Path(path).resolve()) for path in recipe.corpus.path
    )
    recipe = replace(recipe, corpus=replace(recipe.corpus, path=paths))
    corpus = open_corpus(recipe.corpus, data_dir=data_dir)
    with joined_group() as group:
        if not group.leads:
            if group.share(0.0):
                return {}
            return _train(recipe, corpus, folder, group, Watcher())
        with locked_run(folder):
            prepare_folder(folder, recipe, corpus.vocabulary)
            finished = read_summary(folder)
            if finished is not None and finished["corpus"]["fingerprint"] != corpus.fingerprint:
                raise RunError(
                    f"{folder} holds a run on another text: its fingerprint differs; choose another folder with --out"
                )
            group.share(float(finished is not None))
            return finished or _train(recipe, corpus, folder, group, watcher or Watcher())


def _train(recipe: Recipe, corpus: Corpus, folder: Path, group: Group, watcher: Watcher) -> dict[str, Any]:
    began = time.perf_counter()
    progress: dict[str, Any] = {}
    if is_trained(recipe.kind):
        assert recipe.train is not None  # noqa: S101
        if recipe.train.threads:
            torch.set_num_threads(recipe.train.threads)
        trainer = Trainer(recipe, corpus, folder, group, watcher)
        try:
            position = trainer.run()
        finally:
            watcher.close()
        if not group.leads:
            return {}
        seconds = position.seconds
        progress = {
            "epochs": position.epoch,
            "best_epoch": position.best_epoch,
            "steps": position.step,
            "tokens_per_second": position.epoch * len(corpus.splits["train"]) / max(seconds, 1e-9),
            "threads": torch.get_num_threads(),
            "kernel": kernel.active() is not None,
        }
        watcher.tell("measuring the final perplexity")
        model = load(folder)
        if recipe.train.state == "reset":
            # Trained as a tensor of order n, it is measured as one too.
            assert isinstance(model, RecurrentModel)  # noqa: S101
            length = recipe.train.window
            progress["valid_windows"] = evaluate_windows(model, corpus.splits["valid"], length)
    else:
        estimated = model_class(recipe.kind)
        if not issubclass(estimated, Estimated):
            raise RunError(
                f"a model of kind {recipe.kind!r} is made of finished models or read from a file, not estimated from a "
                "text: use tslm compare RUN RUN --mix linear --out, or tslm arpa import"
            )
        model = estimated.fit(recipe.model, corpus)
        seconds = time.perf_counter() - began
        model.save(folder)
    splits = ("valid", "test") if recipe.train is None or recipe.train.test else ("valid",)
    summary = {
        "kind": recipe.kind,
        "recipe": recipe_tables(recipe),
        "corpus": {
            "name": corpus.name,
            "fingerprint": corpus.fingerprint,
            "vocabulary": len(corpus.vocabulary),
            "train_tokens": len(corpus.splits["train"]),
        },
        "parameters": model.parameter_count,
        "seconds": seconds,
        **progress,
        # Validation has chosen by now: this is the one time that the test split is read.
        **{split: asdict(evaluate(model, corpus.splits[split])) for split in splits},
        "peak_memory_mb": peak_memory_mb(),
        "versions": {name: version(name) for name in ("tslm", "torch", "numpy")}
        | {"python": platform.python_version()},
    }
    write_summary(folder, summary)
    return summary


def peak_memory_mb() -> float:
    """Return the most memory that this process has held, in MB."""
    try:
        # Not ru_maxrss where there is a choice: on Linux a process begins with the peak of the one that started it.
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
            1024**2 if sys.platform == "darwin" else 1024
        )


def evaluate_run(
    folder: Path,
    *,
    split: str = "test",
    text: str | None = None,
    data_dir: str | Path | None = None,
    tick: Tick | None = None,
) -> dict[str, Any]:
    """Measure a run's model on a split of its own corpus, or on another text encoded with its vocabulary.

    Returns:
        The fields of ``Perplexity``, with ``split``, ``run``, ``corpus`` and ``fingerprint`` beside them.
    """
    recipe, vocabulary = open_run(folder)
    model = model_class(recipe.kind).load(folder, recipe.model, vocabulary)
    if text is None:
        try:
            corpus = open_corpus(recipe.corpus, data_dir=data_dir)
        except CorpusError as error:
            raise RunError(
                f"the corpus of {folder} is not here ({error}); or give a text with --text"
            ) from error
        if corpus.vocabulary != vocabulary:
            raise RunError(
                f"the corpus {corpus.name!r} found here has another vocabulary than {folder} was trained with; "
                "use the same files and options"
            )
        ids, name, fingerprint = corpus.splits[split], corpus.name, corpus.fingerprint
    else:
        read = encode_file(text, model.vocabulary, recipe.corpus.fixed_rule())
        ids, fingerprint, name, split = read.ids, read.fingerprint, text, "text"
    return {
        "run": str(folder),
        "corpus": name,
        "fingerprint": fingerprint,
        "split": split,
        **asdict(evaluate(model, ids, tick=tick)),
    }
