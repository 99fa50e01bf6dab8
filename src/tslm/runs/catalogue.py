"""The recipes that come with the project, to choose from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tslm.runs.pretrained import pretrained_names
from tslm.runs.recipe import Recipe, find_recipe, read_recipe, recipe_names


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A recipe of the catalogue."""

    name: str
    """What ``tslm train`` and ``tslm.train`` take: ``ptb/kn5``."""
    corpus: str
    kind: str
    size: str
    """What is trained, and how large it is, in words."""
    path: Path
    """The TOML file."""
    pretrained: bool
    """Whether a model of it comes with the package: ``tslm.load`` takes its name."""

    def as_json(self) -> dict[str, Any]:
        """Return the entry as plain values."""
        return asdict(self) | {"path": str(self.path)}


def list_recipes() -> list[Entry]:
    """Return every recipe that comes with the project, by name."""
    entries: list[Entry] = []
    trained = pretrained_names()
    for name in recipe_names():
        path = find_recipe(Path(name))
        recipe = read_recipe(path)
        size = describe_size(recipe)
        entries.append(
            Entry(
                name=name,
                corpus=recipe.corpus.name,
                kind=recipe.kind,
                size=size,
                path=path,
                pretrained=name in trained,
            )
        )
    return entries


def describe_size(recipe: Recipe) -> str:
    """Return what a recipe trains, and how large it is, in words."""
    model = recipe.model
    if recipe.kind == "recurrent":
        built = "in a cascade" if model.cascade else "layers"
        layers = f", {model.layers} {built}" if model.layers > 1 else ""
        softmaxes = f", {model.head.experts} softmaxes" if model.head.kind == "mixture" else ""
        return f"{model.cell.kind.upper()} {model.rank}{layers}{softmaxes}"
    if recipe.kind == "ngram":
        return f"order {model.order}, {model.smoothing}"
    if recipe.kind in ("probabilistic", "joined"):
        beside = f" + order {model.order}" if recipe.kind == "joined" else ""
        return f"{model.rank:,} states{beside}"
    return f"order {model.order}" if hasattr(model, "order") else "single words"


def show_size(recipe: Recipe) -> str:
    """Return the size of a recipe's model for a table: ``order 5``, ``256 × 1, K = 3``."""
    model = recipe.model
    if recipe.kind == "recurrent":
        mixture = f", K = {model.head.experts}" if model.head.kind == "mixture" else ""
        return f"{model.rank} × {model.layers}{mixture}"
    if recipe.kind in ("probabilistic", "joined"):
        beside = f" + order {model.order}" if recipe.kind == "joined" else ""
        emissions = f"{model.clusters} clusters" if model.clusters > 1 else "dense"
        return f"{model.rank:,} states, {emissions}{beside}"
    if recipe.kind == "interpolation":
        return " + ".join(f"{weight:.2f}" for weight in model.weights)
    return f"order {model.order}" if hasattr(model, "order") else "–"
