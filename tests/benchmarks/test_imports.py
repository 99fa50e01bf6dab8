"""Benchmarks are run by hand; that they still fit the package is seen here."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_it_finds_all_that_it_imports(name, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    try:
        importlib.import_module(name)
    finally:
        for module in {name for name in set(sys.modules) - before if "." not in name and "tslm" not in name}:
            if str(FOLDER) in str(getattr(sys.modules[module], "__file__", "")):
                del sys.modules[module]


def test_a_training_step_of_the_benchmark_runs(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    work = importlib.import_module("training_work")
    _, step = work.make_training(50, 8, 3, 2, frequent=10, sampled=10)
    step()
    window = work.Window(2, 3, 8)
    window.with_gates()
    window.with_input(work.scan, normalise=True)
    del sys.modules["training_work"]
