"""A model that is made of others, as a run of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tslm.corpus.sources import Corpus
from tslm.errors import RunError
from tslm.evaluation.perplexity import Perplexity
from tslm.evaluation.scoring import Tick
from tslm.files import check_folder
from tslm.models.base import LanguageModel
from tslm.models.parts import Part, holds_parts
from tslm.runs.folder import RECIPE, locked_run, prepare_folder
from tslm.runs.recipe import Recipe, read_recipe
from tslm.runs.run import Run
from tslm.runs.summary import SUMMARY, Source, Split, Summary, summarise, write_summary
from tslm.runs.train import measure


def check_place(folder: str | Path | None, kind: str, first: Run, parts: Sequence[Part]) -> None:
    """Raise, before the work, where a model that is made of these parts has no place in a folder.

    The settings that are tuned are not known yet; ``save_model`` compares those.

    Raises:
        TslmError: it is no folder, or holds a run of another kind, on another corpus or of other parts.
    """
    if folder is None:
        return
    folder = Path(folder)
    check_folder(folder)
    if not (folder / SUMMARY).exists() or not (folder / RECIPE).exists():
        return
    there = read_recipe(folder / RECIPE)
    if there.kind != kind or there.corpus != first.recipe.corpus or not holds_parts(folder, parts):
        raise RunError(
            f"{folder} holds another run, of kind {there.kind!r} on {there.corpus.name}; choose another folder with "
            "--out, or delete this one"
        )


def save_model(
    model: LanguageModel[Any],
    folder: Path,
    first: Run,
    corpus: Corpus,
    *,
    parts: Sequence[str],
    measured: Mapping[Split, Perplexity] | None = None,
    tick: Tick | None = None,
) -> Summary:
    """Write a model that is made of others as a run folder that ``tslm.load`` opens and that needs theirs no more.

    Args:
        model: it; its settings are ``model.config``.
        folder: where to write it.
        first: the run of its first part; the recipe names its corpus.
        corpus: that corpus; valid and test are measured as for every run.
        parts: the kinds of its parts.
        measured: its perplexities, where they are known already.
        tick: told how many more tokens have been read.

    Returns:
        The summary.
    """
    recipe = Recipe(corpus=first.recipe.corpus, kind=model.kind, model=getattr(model, "config", None))
    with locked_run(folder):
        prepare_folder(folder, recipe, model.vocabulary, model.rule)
        model.save(folder)
        measured = measured or measure(model, corpus, recipe, ("valid", "test"), tick)
        summary = summarise(recipe, model, Source.of(corpus), measured, parts=tuple(parts))
        write_summary(folder, summary)
    return summary
