"""A run as one TOML file: corpus, model, training. Read, checked, overridden, written back in full."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import tomli_w

from tslm.config import read_config, write_config
from tslm.corpus.sources import CorpusConfig
from tslm.errors import RecipeError, nearest
from tslm.files import read_path, read_regular, write_text
from tslm.models.base import Estimated
from tslm.models.registry import model_class, read_model
from tslm.shipped import shipped
from tslm.training.config import ObjectiveConfig, TrainConfig

LARGEST_FILE = 1 << 20
"""Bytes of a recipe."""

TABLES = ("corpus", "model", "train", "objective")

MADE_BY = {
    "interpolation": "tslm compare RUN RUN --mix linear --out FOLDER",
    "gated-mixture": "tslm compare RUN RUN --mix gated --out FOLDER",
    "cache": "tslm eval RUN --cache auto --out FOLDER",
    "backoff": "tslm arpa import FILE --out FOLDER, or tslm train --counts FOLDER",
}
"""The kinds that are made of something else than a text, and the commands that make them."""

Origin = Literal["trained", "estimated", "made"]
"""Where a model comes from: gradients, counts, or (a mix, an imported file) something else than a text."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that decides a run."""

    corpus: CorpusConfig
    kind: str
    """The kind of model: ``kind`` in the ``[model]`` table."""
    model: Any
    """The rest of the ``[model]`` table, as that kind's config dataclass."""
    train: TrainConfig | None = None
    """None for models that are not trained by gradients."""
    objective: ObjectiveConfig | None = None


def origin_of(kind: str) -> Origin:
    """Return where models of a kind come from."""
    model = model_class(kind)
    if hasattr(model, "begin"):
        return "trained"
    return "estimated" if issubclass(model, Estimated) else "made"


def read_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        path: the TOML file, or the name of one of the project's own recipes: ``ptb/kn5``.
        overrides: changes such as ``train.seed=2``, applied in order.

    Raises:
        RecipeError: the file is missing or not TOML, or a key or value is wrong.

    Example:
        >>> read_recipe("ptb/kn5", ["model.order=3"]).model.order
        3
    """
    path = find_recipe(read_path(path, "recipe"))
    try:
        tables = tomllib.loads(read_regular(path, LARGEST_FILE).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        hint = "give a file, or a name that tslm recipes lists"
        if isinstance(error, FileNotFoundError) and get_close_matches(str(path), names := recipe_names()):
            hint = nearest(str(path), names)
        raise RecipeError(f"cannot read the recipe {path}: {reason}; {hint}") from error
    for override in overrides:
        _override(tables, override)
    return make_recipe(tables)


def recipe_folder() -> Path:
    """Return the folder of the project's own recipes."""
    return shipped("recipes")


def recipe_names() -> list[str]:
    """Return the names of the project's own recipes, such as ``asv/kn5``."""
    return sorted(f"{path.parent.name}/{path.stem}" for path in recipe_folder().glob("*/*.toml"))


def find_recipe(name: Path) -> Path:
    """Return ``name`` if it is a file, else the project's own recipe of that name (``ptb/kn5``), else ``name``."""
    own = recipe_folder() / (name if name.suffix == ".toml" else f"{name}.toml")
    try:
        return own if not name.exists() and own.exists() else name
    except OSError:  # a name too long for a file
        return name


def make_recipe(tables: Mapping[str, Any]) -> Recipe:
    """Check the tables of a recipe and turn them into config dataclasses."""
    for name in tables:
        if name not in TABLES:
            raise RecipeError(f"unknown table [{name}]: {nearest(name, TABLES)}")
        if not isinstance(tables[name], Mapping):
            raise RecipeError(
                f"{name} = {tables[name]!r} is not a table; write [{name}] and its keys below it"
            )
    kind, model = read_model(tables.get("model", {}))
    corpus = read_config(CorpusConfig, tables.get("corpus", {}), "corpus")
    if origin_of(kind) == "trained":
        train = read_config(TrainConfig, tables.get("train", {}), "train")
        objective = read_config(ObjectiveConfig, tables.get("objective", {}), "objective")
        return Recipe(corpus=corpus, kind=kind, model=model, train=train, objective=objective)
    for name in ("train", "objective"):
        if name in tables:
            raise RecipeError(
                f"a model of kind {kind!r} is not trained by gradients: remove the [{name}] table"
            )
    return Recipe(corpus=corpus, kind=kind, model=model)


def recipe_tables(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as the tables of a TOML file, every default written out."""
    tables = {
        "corpus": write_config(recipe.corpus),
        "model": {"kind": recipe.kind, **write_config(recipe.model)},
    }
    if recipe.train is not None and recipe.objective is not None:
        tables["train"] = write_config(recipe.train)
        tables["objective"] = write_config(recipe.objective)
    return tables


def write_recipe(path: Path, recipe: Recipe) -> None:
    """Write a recipe as TOML, every default written out."""
    write_text(path, tomli_w.dumps(recipe_tables(recipe)))


def _override(tables: dict[str, Any], override: str) -> None:
    """Apply one ``table.key=value``; the value is read as TOML, or as a string where it is not TOML."""
    name, separator, text = override.partition("=")
    *sections, key = name.strip().split(".")
    if not separator or not sections or not all((*sections, key)):
        raise RecipeError(f"--set {override!r} is not of the form table.key=value, for example train.seed=2")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    table = tables
    for place, section in enumerate(sections, 1):
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            named = ".".join(sections[:place])
            raise RecipeError(f"{named} = {table!r} is not a table; write [{named}] and its keys below it")
    table[key] = value
