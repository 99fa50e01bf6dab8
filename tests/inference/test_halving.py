"""Half precision: half the bytes, every number the nearest of 16 bits, and the loss as it was measured."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import tslm
from tslm.cli import main
from tslm.errors import RunError, UnsupportedError
from tslm.seals import SUMS


@pytest.mark.parametrize("name", ["gated", "lstm", "probabilistic"])
def test_the_file_is_half_and_the_loss_is_what_was_measured(runs, name, tmp_path, capsys) -> None:
    assert main(["compress", str(runs[name]), "--half", "--out", str(tmp_path / "half"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    before, after = (load_file(folder / "model.safetensors") for folder in (runs[name], tmp_path / "half"))
    for key, tensor in before.items():
        if tensor.dtype == torch.float32:
            assert torch.equal(after[key], tensor.to(torch.float16))
        else:
            assert torch.equal(after[key], tensor)
    assert report["bytes_after"] < 0.75 * report["bytes_before"], "the header is not halved"
    for run, told in ((runs[name], report["before"]), (tmp_path / "half", report["after"])):
        assert tslm.evaluate(run, split="valid").perplexity == pytest.approx(told["valid"], rel=1e-9)
    assert abs(report["loss"]) < 0.01
    made = tslm.load(tmp_path / "half")
    assert {parameter.dtype for parameter in made.parameters()} == {torch.float32}, "computed as before"
    assert tslm.open_run(tmp_path / "half").summary.valid.perplexity == report["after"]["valid"]


def test_what_cannot_be_halved_is_refused(runs, tmp_path) -> None:
    with pytest.raises(UnsupportedError, match="bits=8"):
        tslm.halve(runs["kn"], tmp_path / "half")
    with pytest.raises(RunError, match="the run itself"):
        tslm.halve(runs["gated"], runs["gated"])
    shutil.copytree(runs["gated"], tmp_path / "large")
    (tmp_path / "large" / SUMS).unlink()
    weights = load_file(tmp_path / "large" / "model.safetensors")
    weights["bias"] = weights["bias"] + 1e5
    save_file(weights, tmp_path / "large" / "model.safetensors")
    with pytest.raises(RunError, match="too large for half precision"):
        tslm.halve(tmp_path / "large", tmp_path / "half")
    assert (
        main(["compress", str(runs["gated"]), "--half", "--tune", "1", "--out", str(tmp_path / "half")]) == 2
    )
