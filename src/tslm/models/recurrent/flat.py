"""Recipes of version 0.1, whose ``[model]`` table was flat: their cell and head in tables of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tslm.errors import RecipeError

_CELL = {"variant": "normalised", "holding": 0.5, "norm_limit": None}
"""Keys of the TSLM's own, with the values that a recipe of another cell had written out."""

_HEAD = {"experts": ("experts", 1), "latent": ("latent", "tanh"), "dropout_latent": ("dropout", 0.0)}
"""Keys of the mixture's own: today's name, and the value that other recipes had written out."""


def nest(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the table with ``[model.cell]`` and ``[model.head]``; what is nested already stays as it is.

    Raises:
        RecipeError: a key belongs to another kind of cell or head, or to a nested table that the recipe has.
    """
    flat = {key for key in (*_CELL, "weight_drop", *_HEAD, "readout") if key in table}
    names = {key for key in ("cell", "head") if isinstance(table.get(key), str)}
    nested = {key for key in ("cell", "head") if isinstance(table.get(key), Mapping)}
    if not flat and not names:
        return table
    if nested:
        raise RecipeError(
            f"model.{min(flat | names)} does not go with a table [model.{min(nested)}]: write it into [model.cell] or "
            "[model.head], where it belongs"
        )
    rest = {key: value for key, value in table.items() if key not in flat | {"cell", "head"}}
    kind, head = str(table.get("cell", "tslm")), str(table.get("head", "softmax"))
    cell: dict[str, Any] = {"kind": kind}
    if "weight_drop" in table:
        cell["weight_drop"] = table["weight_drop"]
    for key, default in _CELL.items():
        if kind == "tslm" and key in table:
            cell[key] = table[key]
        elif table.get(key, default) != default:
            raise RecipeError(f"model.{key} = {table[key]!r} is a key of the TSLM; a cell {kind!r} has none")
    top: dict[str, Any] = {"kind": head}
    for key, (name, default) in _HEAD.items():
        if head == "mixture" and key in table:
            top[name] = table[key]
        elif table.get(key, default) != default:
            raise RecipeError(f'model.{key} = {table[key]!r} needs model.head = "mixture"')
    if head == "softmax" and "readout" in table:
        top["readout"] = table["readout"]
    elif table.get("readout", False) is not False:
        raise RecipeError(
            f"model.readout = {table['readout']!r} is a key of the softmax head; {head!r} has none"
        )
    return {**rest, "cell": cell, "head": top}
