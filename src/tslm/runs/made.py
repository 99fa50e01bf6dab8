"""A model that is made of others, as a run of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tslm.corpus.sources import Corpus
from tslm.evaluation.perplexity import Perplexity
from tslm.evaluation.scoring import Tick
from tslm.models.base import LanguageModel
from tslm.runs.folder import locked_run, prepare_folder
from tslm.runs.recipe import Recipe
from tslm.runs.run import Run
from tslm.runs.summary import Source, Split, Summary, summarise, write_summary
from tslm.runs.train import measure


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
