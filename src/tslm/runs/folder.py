"""The run folder: what a run writes, who may write it, and what of it is kept."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from filelock import FileLock, Timeout

from tslm.corpus.rule import RULE_FILE, TextRule, load_rule
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RunError
from tslm.files import clear_leftovers, write_text
from tslm.models.arrays import WEIGHTS
from tslm.runs.recipe import Recipe, read_recipe, recipe_tables, write_recipe
from tslm.runs.summary import SUMMARY, read_summary
from tslm.seals import check_seal, seal, unseal
from tslm.training.metrics import METRICS
from tslm.training.position import STATE

RECIPE = "recipe.toml"
VOCABULARY = "vocabulary.txt"
ADDITION = "addition.json"
"""What a sum of models was made of."""
LOCK = ".lock"

SMALL = (RECIPE, VOCABULARY, RULE_FILE)
"""What is written before a run begins and does not change."""


@contextmanager
def locked_run(folder: Path) -> Generator[None, None, None]:
    """Make the folder and keep other processes from training in it. The lock ends with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        raise RunError(
            f"{folder} is in use by another process; wait for it, or choose another folder with --out"
        ) from None
    except OSError as error:
        raise RunError(
            f"cannot write in {folder}: {error.strerror}; choose another folder with --out"
        ) from error
    try:
        clear_leftovers(folder)
        yield
    finally:
        lock.release()


def in_use(folder: Path) -> bool:
    """Tell whether another process is training in the folder."""
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:  # no folder yet, or one for the run itself to complain of
        return False
    lock.release()
    return False


def prepare_folder(
    folder: Path, recipe: Recipe, vocabulary: Vocabulary, rule: TextRule | None = None
) -> None:
    """Write recipe, vocabulary and text rule, or check that the folder holds a run of the very same ones."""
    rule = rule or TextRule()
    # A run that failed before it had learnt anything leaves nothing that a changed recipe could spoil.
    if any((folder / name).exists() for name in (WEIGHTS, STATE, SUMMARY)):
        check_small(folder)
        check_same(folder, recipe)
        if (folder / VOCABULARY).exists() and Vocabulary.load(folder / VOCABULARY) != vocabulary:
            raise RunError(
                f"{folder} holds a run on another text: its vocabulary differs; choose another folder with --out"
            )
        if (folder / RULE_FILE).exists() and load_rule(folder / RULE_FILE) != rule:
            raise RunError(
                f"{folder} holds a run on another text: it was cut into words in another way; choose another folder "
                "with --out"
            )
    unseal(folder, SMALL)
    rule.save(folder / RULE_FILE)
    vocabulary.save(folder / VOCABULARY)
    write_recipe(folder / RECIPE, recipe)
    seal(folder, SMALL)


def check_small(folder: Path) -> None:
    """Raise a RunError where recipe, vocabulary or text rule of a folder are gone, or not as they were written."""
    for name in SMALL:
        check_seal(folder / name)


def check_same(folder: Path, recipe: Recipe) -> None:
    """Raise a RunError where the folder holds a run of another recipe, with the settings that differ."""
    if not (folder / RECIPE).exists():
        return
    before, now = (_flat(recipe_tables(one)) for one in (read_recipe(folder / RECIPE), recipe))
    # Where a run computes is no part of what it is: one that was begun on an accelerator may end on the CPU.
    keys = {*before, *now} - {"train.device"}
    changed = sorted(key for key in keys if before.get(key) != now.get(key))
    if changed:
        raise RunError(
            f"{folder} holds a run of another recipe (different: {', '.join(changed)}); "
            "choose another folder with --out, or delete this one"
        )


def keep(run: Path, folder: Path, place: str | None = None) -> Path:
    """Copy what tells of a finished run, not its weights, to ``folder/<place>``.

    By default that is ``<corpus>/<run>``, or ``tuning/<corpus>/<run>`` for a trial, which has not read the test split.
    """
    summary = read_summary(run)
    if summary is None:
        raise RunError(f"{run} holds no finished run; finish it with tslm train")
    corpus = summary.corpus.name
    name = f"{corpus}/{run.name.removeprefix(f'{corpus}-')}"
    kept = folder / (place or (name if summary.test is not None else f"tuning/{name}"))
    for file in (SUMMARY, RECIPE, METRICS, ADDITION):
        if (run / file).exists():
            write_text(kept / file, (run / file).read_text(encoding="utf-8"))
    return kept


def _flat(tables: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested tables as one, with dots between the names."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= _flat(cast(Mapping[str, Any], value), f"{before}{key}.")
        else:
            flat[f"{before}{key}"] = value
    return flat
