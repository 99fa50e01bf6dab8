"""What all benchmarks share: which machine this is, and where the figures go."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

LOAD = os.getloadavg()[0]
"""The load average when the benchmark began, so by other work."""

DOCS = Path(__file__).parent.parent / "docs"

Blocks = dict[tuple[str, str], str]
"""What stands between the marks of a name in a page of the docs."""


def machine(threads: int | None = None) -> dict[str, Any]:
    """Return what the figures depend on; ``threads`` where others measure than this process."""
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
        "threads": threads or torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "load": LOAD,
    }


def describe(machines: Iterable[tuple[str, dict[str, Any]]]) -> str:
    """Return a sentence that says on which machine each part was measured."""
    found: dict[str, list[str]] = {}
    for part, known in machines:
        words = [known["cpu"] if known["cpu"] != "unknown" else "a processor that was not recorded"]
        if "threads" in known:
            words.append(f"{known['threads']} thread{'s' * (known['threads'] > 1)}")
        if "load" in known:
            words.append(f"load by others {known['load']:.1f}")
        found.setdefault(", ".join(words), []).append(part)
    if len(found) == 1:
        return f"Measured on: {next(iter(found))}."
    phrases = [f"{words} ({', '.join(parts)})" for words, parts in found.items()]
    return f"Measured on: {'; '.join(phrases)}."


def write_results(
    name: str, parts: dict[str, Any], measured: Iterable[str] | None = None, threads: int | None = None
) -> Path:
    """Write figures to ``results/<name>.json``, keeping the parts that this run did not measure, and their machines.

    Args:
        name: of the file.
        parts: what to put into it.
        measured: what this machine is named for, where that is not all of ``parts``.
        threads: how many measured, where it was not this process.
    """
    path = Path(__file__).parent / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known = before.pop("machine", None)  # of all parts, as files had it once
    machines = before.pop("machines", dict.fromkeys(before, known))
    machines |= dict.fromkeys(parts if measured is None else measured, machine(threads))
    text = json.dumps({"machines": machines, **before, **parts}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def read_results(name: str) -> dict[str, Any]:
    """Return what ``write_results`` has written."""
    path = Path(__file__).parent / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def make_table(rows: list[list[str]]) -> str:
    """Return a table, its head first, as Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def fill(page: str, name: str, block: str) -> str:
    """Return the text of a page with a block between the marks of a name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = page.split(begin, 1)
    return before + begin + block + "\n" + end + rest.split(end, 1)[1]


def write_blocks(blocks: Blocks) -> None:
    """Put blocks between their marks in the docs."""
    for (page, name), block in blocks.items():
        path = DOCS / page
        path.write_text(fill(path.read_text(encoding="utf-8"), name, block), encoding="utf-8")


def write_table(page: str, name: str, rows: list[list[str]]) -> None:
    """Put a table, its head first, between its marks in a page of the docs."""
    write_blocks({(page, name): make_table(rows)})
