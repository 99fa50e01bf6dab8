"""Frozen dataclasses as configuration: read from plain values, checked, and written back."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tslm.errors import RecipeError, nearest

ConfigT = TypeVar("ConfigT")


def read_config(cls: type[ConfigT], values: Mapping[str, Any], where: str) -> ConfigT:
    """Make a config dataclass from a table of plain values.

    Args:
        cls: a frozen dataclass whose fields are bool, int, float, str, ``Literal``, tuples, ``| None``, or tables that
            read themselves (``from_table``).
        values: what the recipe says; missing fields take their defaults.
        where: the name of the table, for error messages (``model``).

    Raises:
        RecipeError: an unknown key (with the nearest known one), a missing key, or a value of the wrong type.
    """
    fields = {field.name: field for field in dataclasses.fields(cast(Any, cls)) if field.init}
    hints = get_type_hints(cls)
    for key in values:
        if key not in fields:
            raise RecipeError(f"unknown key '{where}.{key}': {nearest(key, fields)}")
    missing = [
        name
        for name, field in fields.items()
        if name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise RecipeError(f"missing key '{where}.{missing[0]}': add it to the recipe or give --set")
    return cls(**{key: _convert(value, hints[key], f"{where}.{key}") for key, value in values.items()})


def write_config(config: Any) -> dict[str, Any]:
    """Return a config dataclass as plain values for TOML, leaving out what is None."""
    plain: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is None or not field.init:
            continue
        if isinstance(value, tuple):
            value = list(cast(tuple[Any, ...], value))
        elif dataclasses.is_dataclass(value):
            value = {"kind": cast(Any, value).kind, **write_config(value)}
        plain[field.name] = value
    return plain


def read_choice(choices: Mapping[str, type[ConfigT]], table: Any, where: str) -> ConfigT:
    """Make the config dataclass that a table's ``kind`` names, from the table's other keys."""
    if not isinstance(table, Mapping):
        raise RecipeError(f"{where} = {table!r} is not a table; write [{where}] with kind = … below it")
    values = cast(Mapping[str, Any], table)
    kind = values.get("kind")
    if kind is None:
        raise RecipeError(f"missing key '{where}.kind': one of {', '.join(choices)}")
    if kind not in choices:
        raise RecipeError(f"unknown {where}.kind {kind!r}: {nearest(str(kind), choices)}")
    return read_config(choices[kind], {key: value for key, value in values.items() if key != "kind"}, where)


def check(condition: bool, message: str) -> None:
    """Raise a RecipeError unless ``condition`` holds; for ``__post_init__`` of configs."""
    if not condition:
        raise RecipeError(message)


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Return ``value`` as the type ``hint`` asks for, or raise a RecipeError that names the key."""
    origin = get_origin(hint)
    if hasattr(hint, "from_table"):
        return value if isinstance(value, hint) else hint.from_table(value, where)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        if value is None:
            return None
        return _convert(value, options[0], where)
    if origin is Literal:
        known = [str(option) for option in get_args(hint)]
        if value not in get_args(hint):
            raise RecipeError(
                f"{where} = {value!r} is not one of {', '.join(known)}; {nearest(str(value), known)}"
            )
        return value
    if origin is tuple:
        item = get_args(hint)[0]
        if isinstance(value, str) and item is str:
            value = [value]  # `--set corpus.path=my.txt` means a list of one
        if not isinstance(value, list | tuple):
            raise RecipeError(f"{where} = {value!r} is not a list")
        return tuple(_convert(entry, item, where) for entry in cast(list[Any], value))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise RecipeError(f"{where} = {value!r} is not of type {hint.__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise RecipeError(f"{where} = {value!r} is not a finite number")
    return value
