"""Training and evaluation make every tensor where the model is; there is no accelerator here to show it."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest
import torch
from tests.training.elsewhere import ELSEWHERE, Elsewhere, OneDevice
from torch.nn import functional as F

import tslm
from tslm.cli import main
from tslm.corpus.vocabulary import EOS, Vocabulary
from tslm.devices import choose_device, place_model
from tslm.errors import RecipeError, UnsupportedError
from tslm.evaluation.perplexity import evaluate
from tslm.models.recurrent.cells import CELLS
from tslm.models.recurrent.heads import HEADS
from tslm.models.recurrent.model import RecurrentModel
from tslm.models.registry import read_model
from tslm.runs.train import train
from tslm.training.metrics import read_metrics

QUICK = ["train.epochs=1", "train.average=0.0", "corpus.max_vocabulary=12"]


@pytest.fixture
def elsewhere(monkeypatch):
    """``cuda`` is there, and is a device that computes on the CPU and refuses what is left on it."""
    monkeypatch.setattr(
        "tslm.devices.choose_device",
        lambda name: ELSEWHERE if name in ("cuda", "meta") else torch.device(name),
    )
    # PyTorch keeps a list of the devices that its fused AdamW is built for.
    optimizer = importlib.import_module("torch.optim.optimizer")
    supported = optimizer._get_fused_kernels_supported_devices()
    monkeypatch.setattr(
        optimizer, "_get_fused_kernels_supported_devices", lambda: [*supported, ELSEWHERE.type]
    )
    # Its tensors cannot be wrapped; without gradients the other is the same.
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)
    with OneDevice():
        yield


def test_the_device_that_is_none_refuses_a_tensor_that_was_left_behind(elsewhere) -> None:
    there = torch.ones(3).to(ELSEWHERE)
    assert isinstance(there + 1, Elsewhere)
    assert (there * torch.tensor(2.0)).cpu().tolist() == [2, 2, 2]
    assert isinstance(torch.zeros(2, device=there.device), Elsewhere)
    with pytest.raises(RuntimeError, match="on two devices"):
        _ = there + torch.ones(3)
    with pytest.raises(RuntimeError, match="on two devices"):
        _ = there[torch.tensor([0, 1])]


@pytest.mark.parametrize("cell", ["tslm", "gated", "lstm"])
def test_a_whole_run_stays_where_the_model_is(cell, recipe_path, tmp_path, elsewhere) -> None:
    drop = "model.cell.norm_limit=0.9" if cell != "lstm" else "model.layers=2"
    quick = [
        *QUICK,
        f'model.cell={{ kind = "{cell}", weight_drop = 0.1 }}',
        *([drop] if cell == "lstm" else []),
    ]
    here = train(recipe_path, tmp_path / "here", overrides=quick)
    there = train(recipe_path, tmp_path / "there", overrides=[*quick, "train.device=cuda"])
    # The same draws, the same sums but for their order.
    assert there.test.perplexity == pytest.approx(here.test.perplexity, rel=1e-4)
    for one, two in zip(read_metrics(tmp_path / "here"), read_metrics(tmp_path / "there"), strict=True):
        assert one.get("loss", 0) == pytest.approx(two.get("loss", 0), rel=1e-4)
    # What was saved there opens here, and goes on here.
    opened = tslm.load(tmp_path / "there")
    assert {parameter.device.type for parameter in opened.parameters()} == {"cpu"}
    again = train(recipe_path, tmp_path / "there", overrides=quick)
    assert again == there


def test_a_run_that_was_begun_there_goes_on_here(recipe_path, tmp_path, elsewhere, monkeypatch) -> None:
    from tslm.errors import Stopped
    from tslm.training.trainer import Trainer

    original = Trainer._step

    def stop(self, *arguments):
        self.stop_requested = self.position.step + 1 == 7
        return original(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", stop)
    with pytest.raises(Stopped):
        train(recipe_path, tmp_path / "run", overrides=[*QUICK, "train.device=cuda"])
    monkeypatch.setattr(Trainer, "_step", original)
    ended = train(recipe_path, tmp_path / "run", overrides=QUICK)
    whole = train(recipe_path, tmp_path / "whole", overrides=QUICK)
    assert ended.test.perplexity == pytest.approx(whole.test.perplexity, rel=1e-3)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_and_head_scores_and_predicts_there(cell, head, elsewhere) -> None:
    vocabulary = Vocabulary(("the", "cat", "sat", EOS))
    table = {"kind": "recurrent", "rank": 6, "embedding": 5, "cell": {"kind": cell}, "head": {"kind": head}}
    _, config = read_model({**table, "output_gate": "tanh"})
    torch.manual_seed(1)
    model = RecurrentModel(config, vocabulary).eval()
    ids = np.array([0, 1, 2, 3, 0, 2, 3], np.int32)
    here = evaluate(model, ids), model.predict(model.start(2))
    place_model(model, "cuda")
    assert model.device == ELSEWHERE
    assert evaluate(model, ids).perplexity == pytest.approx(here[0].perplexity, rel=1e-5)
    np.testing.assert_allclose(model.predict(model.start(2)), here[1], atol=1e-5)
    assert model.diagnostics().keys() <= {"spectral_radius"}


@pytest.mark.parametrize("cell", CELLS)
def test_a_step_on_the_device_meta_itself(cell) -> None:
    """PyTorch's own device without numbers: read, loss, backward and AdamW, with no tensor left on the CPU."""
    _, config = read_model({"kind": "recurrent", "rank": 6, "embedding": 5, "cell": {"kind": cell}})
    model = RecurrentModel(config, Vocabulary(("the", "cat", "sat", EOS))).to("meta").train()
    adam = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs_TB = torch.zeros(5, 3, dtype=torch.int64, device="meta")

    def cross_entropy(latents_NKM, _prior, weight_VM, bias_V, targets_N):
        return F.cross_entropy(F.linear(latents_NKM[:, 0], weight_VM, bias_V), targets_N)

    outputs_TBR, carried = model.read(inputs_TB, model.begin(3))
    model.loss(outputs_TBR, inputs_TB.flatten(), cross_entropy).nats.backward()
    adam.step()
    with torch.inference_mode():
        log_TBV = model.eval().expect(model.read(inputs_TB, carried)[0])
    assert log_TBV.shape == (5, 3, 4)
    made = [*model.parameters(), *(p.grad for p in model.parameters()), *carried[0], log_TBV]
    assert {tensor.device.type for tensor in made if tensor is not None} == {"meta"}


