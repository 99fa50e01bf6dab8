"""Models inside a model: each part is saved with its own settings and vocabulary, and needs its old folder no more."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from tslm.config import write_config
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RecipeError, RunError
from tslm.files import read_regular, write_text
from tslm.models.base import LanguageModel
from tslm.models.registry import model_class, read_model
from tslm.seals import check_seal, seal, unseal

PARTS = "parts"
"""The folder of the parts in a run folder: ``parts/1``, ``parts/2`` …"""

_FILES = ("model.toml", "vocabulary.txt")


@dataclass(frozen=True)
class Part:
    """A model inside another, with what is needed to save and load it."""

    model: LanguageModel[Any]
    config: Any
    """Its ``[model]`` table as a config dataclass."""


def parts_without_cache(parts: Sequence[Part]) -> list[Part] | None:
    """Return the parts with caches that say nothing; None where no part has one."""
    silent = [part.model.without_cache() for part in parts]
    if not any(silent):
        return None
    return [Part(model or part.model, part.config) for model, part in zip(silent, parts, strict=True)]


def save_parts(parts: Sequence[Part], folder: Path) -> None:
    """Write every part into ``parts/``."""
    for place, part in enumerate(parts, 1):
        home = folder / PARTS / str(place)
        home.mkdir(parents=True, exist_ok=True)
        unseal(home, _FILES)
        part.model.vocabulary.save(home / "vocabulary.txt")
        write_text(home / _FILES[0], _describe(part))
        part.model.save(home)
        seal(home, _FILES)


def holds_parts(folder: Path, parts: Sequence[Part]) -> bool:
    """Tell whether the parts in ``parts/`` are of the same kinds and settings, in the same order."""
    found = [folder / PARTS / str(place) / _FILES[0] for place in range(1, len(parts) + 1)]
    return all(
        path.is_file() and read_regular(path, 1 << 20) == _describe(part).encode()
        for path, part in zip(found, parts, strict=True)
    )


def _describe(part: Part) -> str:
    return tomli_w.dumps({"kind": part.model.kind, **write_config(part.config)})


def load_parts(folder: Path, number: int, vocabulary: Vocabulary) -> list[Part]:
    """Read what :func:`save_parts` wrote.

    Raises:
        RunError: a part is missing or damaged, or the first knows other words than the whole.
    """
    parts = [_load_part(folder / PARTS / str(place)) for place in range(1, number + 1)]
    if parts[0].model.vocabulary != vocabulary:
        raise RunError(f"{folder} is damaged: its vocabulary is not that of its first part")
    return parts


def _load_part(home: Path) -> Part:
    for name in _FILES:
        check_seal(home / name)
    try:
        table = tomllib.loads(read_regular(home / "model.toml", 1 << 20).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"cannot read {home / 'model.toml'}: {error}; copy the whole run folder") from error
    try:
        kind, config = read_model(table)
    except RecipeError as error:
        raise RunError(f"{home / 'model.toml'} is damaged: {error}") from error
    return Part(model_class(kind).load(home, config, Vocabulary.load(home / "vocabulary.txt")), config)
