"""The option ``--device`` of the commands that compute with a trained model."""

from __future__ import annotations

import argparse

from tslm.devices import DEVICES


def add_device(parser: argparse.ArgumentParser, *, default: str | None = "cpu") -> None:
    """Add the option; without a default it is left to the recipe."""
    usual = "default: as in the recipe" if default is None else f"default: {default}"
    parser.add_argument("--device", choices=DEVICES, default=default, help=f"where to compute ({usual})")
