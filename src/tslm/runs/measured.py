"""What has been measured of a trained model, kept until its summary is written.

The final measuring of a large model takes its time. Killed in the middle of it, a run goes on with the next split: what
is known is not measured again, and above all the test split is not read a second time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tslm.evaluation.perplexity import Perplexity
from tslm.files import read_regular, to_json
from tslm.models.arrays import WEIGHTS
from tslm.runs.summary import plain_part, read_part
from tslm.seals import Changed, check_seal, read_sums, unseal, write_sealed

MEASURED = "measured.json"


class Measured:
    """The perplexities of the model that a run folder holds."""

    def __init__(self, folder: Path) -> None:
        """Read what was measured of this very model, if anything was."""
        self.path = folder / MEASURED
        self.model = read_sums(folder).get(WEIGHTS, [""])[0]
        self.known: dict[str, Any] = {}
        try:
            check_seal(self.path)
            table: object = json.loads(read_regular(self.path, 1 << 20))
        except (OSError, ValueError, RecursionError, Changed):
            return  # nothing, or nothing that can be trusted: it is measured
        if self.model and isinstance(table, dict) and cast(dict[str, Any], table).get("model") == self.model:
            self.known = cast(dict[str, Any], table)

    def perplexity(self, name: str, measure: Callable[[], Perplexity]) -> Perplexity:
        """Return a perplexity that is known, or measure it and write it down."""
        if name not in self.known:
            self._note(name, plain_part(measure()))
        return read_part(Perplexity, self.known[name], f"{name}.")

    def number(self, name: str, measure: Callable[[], float]) -> float:
        """Return a number that is known, or measure it and write it down."""
        if name not in self.known:
            self._note(name, measure())
        return float(self.known[name])

    def forget(self) -> None:
        """Remove the file: the summary has it all."""
        self.path.unlink(missing_ok=True)
        unseal(self.path.parent, [MEASURED])

    def _note(self, name: str, found: Any) -> None:
        self.known = {**self.known, "model": self.model, name: found}
        write_sealed(self.path, to_json(self.known))
