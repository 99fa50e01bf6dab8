"""A bit flipped in any file of a run folder or of a cache: refused in one line, or the very same numbers."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.faults.conftest import flip_bit

import tslm
from tslm.corpus.sources import open_corpus
from tslm.runs.run import load
from tslm.seals import SUMS

FLIPS = 3
"""Of each file."""

NUMBERS_COME_FROM = {"model.safetensors", "vocabulary.txt", "recipe.toml", "text.json", "model.toml"}


@pytest.fixture(scope="module")
def folders(runs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    mixed = tmp_path_factory.mktemp("mixed") / "mix"
    tslm.mix([runs["kn"], runs["tslm"]], mixed)
    return {**runs, "mix": mixed}


@pytest.mark.parametrize(("name", "flips"), [("kn", FLIPS), ("tslm", FLIPS), ("mix", 1)])
def test_no_flipped_bit_of_a_run_folder_changes_a_number(
    folders, name, flips, tmp_path, evaluate, tally
) -> None:
    run = tmp_path / "run"
    shutil.copytree(folders[name], run)
    expected = evaluate(run)
    assert expected is not None
    choose = random.Random(name)
    files = sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file() and path.stat().st_size)
    assert {Path(SUMS), Path("summary.json"), Path("model.safetensors")} & {*files}
    for file in files:
        whole = (run / file).read_bytes()
        for _ in range(flips):
            flip_bit(run / file, choose)
            found = evaluate(run)
            assert found in (None, expected), (file, found)
            # What a number is made of is never merely lucky: every flip of it is seen.
            assert found is None or file.name not in NUMBERS_COME_FROM, file
            tally(
                f"bit flipped in {file.name}", "refused in one line" if found is None else "the same numbers"
            )
            (run / file).write_bytes(whole)
    assert evaluate(run) == expected


def test_no_flipped_bit_of_a_cache_changes_a_corpus(runs, tmp_path, monkeypatch, capsys, tally) -> None:
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
            tally("bit flipped in a cached corpus", "made anew, the same corpus")


@pytest.mark.parametrize("name", ["kn", "tslm"])
def test_files_cut_short_or_emptied_are_refused(runs, name, tmp_path, evaluate, tally) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[name], run)
    for file in ("model.safetensors", "vocabulary.txt", "recipe.toml", "text.json", SUMS):
        whole = (run / file).read_bytes()
        for share in (0.0, 0.5, 0.99):
            (run / file).write_bytes(whole[: int(share * len(whole))])
            assert evaluate(run) is None, (file, share)
            tally("file of a run folder cut short", "refused in one line")
        (run / file).unlink()
        # Without its list a folder is one of an older version, and the list itself was all that was lost.
        assert file == SUMS or evaluate(run) is None, file
        (run / file).write_bytes(whole)


def test_a_changed_training_state_is_refused_and_not_gone_on_from(runs, tmp_path, tally) -> None:
    run = tmp_path / "run"
    choose = random.Random(4)
    for _ in range(FLIPS):
        shutil.copytree(runs["tslm"], run)
        (run / "summary.json").unlink()  # as if it had not come to its end
        flip_bit(run / "training_state.safetensors", choose)
        with pytest.raises(tslm.TslmError, match=r"not as it was written.*delete it to start the run anew"):
            tslm.train(run / "recipe.toml", run)
        tally("bit flipped in training_state.safetensors", "refused in one line")
        shutil.rmtree(run)


@pytest.mark.parametrize("name", ["kn", "tslm"])
def test_a_folder_of_an_older_version_without_checksums_opens(runs, name, tmp_path, evaluate) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[name], run)
    expected = evaluate(run)
    (run / SUMS).unlink()
    assert evaluate(run) == expected
    assert load(run).kind
