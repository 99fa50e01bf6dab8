"""``summary.json``: what came of a run. One type, one writer and one reader for every way a model can be made."""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_type_hints

from tslm.corpus.sources import Corpus
from tslm.errors import RecipeError, RunError
from tslm.evaluation.perplexity import Perplexity
from tslm.files import read_regular, to_json
from tslm.models.base import LanguageModel
from tslm.runs.recipe import Recipe, make_recipe, origin_of, recipe_tables
from tslm.seals import check_seal, write_sealed

SUMMARY = "summary.json"

LARGEST_FILE = 1 << 24
"""Bytes of a summary."""

Split = Literal["valid", "test"]

TableT = TypeVar("TableT")


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a model was made from."""

    name: str
    """The corpus, or the file that an imported model came in."""

    fingerprint: str
    """SHA-256 over the corpus's vocabulary and ids, or of the imported file."""

    vocabulary: int
    """How many words there are."""

    train_tokens: int | None = None
    """How many tokens were learnt from; None where that is not known, as for an imported model."""

    @classmethod
    def of(cls, corpus: Corpus) -> Source:
        """Describe a corpus."""
        return cls(
            name=corpus.name,
            fingerprint=corpus.fingerprint,
            vocabulary=len(corpus.vocabulary),
            train_tokens=len(corpus.splits["train"]),
        )


@dataclass(frozen=True, kw_only=True)
class Training:
    """How the training of a model by gradients went."""

    epochs: int
    """Epochs that were trained."""

    best_epoch: int
    """The one with the lowest validation perplexity, which is the one that was kept."""

    steps: int | None = None
    tokens_per_second: float
    threads: int

    kernel: bool | None = None
    """Whether the compiled recurrence was used; None in summaries older than it."""

    valid_windows: float | None = None
    """The validation perplexity with the state started anew at each window, where it was trained so."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What came of a run; ``tslm.train`` returns it and ``summary.json`` holds it.

    Example:
        >>> summary = tslm.train("asv/kn5", "runs/asv-kn5")
        >>> summary.test.perplexity, summary.parameters
        (39.359, 2662233)
    """

    recipe: Recipe
    """All that decided the run, with every default."""

    corpus: Source
    """What the model was made from."""

    parts: tuple[str, ...] = ()
    """The kinds of the models that a mix is made of."""

    parameters: int
    """How many numbers the model stores."""

    seconds: float | None = None
    """The time spent training or counting; None for what was made in another way."""

    training: Training | None = None
    """None for what was not trained by gradients."""

    valid: Perplexity | None = None
    """None for an imported model, which has no corpus to be measured on."""

    test: Perplexity | None = None
    """None for an imported model, and for trials, which leave the test split alone."""

    peak_memory_mb: float | None = None
    """The most memory the process held; None where the system does not say."""

    versions: Mapping[str, str]

    @property
    def kind(self) -> str:
        """The kind of model."""
        return self.recipe.kind

    @property
    def splits(self) -> dict[Split, Perplexity]:
        """The perplexities that were measured."""
        measured: dict[Split, Perplexity | None] = {"valid": self.valid, "test": self.test}
        return {split: found for split, found in measured.items() if found is not None}

    def as_json(self) -> dict[str, Any]:
        """Return the summary as plain values, what is None left out."""
        return {
            "kind": self.kind,
            "recipe": recipe_tables(self.recipe),
            "corpus": plain_part(self.corpus),
            **({"parts": list(self.parts)} if self.parts else {}),
            "parameters": self.parameters,
            **_given("seconds", self.seconds),
            **({} if self.training is None else plain_part(self.training)),
            **{split: plain_part(found) for split, found in self.splits.items()},
            **_given("peak_memory_mb", self.peak_memory_mb),
            "versions": dict(self.versions),
        }


def summarise(
    recipe: Recipe,
    model: LanguageModel[Any],
    source: Source,
    measured: Mapping[Split, Perplexity],
    *,
    seconds: float | None = None,
    training: Training | None = None,
    parts: tuple[str, ...] = (),
) -> Summary:
    """Return the summary of a run that ends in this process.

    Args:
        recipe: what decided the run.
        model: what came of it.
        source: what it was made from.
        measured: its perplexities, as far as there are any.
        seconds: the time spent training or counting.
        training: how the training went, for what was trained.
        parts: the kinds of the parts, for a mix.
    """
    from importlib.metadata import version  # slow to import, and whoever only reads summaries needs it not

    return Summary(
        recipe=recipe,
        corpus=source,
        parts=parts,
        parameters=model.parameter_count,
        seconds=seconds,
        training=training,
        valid=measured.get("valid"),
        test=measured.get("test"),
        peak_memory_mb=peak_memory_mb(),
        versions={name: version(name) for name in ("tslm", "torch", "numpy")}
        | {"python": platform.python_version()},
    )


