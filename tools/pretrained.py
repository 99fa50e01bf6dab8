"""The models that come with the package: trained, made small, packed into ``src/tslm/pretrained``.

``make models`` runs it; a few minutes. Training the same recipe on another machine may end in other last digits.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tslm.inference.halving import REPORT, halve
from tslm.runs.pretrained import PRETRAINED, pack
from tslm.runs.train import train
from tslm.training.metrics import METRICS
from tslm.training.watcher import Terminal


def make_models(folder: Path) -> None:
    """Train, halve and pack; what is in ``folder`` already is not trained again."""
    train("asv/kn5", folder / "kn5", overrides=["model.bits=8"], watcher=Terminal())
    pack(folder / "kn5", PRETRAINED / "asv" / "kn5")
    train("asv/gated", folder / "gated", watcher=Terminal())
    if not (folder / "gated-half" / REPORT).exists():
        halve(folder / "gated", folder / "gated-half")
        shutil.copyfile(folder / "gated" / METRICS, folder / "gated-half" / METRICS)
    pack(folder / "gated-half", PRETRAINED / "asv" / "gated", (METRICS, REPORT))


if __name__ == "__main__":
    make_models(Path(sys.argv[1]))
