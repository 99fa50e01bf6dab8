"""The run folder: what a run writes, who may write it, and what is in it."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RunError, TslmError
from tslm.files import to_json, write_text
from tslm.models.weights import WEIGHTS
from tslm.runs.recipe import Recipe, read_recipe, recipe_tables, write_recipe
from tslm.training.checkpoint import STATE

RECIPE = "recipe.toml"
VOCABULARY = "vocabulary.txt"
METRICS = "metrics.jsonl"
SUMMARY = "summary.json"
LOCK = ".lock"


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


def prepare_folder(folder: Path, recipe: Recipe, vocabulary: Vocabulary) -> None:
    """Write recipe and vocabulary, or check that the folder holds a run of the very same recipe."""
    path = folder / RECIPE
    # A run that failed before it had learnt anything leaves nothing that a changed recipe could spoil.
    begun = any((folder / name).exists() for name in (WEIGHTS, STATE, SUMMARY))
    if begun and path.exists():
        before, now = recipe_tables(read_recipe(path)), recipe_tables(recipe)
        if before != now:
            changed = sorted(
                f"{table}.{key}"
                for table in {*before, *now}
                for key in {*before.get(table, {}), *now.get(table, {})}
                if before.get(table, {}).get(key) != now.get(table, {}).get(key)
            )
            raise RunError(
                f"{folder} holds a run of another recipe (different: {', '.join(changed)}); "
                "choose another folder with --out, or delete this one"
            )
        if (folder / VOCABULARY).exists() and Vocabulary.load(folder / VOCABULARY) != vocabulary:
            raise RunError(
                f"{folder} holds a run on another text: its vocabulary differs; choose another folder with --out"
            )
    vocabulary.save(folder / VOCABULARY)
    write_recipe(path, recipe)


def open_run(folder: Path) -> tuple[Recipe, Vocabulary]:
    """Read the recipe and the vocabulary of a run folder.

    Raises:
        RunError: the folder is missing, or is no run folder, or is damaged.
    """
    if not _is_folder(folder):
        raise RunError(f"no run folder at {folder}; train one with: tslm train RECIPE --out {folder}")
    if not (folder / RECIPE).exists():
        raise RunError(
            f"{folder} is no run folder: it has no {RECIPE}; give the folder that tslm train wrote"
        )
    try:
        return read_recipe(folder / RECIPE), Vocabulary.load(folder / VOCABULARY)
    except TslmError as error:
        raise RunError(f"the run folder {folder} is damaged: {error}") from error


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name too long for a file, a folder that may not be read
        return False


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Return the summary of a finished run, or None where the run is not finished."""
    path = folder / SUMMARY
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        if not {"kind", "corpus", "recipe", "valid"} <= summary.keys():
            raise ValueError("it is no summary of a run")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"cannot read {path}: {error}; delete it and run tslm train again") from error
    return summary


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write ``summary.json``; with it a run is finished."""
    write_text(folder / SUMMARY, to_json(dict(summary), indent=2) + "\n")


def keep(run: Path, folder: Path, place: str | None = None) -> Path:
    """Copy what tells of a finished run, not its weights, to ``folder/<place>``.

    By default that is ``<corpus>/<run>``, or ``tuning/<corpus>/<run>`` for a trial, which has not read the test split.
    """
    summary = read_summary(run)
    if summary is None:
        raise RunError(f"{run} holds no finished run; finish it with tslm train")
    corpus = summary["corpus"]["name"]
    name = f"{corpus}/{run.name.removeprefix(f'{corpus}-')}"
    kept = folder / (place or (name if "test" in summary else f"tuning/{name}"))
    for file in (SUMMARY, RECIPE, METRICS):
        if (run / file).exists():
            write_text(kept / file, (run / file).read_text(encoding="utf-8"))
    return kept


class Metrics:
    """``metrics.jsonl``: one JSON object per line, appended as the run goes."""

    def __init__(self, folder: Path, keep_bytes: int) -> None:
        """Open the file and cut it back to ``keep_bytes``: what the resumed run is going to repeat."""
        self.path = folder / METRICS
        with self.path.open("ab") as file:
            file.truncate(min(keep_bytes, self.size))

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add one line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(to_json(dict(entry)) + "\n")

    @property
    def size(self) -> int:
        """How many bytes the file has."""
        return self.path.stat().st_size
