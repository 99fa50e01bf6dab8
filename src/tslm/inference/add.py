"""Trained models added up: one network whose logits are the sum of theirs, as a run of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from tslm.errors import NumberError, RunError
from tslm.evaluation.scoring import Tick
from tslm.files import check_folder, to_json, write_text
from tslm.inference.evaluate import encode
from tslm.inference.inputs import ModelLike, TextLike, as_run, check_several
from tslm.inference.interpolate import climb
from tslm.models.recurrent.addition import add_models, check_addable, check_weights
from tslm.models.recurrent.heads.base import LOGITS
from tslm.models.recurrent.model import RecurrentModel
from tslm.runs.folder import ADDITION, locked_run, prepare_folder
from tslm.runs.pretrained import name_run
from tslm.runs.run import Run, load
from tslm.runs.summary import SUMMARY, Source, Training, summarise, write_summary
from tslm.runs.train import measure

TUNED = 10_000
"""How many words the weights are tuned on: a few numbers need no more, and each word needs all words' logits."""


@dataclass(frozen=True, kw_only=True)
class Term:
    """One of the models that are added."""

    folder: str
    """Its run folder, or the name of a model that comes with the package."""
    weight: float
    """λ: what its logits are multiplied by."""
    rank: int
    parameters: int
    valid: float | None
    """Its own perplexity on valid, where its run says it."""
    test: float | None


@dataclass(frozen=True, kw_only=True)
class Addition:
    """A sum of models, and where it is."""

    folder: Path
    terms: tuple[Term, ...]
    rank: int
    parameters: int
    """All numbers of the sum; those off the diagonal, where one term's words would meet another's units, are zero."""
    valid: float
    """Perplexity on valid, on whose first words the weights were tuned unless they or another text were given."""
    test: float | None
    """None where a term is a trial, which leaves the test split alone."""

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {**asdict(self), "folder": str(self.folder)}

    def kept(self) -> dict[str, Any]:
        """Return what its own folder keeps: folders by their names, wherever they were."""
        terms = [
            asdict(term) | {"folder": Path(term.folder).name if Path(term.folder).is_dir() else term.folder}
            for term in self.terms
        ]
        return {**self.as_json(), "folder": self.folder.name, "terms": terms}


def add(
    runs: Sequence[ModelLike],
    out: str | Path,
    *,
    weights: Sequence[float] | None = None,
    tune: TextLike | None = None,
    data_dir: str | Path | None = None,
    tick: Tick | None = None,
) -> Addition:
    """Eqs. 17, 20. Add the tensors of trained models up to one, and save it as a run folder of its own.

    The logits of the sum are the weighted sum of the models' logits, so it predicts what their log-linear mix does; but
    it is a single network, with the ranks added up: it is explained, compressed, adapted and exported as any other.
    The recipe in its folder is the first run's, with the size of the sum; ``addition.json`` has the terms. A term whose
    weight is zero is named there and left out of the network.

    Args:
        runs: two or more run folders of recurrent models over the same words, with one kind of cell and one softmax.
        out: the folder to write.
        weights: of the logits; tuned when left out.
        tune: the text to tune on, of which the first 10,000 words are read; the valid split of the first run's corpus
            when left out, never test.
        data_dir: where to look for named corpora first.
        tick: told how many more tokens have been read.

    Raises:
        TslmError: a run, the text, or the corpus, which the sum is measured on, cannot be read, or the sum of the
            models is no such model.
    """
    check_several(runs, "run folders to add")
    opened, folder = [as_run(run) for run in runs], Path(out)
    models = [run.model for run in opened]
    check_addable(models)
    recurrent = cast(list[RecurrentModel], models)
    if any(folder.resolve() == run.folder.resolve() for run in opened):
        raise RunError(f"{folder} is one of the models itself; choose another folder with --out")
    if weights is not None and tune is not None:
        raise RunError("weights are given or tuned; leave one of them out")
    if weights is not None:
        check_weights(weights, len(runs))
    check_folder(folder)
    # Not even one of the same shape is replaced: its terms may be others.
    if (folder / SUMMARY).exists():
        raise RunError(f"{folder} holds a run already; choose another folder with --out, or delete this one")
    try:
        corpus = opened[0].open_corpus(data_dir)
    except RunError as error:
        raise RunError(f"a sum is measured on what its first term was measured on, but {error}") from error
    if weights is None:
        ids = corpus.splits["valid"] if tune is None else encode(models[0], tune).ids
        weights = tune_weights(recurrent, ids[:TUNED], tick)
    used = [(model, weight) for model, weight in zip(recurrent, weights, strict=True) if weight]
    total = add_models([model for model, _ in used], [weight for _, weight in used])
    recipe = replace(opened[0].recipe, model=total.config)
    trial = any(run.recipe.train is not None and not run.recipe.train.test for run in opened)
    if recipe.train is not None:
        recipe = replace(recipe, train=replace(recipe.train, test=not trial))
    with locked_run(folder):
        prepare_folder(folder, recipe, total.vocabulary, total.rule)
        total.save(folder)
        made = load(folder)
        measured = measure(made, corpus, recipe, ("valid",) if trial else ("valid", "test"), tick)
        report = Addition(
            folder=folder,
            terms=tuple(_describe(run, float(weight)) for run, weight in zip(opened, weights, strict=True)),
            rank=total.config.rank,
            parameters=total.parameter_count,
            valid=measured["valid"].perplexity,
            test=measured["test"].perplexity if "test" in measured else None,
        )
        write_text(folder / ADDITION, to_json(report.kept(), indent=2) + "\n")
        seconds, training = _add_up(opened, len(corpus.splits["train"]))
        summary = summarise(
            recipe,
            made,
            Source.of(corpus),
            measured,
            seconds=seconds,
            training=training,
            parts=tuple(model.kind for model in models),
        )
        write_summary(folder, summary)
    return report


