"""Run folders of strangers: what they ask for is compared with what they hold before anything is allocated."""

from __future__ import annotations

import os
import resource
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from tests.faults.conftest import run_child

from tslm.errors import TslmError
from tslm.runs.run import load
from tslm.runs.train import train
from tslm.seals import SUMS


@pytest.fixture
def copy(runs, tmp_path: Path):
    """A copy of a run folder without its checksums, as a stranger may have made it."""

    def make(name: str) -> Path:
        shutil.copytree(runs[name], tmp_path / name)
        (tmp_path / name / SUMS).unlink()
        return tmp_path / name

    return make


def load_within(folder: Path, bytes_more: int) -> None:
    """Load a model with little more memory than there is in use; exit with 2 where it is refused."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + bytes_more, used + bytes_more))
    try:
        load(folder)
    except TslmError:
        raise SystemExit(2) from None


@pytest.mark.parametrize(
    "change",
    [
        ("rank = 12", "rank = 60000"),
        ("rank = 12", "rank = 100000"),
        ("rank = 12", f"rank = {10**30}"),
        ("embedding = 10", "embedding = 65536"),
        ("layers = 1", f"layers = {10**9}"),
        ("layers = 1", "layers = 200"),
        ('kind = "softmax"', 'kind = "mixture"\nexperts = 1024'),
    ],
    ids=lambda change: change[1],
)
@pytest.mark.parametrize("name", ["tslm", "lstm"])
def test_a_recipe_that_asks_for_more_than_there_is(copy, name, change, tally) -> None:
    folder = copy(name)
    recipe = (folder / "recipe.toml").read_text()
    assert change[0] in recipe
    (folder / "recipe.toml").write_text(recipe.replace(*change))
    began = time.monotonic()
    assert run_child(load_within, folder, 1 << 30, timeout=50) == 2
    assert time.monotonic() - began < 40
    tally("recipe that asks for a huge model", "refused in one line, within 1 GiB")


@pytest.mark.parametrize(
    "name", ["recipe.toml", "vocabulary.txt", "text.json", "model.safetensors", "summary.json"]
)
@pytest.mark.parametrize("kind", ["pipe", "zero", "folder"])
@pytest.mark.parametrize("known", [False, True])
def test_only_regular_files_are_read(runs, tmp_path, name, kind, known, tally) -> None:
    folder = shutil.copytree(runs["kn"], tmp_path / "kn")
    if not known:
        (folder / SUMS).unlink()
    (folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(folder / name)
    elif kind == "zero":
        (folder / name).symlink_to("/dev/zero")
    else:
        (folder / name).mkdir()
    with pytest.raises(TslmError):
        _use(folder)
    tally("pipe, device or folder for a file", "refused in one line")


def test_a_training_state_that_is_a_pipe_is_refused(runs, tmp_path, tally) -> None:
    folder = shutil.copytree(runs["tslm"], tmp_path / "tslm")
    (folder / "summary.json").unlink()
    (folder / "training_state.safetensors").unlink()
    os.mkfifo(folder / "training_state.safetensors")
    with pytest.raises(TslmError, match="no regular file"):
        train(folder / "recipe.toml", folder)
    tally("pipe, device or folder for a file", "refused in one line")


def _use(folder: Path) -> None:
    from tslm.runs.run import open_run

    run = open_run(folder)
    assert run.summary is not None
    assert run.model is not None


@pytest.mark.parametrize(
    "content", ["[" * 100_000, "a = " + "[" * 100_000, "a = " + "9" * 5000, "\x00", "a=1\n" * 400_000]
)
def test_a_recipe_that_is_a_trap_is_one_line(copy, content, tally) -> None:
    folder = copy("kn")
    (folder / "recipe.toml").write_text(content)
    with pytest.raises(TslmError):
        load(folder)
    tally("recipe, rule or summary that is a trap", "refused in one line")


@pytest.mark.parametrize(
    "content", ["[" * 100_000, "9" * 5000, "{}", "[]", '{"kind": []}', '{"kind": "bpe"}', "null"]
)
def test_a_rule_or_summary_that_is_a_trap_is_one_line(copy, content, tally) -> None:
    for name in ("text.json", "summary.json"):
        folder = copy("kn")
        (folder / name).write_text(content)
        with pytest.raises(TslmError):
            _use(folder)
        tally("recipe, rule or summary that is a trap", "refused in one line")
        shutil.rmtree(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["tslm", "lstm"])
def test_weights_that_are_no_numbers_are_refused(copy, name, value, tally) -> None:
    folder = copy(name)
    weights = load_file(folder / "model.safetensors")
    key = sorted(weights)[-1]
    weights[key].view(-1)[-1] = value
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(TslmError, match="no finite number"):
        load(folder)
    tally("weights that are not finite", "refused in one line")


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    return {key: tensor.numpy().copy() for key, tensor in load_file(folder / "model.safetensors").items()}


@pytest.mark.parametrize("name", ["log_probability", "log_weight"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_probabilities_that_are_no_numbers_are_refused(copy, name, value, tally) -> None:
    folder = copy("kn")
    arrays = arrays_of(folder)
    arrays[name][3] = value
    save_arrays(arrays, folder / "model.safetensors")
    with pytest.raises(TslmError, match="no finite number"):
        load(folder)
    tally("weights that are not finite", "refused in one line")


def test_trees_that_are_none_are_refused(copy, tally) -> None:
    folder = copy("kn")
    good = arrays_of(folder)
    tried = 0
    for name in ("levels", "words", "suffixes", "child_counts"):
        for place in (0, 1, len(good[name]) // 2, len(good[name]) - 1):
            for value in (-1, 2**30, int(good[name][place]) + 1, 0):
                arrays = {key: array.copy() for key, array in good.items()}
                arrays[name][place] = np.array(value).astype(arrays[name].dtype)
                if np.array_equal(arrays[name], good[name]):
                    continue
                save_arrays(arrays, folder / "model.safetensors")
                tried += 1
                try:
                    model = load(folder)
                except TslmError:
                    tally("n-gram tree that is none", "refused in one line")
                    continue
                # Still a tree, if another one: it can be used without a fault.
                model.predict(model.start(2))
                model.fill([None, None, None])
                tally("n-gram tree that is none", "another tree, used without a fault")
    assert tried > 50


def test_a_state_dict_of_the_right_names_and_other_types_is_refused(copy) -> None:
    folder = copy("tslm")
    weights = {
        key: tensor.to(torch.float64) for key, tensor in load_file(folder / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(TslmError, match="ask for"):
        load(folder)
