"""What all benchmarks share: which machine this is, and where the figures go."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    model = "unknown"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def write_results(name: str, parts: dict[str, Any]) -> Path:
    """Write figures to ``results/<name>.json``, keeping the parts that this run did not measure."""
    path = Path(__file__).parent / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**before, "machine": machine(), **parts}, indent=2) + "\n", encoding="utf-8")
    return path


def write_table(page: str, name: str, rows: list[list[str]]) -> None:
    """Put a table, its head first, between its marks in a page of the docs."""
    path = Path(__file__).parent.parent / "docs" / page
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = path.read_text(encoding="utf-8").split(begin, 1)
    path.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1], encoding="utf-8")
