"""What comes with the package beside its code: recipes, and the summaries of finished runs."""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """Return a folder that comes with the package: inside it where it is installed, beside ``src`` in a checkout."""
    package = Path(__file__).parent
    inside = package / name
    return inside if inside.is_dir() else package.parents[1] / name
