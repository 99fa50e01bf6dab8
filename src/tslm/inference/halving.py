"""A trained model stored in half precision: half the bytes, and what that costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from tslm.errors import RunError, UnsupportedError
from tslm.evaluation.perplexity import Perplexity
from tslm.files import to_json, write_text
from tslm.inference.inputs import ModelLike, as_run
from tslm.models.arrays import WEIGHTS
from tslm.models.weights import load_weights, save_weights
from tslm.runs.folder import locked_run, prepare_folder
from tslm.runs.recipe import origin_of
from tslm.runs.run import load
from tslm.runs.summary import Source, Split, summarise, write_summary
from tslm.runs.train import measure

REPORT = "halving.json"


@dataclass(frozen=True, kw_only=True)
class Halving:
    """What became of a model, and where it is."""

    folder: Path
    bytes_before: int
    """Of the file of weights."""
    bytes_after: int
    before: dict[Split, float]
    """Perplexity of the model as it was, on valid and, where the run has read it, test."""
    after: dict[Split, float]
    """Perplexity of the one in half precision."""

    @property
    def loss(self) -> float:
        """What the valid perplexity has risen by, as a share."""
        return self.after["valid"] / self.before["valid"] - 1

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {**asdict(self), "folder": str(self.folder), "loss": self.loss}


def halve(run: ModelLike, out: str | Path, *, data_dir: str | Path | None = None) -> Halving:
    """Store a trained model's numbers with 16 bits instead of 32, as a run folder of its own.

    Only the file is smaller: what is read from it is computed with in single precision, as before. Perplexity is
    measured before and after.

    Args:
        run: the run folder of a model that was trained by gradients.
        out: the folder to write.
        data_dir: where to look for named corpora first.

    Raises:
        UnsupportedError: the model is counted (``model.bits = 8`` makes a small n-gram model), or made of others.
        RunError: a weight is too large for half precision, or the folder is wrong.
    """
    opened, folder = as_run(run), Path(out)
    if origin_of(opened.recipe.kind) != "trained":
        raise UnsupportedError(
            f"a model of kind {opened.recipe.kind!r} has no weights to halve; an n-gram model is made small by "
            "training it with --set model.bits=8"
        )
    if folder.resolve() == opened.folder.resolve():
        raise RunError(f"{folder} is the run itself; choose another folder with --out")
    corpus = opened.open_corpus(data_dir)
    weights = load_weights(opened.folder)
    halved = {
        name: tensor.half() if tensor.dtype == torch.float32 else tensor for name, tensor in weights.items()
    }
    for name, tensor in halved.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise RunError(
                f"{opened.folder}: {name!r} holds numbers too large for half precision (above 65,504)"
            )
    splits: tuple[Split, ...] = (
        ("valid",) if opened.recipe.train is not None and not opened.recipe.train.test else ("valid", "test")
    )
    before = measure(opened.model, corpus, opened.recipe, splits)
    with locked_run(folder):
        prepare_folder(folder, opened.recipe, opened.vocabulary, opened.rule)
        save_weights(folder, halved)
        made = load(folder)
        after = measure(made, corpus, opened.recipe, splits)
        # It has learnt what the run has learnt, and nothing since.
        past = opened.summary
        seconds, training = (None, None) if past is None else (past.seconds, past.training)
        write_summary(
            folder,
            summarise(opened.recipe, made, Source.of(corpus), after, seconds=seconds, training=training),
        )
        report = Halving(
            folder=folder,
            bytes_before=(opened.folder / WEIGHTS).stat().st_size,
            bytes_after=(folder / WEIGHTS).stat().st_size,
            before=_values(before),
            after=_values(after),
        )
        write_text(folder / REPORT, to_json(report.as_json() | {"folder": folder.name}, indent=2) + "\n")
    return report


def _values(measured: dict[Split, Perplexity]) -> dict[Split, float]:
    return {split: found.perplexity for split, found in measured.items()}
