"""A bit flipped in any file of a run folder or of a cache: refused in one line, or the very same numbers."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.faults.conftest import flip_bit
from tslm.corpus.sources import open_corpus

FLIPS = 8
"""Of each file."""


@pytest.mark.parametrize("name", ["kn", "tslm", "lstm"])
def test_no_flipped_bit_of_a_run_folder_changes_a_number(runs, name, tmp_path, evaluate) -> None:
    shutil.copytree(runs[name], tmp_path / "run")
    expected = evaluate(tmp_path / "run")
    assert expected is not None
    choose = random.Random(name)
    outcomes: Counter[str] = Counter()
    files = sorted(path.name for path in runs[name].iterdir() if path.is_file() and path.stat().st_size)
    assert {"recipe.toml", "vocabulary.txt", "model.safetensors", "summary.json", "checksums.json"} <= {*files}
    for file in files:
        for _ in range(FLIPS):
            shutil.copytree(runs[name], tmp_path / "run", dirs_exist_ok=True)
            flip_bit(tmp_path / "run" / file, choose)
            found = evaluate(tmp_path / "run")
            assert found in (None, expected), (file, found)
            outcomes[f"{file}: {'refused' if found is None else 'the same'}"] += 1
    # What a number is made of is never merely lucky: every flip of it was seen.
    for file in ("model.safetensors", "vocabulary.txt", "recipe.toml"):
        assert outcomes[f"{file}: refused"] == FLIPS, outcomes


def test_no_flipped_bit_of_a_cache_changes_a_corpus(runs, cache_folder: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "cache"))
    text = runs["kn"].parent / "text.txt"
    before = open_corpus(str(text))
    ids = {split: np.array(found) for split, found in before.splits.items()}
    [folder] = {path.parent for path in (tmp_path / "cache" / "corpora").glob("*/corpus.json")}
    choose = random.Random(1)
    for file in sorted(path.name for path in folder.iterdir()):
        for _ in range(FLIPS):
            flip_bit(folder / file, choose)
            after = open_corpus(str(text))
            assert after.fingerprint == before.fingerprint
            assert after.vocabulary == before.vocabulary
            assert after.rule == before.rule
            assert all(np.array_equal(found, ids[split]) for split, found in after.splits.items())


@pytest.mark.parametrize("name", ["kn", "tslm"])
def test_files_cut_short_or_emptied_are_refused(runs, name, tmp_path, evaluate) -> None:
    for file in ("model.safetensors", "vocabulary.txt", "recipe.toml", "text.json", "checksums.json"):
        for share in (0.0, 0.5, 0.99):
            shutil.copytree(runs[name], tmp_path / "run", dirs_exist_ok=True)
            data = (runs[name] / file).read_bytes()
            (tmp_path / "run" / file).write_bytes(data[: int(share * len(data))])
            assert evaluate(tmp_path / "run") is None, (file, share)
