"""The examples in the docstrings run, each module's one after the other, and print what they say."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tslm

SOURCE = Path(__file__).parents[2] / "src"
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")

MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((SOURCE / "tslm").rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


class Rounded(doctest.OutputChecker):
    """Accepts a number that rounds to the digits an example shows."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        wanted, found = NUMBER.findall(want), NUMBER.findall(got)
        if len(wanted) == len(found):
            for shown, number in zip(wanted, found, strict=True):
                digits = len(shown.partition(".")[2])
                if digits and abs(float(shown) - float(number)) <= 0.5000001 * 10**-digits:
                    got = got.replace(number, shown, 1)
        return super().check_output(want, got, optionflags)


@pytest.fixture(scope="module")
def names(cache_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What every example may use: a model and a corpus; the folder they are in has ``runs/asv-kn5``."""
    folder = tmp_path_factory.mktemp("examples")
    tslm.train("asv/kn5", folder / "runs" / "asv-kn5")
    corpus = tslm.open_corpus("asv")
    model = tslm.load(folder / "runs" / "asv-kn5")
    return {
        "folder": folder,
        "names": {"tslm": tslm, "np": np, "torch": torch, "Path": Path}
        | {"model": model, "corpus": corpus, "vocabulary": corpus.vocabulary},
    }


def run_examples(module: Any, names: dict[str, Any]) -> tuple[int, str]:
    """Run a module's examples; return how many there are, and what went wrong."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(Rounded(), verbose=False, optionflags=flags)
    faults: list[str] = []
    for test in doctest.DocTestFinder().find(module, extraglobs=names):
        runner.run(test, out=faults.append)
    return runner.tries, "".join(faults)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_print_what_they_say(name: str, names: dict[str, Any], monkeypatch) -> None:
    monkeypatch.chdir(names["folder"])
    module = importlib.import_module(name)
    tried, faults = run_examples(module, names["names"])
    assert not faults, faults
    written = re.findall(r"^ *>>> ", Path(str(module.__file__)).read_text(encoding="utf-8"), re.M)
    assert tried == len(written), f"{name} has examples that doctest does not find"


def test_a_wrong_example_is_noticed() -> None:
    class Wrong:
        """Say a number.

        >>> 2 / 3
        0.67
        >>> 2 / 3
        0.66
        """

    faults: list[str] = []
    runner = doctest.DocTestRunner(Rounded(), verbose=False)
    for test in doctest.DocTestFinder().find(Wrong, "Wrong", globs={}):
        runner.run(test, out=faults.append)
    assert (runner.tries, runner.failures) == (2, 1)
    assert "0.66" in "".join(faults)
