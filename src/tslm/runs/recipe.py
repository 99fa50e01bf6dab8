"""A run as one TOML file: corpus, model, training. Read, checked, overridden, written back in full."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tomli_w

from tslm.config import check, read_config, write_config
from tslm.corpus.sources import CorpusConfig
from tslm.errors import RecipeError, nearest
from tslm.files import write_text
from tslm.models.registry import config_class, model_class
from tslm.training.objective import ObjectiveConfig


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a recurrent model is trained."""

    epochs: int = 20
    """How often the training split is read."""

    batch: int = 40
    """B: how many columns the text is cut into; all are read side by side."""

    window: int = 35
    """T: how many words gradients flow back through."""

    state: Literal["carried", "reset"] = "carried"
    """Carry the state from window to window, or start anew at each (then T is the order n of the tensor)."""

    optimiser: Literal["adamw", "sgd"] = "adamw"
    """AdamW, or plain SGD (which goes well with ``schedule = "plateau"``)."""

    learning_rate: float = 0.003
    """The highest learning rate."""

    warm_up: float = 0.1
    """The share of all steps in which the rate rises from zero."""

    schedule: Literal["cosine", "constant", "plateau"] = "cosine"
    """After the warm-up: fall to zero along a cosine, stay, or divide by four when validation gets worse."""

    weight_decay: float = 0.0
    """The optimiser's decay of matrices; vectors are never decayed."""

    beta2: float = 0.99
    """AdamW's memory of squared gradients."""

    clip: float = 0.25
    """The largest norm of the gradient."""

    average: float = 0.0
    """The decay of an exponential average of the weights, which is then what is validated and saved; 0 for none."""

    activation_penalty: float = 0.0
    """The weight of the mean square of what the head makes of the (dropped-out) last states, its latents."""

    change_penalty: float = 0.0
    """The weight of the mean square of the change of the last state from word to word."""

    patience: int = 0
    """Stop after this many epochs without a better validation perplexity; 0 never stops early."""

    metric_steps: int = 100
    """How many steps lie between two lines of ``metrics.jsonl``."""

    checkpoint_steps: int = 500
    """How many steps may be lost when the run is killed."""

    test: bool = True
    """Read the test split once, at the end; trials, among which validation chooses, leave it alone."""

    seed: int = 1
    """Decides the initial weights, the dropout and the sampled words."""

    threads: int = 0
    """How many threads to compute with; 0 takes what PyTorch takes. Results repeat bit for bit for a fixed number."""

    def __post_init__(self) -> None:
        for key in ("epochs", "batch", "window", "metric_steps", "checkpoint_steps"):
            value = getattr(self, key)
            check(value >= 1, f"train.{key} = {value} must be 1 or more")
        for key in ("weight_decay", "activation_penalty", "change_penalty", "patience", "seed", "threads"):
            value = getattr(self, key)
            check(value >= 0, f"train.{key} = {value} must not be negative")
        check(self.seed < 2**63, f"train.seed = {self.seed} is too large; take one below 2^63")
        for key in ("learning_rate", "clip"):
            value = getattr(self, key)
            check(value > 0, f"train.{key} = {value} must be positive")
        for key in ("warm_up", "average", "beta2"):
            value = getattr(self, key)
            check(0 <= value < 1, f"train.{key} = {value} must lie in [0, 1)")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that decides a run."""

    corpus: CorpusConfig
    kind: str
    """The kind of model: ``kind`` in the ``[model]`` table."""
    model: Any
    """The rest of the ``[model]`` table, as that kind's config dataclass."""
    train: TrainConfig | None = None
    """None for models that are counted, not trained."""
    objective: ObjectiveConfig | None = None


def is_trained(kind: str) -> bool:
    """Whether a kind of model is trained by gradients; the others are counted, mixed or imported."""
    return hasattr(model_class(kind), "begin")


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        path: the TOML file, or the name of one of the project's own recipes: ``ptb/kn5``.
        overrides: changes such as ``train.seed=2``, applied in order.

    Raises:
        RecipeError: the file is missing or not TOML, or a key or value is wrong.
    """
    path = find_recipe(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RecipeError(
            f"cannot read the recipe {path}: {reason}; give a file, or a name such as ptb/kn5"
        ) from error
    for override in overrides:
        _override(tables, override)
    return make_recipe(tables)


def recipe_folder() -> Path:
    """Return the folder of the project's own recipes: beside ``src`` in a checkout, inside an installed package."""
    package = Path(__file__).parents[1]
    inside = package / "recipes"
    return inside if inside.is_dir() else package.parents[1] / "recipes"


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
        if name not in ("corpus", "model", "train", "objective"):
            raise RecipeError(
                f"unknown table [{name}]: {nearest(name, ['corpus', 'model', 'train', 'objective'])}"
            )
        if not isinstance(tables[name], Mapping):
            raise RecipeError(
                f"{name} = {tables[name]!r} is not a table; write [{name}] and its keys below it"
            )
    model = dict(tables.get("model", {}))
    if "kind" not in model:
        raise RecipeError(
            "missing key 'model.kind': say which model to train, for example kind = \"kneser-ney\""
        )
    kind = str(model.pop("kind"))
    recipe_model = read_config(config_class(kind), model, "model")
    corpus = read_config(CorpusConfig, tables.get("corpus", {}), "corpus")
    if is_trained(kind):
        train = read_config(TrainConfig, tables.get("train", {}), "train")
        objective = read_config(ObjectiveConfig, tables.get("objective", {}), "objective")
        return Recipe(corpus=corpus, kind=kind, model=recipe_model, train=train, objective=objective)
    for name in ("train", "objective"):
        if name in tables:
            raise RecipeError(f"a model of kind {kind!r} is counted, not trained: remove the [{name}] table")
    return Recipe(corpus=corpus, kind=kind, model=recipe_model)


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
    *path, key = name.strip().split(".")
    if not separator or not path or not all((*path, key)):
        raise RecipeError(f"--set {override!r} is not of the form table.key=value, for example train.seed=2")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    section: Any = tables
    for place, table in enumerate(path, 1):
        section = section.setdefault(table, {})
        if not isinstance(section, dict):
            where = ".".join(path[:place])
            raise RecipeError(f"{where} = {section!r} is not a table; write [{where}] and its keys below it")
    section[key] = value