@torch.inference_mode()
def tune_weights(
    models: Sequence[RecurrentModel], ids: NDArray[np.int32], tick: Tick | None = None
) -> tuple[float, ...]:
    """Return the weights of the logits, none below zero, that give a text its highest probability.

    With weights λ the log-likelihood of a word is Σ λ_k y_k(word) − ln Σ_w exp Σ λ_k y_k(w), which is concave in λ: its
    gradient is y(word) − E[y], and minus its Hessian the covariance of y, by the sum's own probabilities. That is the
    log-linear mix once more; but a text is read once here, and its states serve for every step.

    Args:
        models: one softmax each.
        ids: the text.
        tick: told how many more tokens have been weighed, once for each step.

    Raises:
        NumberError: the text is empty, or no positive weight helps.
    """
    if not len(ids):
        raise NumberError("the text to tune the weights on is empty; give one with words")
    targets_N = torch.from_numpy(ids.astype(np.int64))
    read_T1 = torch.cat([torch.tensor([models[0].vocabulary.eos_id]), targets_N[:-1]]).unsqueeze(1)
    latents = [model.head(model.read(read_T1, model.begin(1))[0][:, 0])[0][:, 0] for model in models]

    rows = max(1, LOGITS // (len(models) * len(models[0].vocabulary)))

    def derive(weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        gradient_K, curvature_KK = np.zeros(len(models)), np.zeros((len(models), len(models)))
        for begin in range(0, len(targets_N), rows):
            part = slice(begin, begin + rows)
            found = _derive(models, [z[part] for z in latents], targets_N[part], torch.from_numpy(weights))
            gradient_K += found[0].numpy()
            curvature_KK += found[1].numpy()
            if tick is not None:
                tick(len(targets_N[part]))
        return gradient_K, curvature_KK

    return tuple(climb(derive, len(models)).tolist())


def _derive(
    models: Sequence[RecurrentModel],
    latents: Sequence[Float[Tensor, "n M"]],
    targets_n: Tensor,
    weights_K: Float[Tensor, " K"],
) -> tuple[Float[Tensor, " K"], Float[Tensor, "K K"]]:
    """Return the gradient of the log-likelihood of some words, and minus its Hessian."""
    logits_KnV = torch.stack(
        [z @ model.output_VM.t() + model.bias for z, model in zip(latents, models, strict=True)]
    )
    # Of models that are nearly alike the covariance is nearly singular; single precision would lose their difference.
    logits_KnV = logits_KnV.double()
    logits_KnV -= logits_KnV.mean(-1, keepdim=True)
    chance_nV = torch.einsum("k,knv->nv", weights_K, logits_KnV).softmax(-1)
    mean_Kn = (logits_KnV * chance_nV).sum(-1)
    found_Kn = logits_KnV.gather(2, targets_n.expand(len(models), -1).unsqueeze(-1)).squeeze(-1)
    weighted_KX = (logits_KnV * chance_nV).flatten(1)
    curvature_KK = weighted_KX @ logits_KnV.flatten(1).t() - mean_Kn @ mean_Kn.t()
    return (found_Kn - mean_Kn).sum(1), curvature_KK


def _add_up(runs: Sequence[Run], tokens: int) -> tuple[float, Training]:
    """Return what the terms' training took together, as far as they say."""
    summaries = [run.summary for run in runs if run.summary is not None]
    seconds = sum(summary.seconds or 0.0 for summary in summaries)
    parts = [summary.training for summary in summaries if summary.training is not None]
    epochs = sum(part.epochs for part in parts)
    return seconds, Training(
        epochs=epochs,
        best_epoch=sum(part.best_epoch for part in parts),
        steps=sum(part.steps or 0 for part in parts),
        tokens_per_second=epochs * tokens / seconds if seconds else 0.0,
        threads=max((part.threads for part in parts), default=1),
    )


def _describe(run: Run, weight: float) -> Term:
    model, summary = run.model, run.summary
    assert isinstance(model, RecurrentModel)  # noqa: S101
    return Term(
        folder=name_run(run.folder),
        weight=weight,
        rank=model.config.rank,
        parameters=model.parameter_count,
        valid=summary.valid.perplexity if summary is not None and summary.valid is not None else None,
        test=summary.test.perplexity if summary is not None and summary.test is not None else None,
    )