def test_a_device_that_is_not_there_is_refused(recipe_path, tmp_path, capsys) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    for name in ("cuda", "mps"):
        if choose_device("auto").type != name:
            with pytest.raises(UnsupportedError, match=f"device '{name}' was asked for, but PyTorch"):
                choose_device(name)
    with pytest.raises(UnsupportedError, match="there is no device 'cud': did you mean 'cuda'"):
        choose_device("cud")
    with pytest.raises(RecipeError, match=r"train\.device"):
        train(recipe_path, tmp_path / "run", overrides=["train.device=gpu"])
    if choose_device("auto").type != "cuda":
        command = ["train", str(recipe_path), "--out", str(tmp_path / "run"), "--device", "cuda"]
        assert main(command) == 2
        assert "device 'cuda' was asked for" in capsys.readouterr().err


def test_a_model_that_cannot_move_says_so(elsewhere) -> None:
    class Fixed(RecurrentModel):
        moves = False

    _, config = read_model({"kind": "recurrent", "rank": 6, "embedding": 5})
    with pytest.raises(UnsupportedError, match="computes on the CPU only"):
        place_model(Fixed(config, Vocabulary(("the", EOS))), "cuda")


def test_the_option_of_the_commands(runs, capsys, tmp_path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\n")
    for words in (
        ["eval", "--text", str(text), "--json"],
        ["score", str(text), "--json"],
        ["generate", "--json"],
    ):
        for name in ("gated", "kn"):
            assert main([words[0], str(runs[name]), *words[1:], "--device", "auto"]) == 0
            json.loads(capsys.readouterr().out.splitlines()[0])
