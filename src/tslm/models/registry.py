"""The kinds of models, by the name that recipes and run folders give them. Each is imported only when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from tslm.config import read_config
from tslm.errors import RecipeError, nearest
from tslm.models.base import LanguageModel

KINDS = {
    "uniform": ("tslm.models.ngram.unigram", "Uniform", "UniformConfig"),
    "unigram": ("tslm.models.ngram.unigram", "Unigram", "UnigramConfig"),
    "count-tensor": ("tslm.models.ngram.count_tensor", "CountTensor", "CountTensorConfig"),
    "ngram": ("tslm.models.ngram.smoothed", "NgramModel", "NgramConfig"),
    "backoff": ("tslm.models.ngram.backoff", "BackoffModel", "BackoffConfig"),
    "interpolation": ("tslm.models.interpolation", "Interpolation", "InterpolationConfig"),
    "gated-mixture": ("tslm.models.gate", "GatedMixture", "GatedConfig"),
    "cache": ("tslm.models.cached", "CachedModel", "CachedConfig"),
    "compressed": ("tslm.models.ngram.compressed", "CompressedModel", "CompressedConfig"),
    "probabilistic": ("tslm.models.probabilistic.model", "ProbabilisticModel", "ProbabilisticConfig"),
    "joined": ("tslm.models.probabilistic.joined", "JoinedModel", "JoinedConfig"),
    "recurrent": ("tslm.models.recurrent.model", "RecurrentModel", "RecurrentConfig"),
}
"""kind → module, model class, config class."""


OLD_KINDS = {"kneser-ney": "ngram"}
"""What older recipes and run folders call a kind."""


def read_model(table: Mapping[str, Any], where: str = "model") -> tuple[str, Any]:
    """Read a ``[model]`` table: its kind, and the rest of it as that kind's config dataclass.

    A config class whose keys or values once had other names says so in a classmethod ``renew``, which is given the
    table and returns it in today's words; so recipes and run folders of older versions still open.

    Raises:
        RecipeError: the kind is missing or unknown, or a key or value is wrong.
    """
    rest = dict(table)
    if "kind" not in rest:
        raise RecipeError(f"missing key '{where}.kind': say which model, for example kind = \"ngram\"")
    given = str(rest.pop("kind"))
    kind = OLD_KINDS.get(given, given)
    config = config_class(kind)
    renew = getattr(config, "renew", None)
    return kind, read_config(config, rest if renew is None else renew(rest), where)


def model_class(kind: str) -> type[LanguageModel[Any]]:
    """Return the class of a kind of model."""
    module, name, _ = _entry(kind)
    return getattr(import_module(module), name)


def config_class(kind: str) -> type[Any]:
    """Return the config dataclass of a kind of model: its ``[model]`` table in a recipe."""
    module, _, name = _entry(kind)
    return getattr(import_module(module), name)


def _entry(kind: str) -> tuple[str, str, str]:
    if kind not in KINDS:
        raise RecipeError(f"unknown model.kind {kind!r}: {nearest(kind, KINDS)}")
    return KINDS[kind]