def write_summary(folder: Path, summary: Summary) -> None:
    """Write ``summary.json``; with it a run is finished."""
    write_sealed(folder / SUMMARY, to_json(summary.as_json(), indent=2) + "\n")


def read_summary(folder: Path) -> Summary | None:
    """Return the summary of a finished run, or None where the run is not finished.

    Raises:
        RunError: the file is damaged, or no summary of a run, or its recipe has settings that are unknown here.
    """
    path = folder / SUMMARY
    try:
        table = json.loads(read_regular(path, LARGEST_FILE))
        check_seal(path, "delete it and run tslm train again")
        return parse_summary(table)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, RecipeError) as error:
        raise RunError(f"cannot read {path}: {error}; delete it and run tslm train again") from error


def parse_summary(table: Any) -> Summary:
    """Return a summary from what ``Summary.as_json`` gave, by this version or an older one.

    Raises:
        ValueError: a part is missing or of the wrong type.
        RecipeError: its recipe has settings that are unknown here.
    """
    if not isinstance(table, dict):
        raise ValueError("it is no summary of a run")
    values = cast(dict[str, Any], table)
    recipe = make_recipe(_table(values, "recipe"))
    needed: set[str] = set()
    if origin_of(recipe.kind) != "made":
        needed = {"seconds", "valid"} if recipe.train is None else {"seconds", "valid", "epochs"}
        needed |= set() if recipe.train is not None and not recipe.train.test else {"test"}
    for key in sorted(needed - values.keys()):
        raise ValueError(f"{key!r} is missing")
    valid, test = (
        read_part(Perplexity, _table(values, split), f"{split}.") if split in values else None
        for split in ("valid", "test")
    )
    return Summary(
        recipe=recipe,
        corpus=read_part(Source, _table(values, "corpus"), "corpus."),
        parts=tuple(str(part) for part in values.get("parts", ())),
        parameters=_value(values, "parameters", int, ""),
        seconds=_value(values, "seconds", float, "") if "seconds" in values else None,
        training=read_part(Training, values, "") if "epochs" in values else None,
        valid=valid,
        test=test,
        peak_memory_mb=_value(values, "peak_memory_mb", float, "") if "peak_memory_mb" in values else None,
        versions={str(name): str(number) for name, number in _table(values, "versions").items()},
    )


def peak_memory_mb() -> float | None:
    """Return the most memory that this process has held, in MB; None where the system does not say (Windows)."""
    try:
        # Not ru_maxrss where there is a choice: on Linux a process begins with the peak of the one that started it.
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024**2 if sys.platform == "darwin" else 1024)


def _given(key: str, value: Any) -> dict[str, Any]:
    return {} if value is None else {key: value}


def plain_part(part: Any) -> dict[str, Any]:
    """Return a flat dataclass as plain values; what is None is left out, so that null can stand for infinity."""
    return {
        field.name: getattr(part, field.name)
        for field in fields(part)
        if getattr(part, field.name) is not None
    }


def _table(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = values.get(key)
    if not isinstance(found, dict):
        raise ValueError(f"{key!r} is missing, or no table")
    return cast(dict[str, Any], found)


def read_part(cls: type[TableT], values: Mapping[str, Any], where: str) -> TableT:
    """Make a flat dataclass from plain values; what it does not know is passed over."""
    hints = get_type_hints(cls)
    return cls(
        **{
            field.name: _value(values, field.name, hints[field.name], where)
            if field.name in values or not _is_optional(hints[field.name])
            else None
            for field in fields(cast(Any, cls))
        }
    )


def _value(values: Mapping[str, Any], key: str, hint: Any, where: str) -> Any:
    """Return an entry if it is of the type that ``hint`` names; JSON has no infinity, so null is an infinite number."""
    if key not in values:
        raise ValueError(f"'{where}{key}' is missing")
    value = values[key]
    wanted = next(kind for kind in (bool, int, float, str) if hint in (kind, kind | None))
    if wanted is float and value is None:
        return math.inf
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ValueError(f"'{where}{key}' = {value!r} is not of type {wanted.__name__}")
    return value


def _is_optional(hint: Any) -> bool:
    return type(None) in getattr(hint, "__args__", ())
