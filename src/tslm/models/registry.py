"""The kinds of models, by the name that recipes and run folders give them. Each is imported only when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tslm.errors import RecipeError, nearest
from tslm.models.base import LanguageModel

KINDS = {
    "uniform": ("tslm.models.ngram.unigram", "Uniform", "UniformConfig"),
    "unigram": ("tslm.models.ngram.unigram", "Unigram", "UnigramConfig"),
    "count-tensor": ("tslm.models.ngram.count_tensor", "CountTensor", "CountTensorConfig"),
    "kneser-ney": ("tslm.models.ngram.smoothed", "KneserNey", "KneserNeyConfig"),
    "backoff": ("tslm.models.ngram.backoff", "BackoffModel", "BackoffConfig"),
    "interpolation": ("tslm.models.interpolation", "Interpolation", "InterpolationConfig"),
    "compressed": ("tslm.models.ngram.compressed", "CompressedModel", "CompressedConfig"),
    "recurrent": ("tslm.models.recurrent.model", "RecurrentModel", "RecurrentConfig"),
}
"""kind → module, model class, config class."""


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
