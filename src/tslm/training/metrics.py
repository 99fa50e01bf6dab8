"""``metrics.jsonl``: losses, norms and perplexities as a run goes, one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tslm.errors import RunError
from tslm.files import read_regular, to_json

METRICS = "metrics.jsonl"

LARGEST_FILE = 1 << 28
"""Bytes of it that are read."""


class Metrics:
    """``metrics.jsonl``: one JSON object per line, appended as the run goes."""

    def __init__(self, folder: Path, keep_bytes: int) -> None:
        """Open the file and cut it back to ``keep_bytes``: what the resumed run is going to repeat."""
        self.path = folder / METRICS
        with self.path.open("ab") as file:
            file.truncate(min(keep_bytes, self.size))

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add one line.

        Raises:
            RunError: the disk is full, or the folder is not there any more.
        """
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(to_json(dict(entry)) + "\n")
        except OSError as error:
            raise RunError(
                f"cannot write {self.path}: {error.strerror}; make room, or put the folder back, and the same command "
                "goes on from the last state that was saved"
            ) from error

    @property
    def size(self) -> int:
        """How many bytes the file has; none where it was removed, which the next line will tell."""
        return self.path.stat().st_size if self.path.exists() else 0


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of ``metrics.jsonl``, none where the model was counted, not trained."""
    path = folder / METRICS
    try:
        lines = read_regular(path, LARGEST_FILE).decode("utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"cannot read {path}: {error}; delete it, the run can do without it") from error
