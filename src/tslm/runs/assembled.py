"""A run folder from the shards that a cluster has written."""

from __future__ import annotations

from pathlib import Path

from tslm.corpus.sources import CorpusConfig
from tslm.errors import RunError
from tslm.files import check_folder
from tslm.models.arrays import WEIGHTS
from tslm.models.ngram.backoff import BackoffConfig, BackoffModel
from tslm.models.ngram.shards import DESCRIPTION, Shards, assemble_model, open_shards
from tslm.progress import track_count
from tslm.runs.folder import locked_run, prepare_folder
from tslm.runs.recipe import Recipe
from tslm.runs.summary import SUMMARY, Source, Summary, summarise, write_summary
from tslm.seals import hash_whole, sealed
from tslm.training.position import STATE


def assemble_run(counts: Path, folder: Path) -> Summary:
    """Make a run of what ``tslm count`` wrote; memory holds a batch of n-grams at a time.

    Args:
        counts: the folder of shards.
        folder: the run folder to write.

    Raises:
        RunError: the shards are missing, unfinished or damaged, or the folder holds a run already.
        TslmError: it is no folder, or pyarrow is not installed.
    """
    # What was killed leaves no summary, and is simply done once more.
    if any((folder / name).exists() for name in (SUMMARY, STATE)):
        raise RunError(f"{folder} holds a run already; choose another folder with --out, or delete it")
    check_folder(folder)
    shards = open_shards(counts)
    config = BackoffConfig(order=shards.order)
    recipe = Recipe(corpus=CorpusConfig(name=counts.resolve().name), kind=BackoffModel.kind, model=config)
    with locked_run(folder):
        prepare_folder(folder, recipe, shards.vocabulary, shards.rule)
        with (
            sealed(folder / WEIGHTS) as temporary,
            track_count(f"writing {folder / WEIGHTS}", sum(shards.sizes), "n-grams") as tick,
        ):
            assemble_model(shards, temporary, tick)
        # Opened as everybody will open it, which checks that the arrays fit together.
        model = BackoffModel.load(folder, config, shards.vocabulary)
        # There is no split that it could be measured on.
        summary = summarise(recipe, model, _describe(shards), {}, seconds=shards.description["seconds"])
        write_summary(folder, summary)
    return summary


def _describe(shards: Shards) -> Source:
    return Source(
        name=shards.folder.resolve().name,
        fingerprint=hash_whole(shards.folder / DESCRIPTION),
        vocabulary=len(shards.vocabulary),
        train_tokens=int(shards.description["tokens"]),
    )
