"""A trained exact model as a tensor train: the model's own logits at every sentence, here and in other libraries."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from tests.inference.test_network import make

import tslm
from tslm.cli import main
from tslm.errors import CorpusError, InputError, NumberError, SizeLimitError, TslmError, UnsupportedError
from tslm.inference.unroll import centre
from tslm.models.recurrent.cells.gated import GatedConfig
from tslm.models.recurrent.cells.tslm import TslmConfig
from tslm.models.recurrent.heads.mixture import MixtureConfig
from tslm.tensors import cut_entropies

CELLS = [
    *[TslmConfig(variant=variant) for variant in ("pure", "biased", "bounded")],
    GatedConfig(),
    GatedConfig(split=True),
]


def predict(model, words) -> np.ndarray:
    _, state = model.score(model.vocabulary.encode(words)[None], model.start(1))
    return model.predict(state)[0]


@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.parametrize("gate", ["none", "linear"])
@pytest.mark.parametrize("length", [1, 3])
def test_every_entry_is_a_logit_of_the_model(cell, gate, length) -> None:
    model = make(cell, output_gate=gate, embedding=5)
    found = tslm.unroll(model, length=length, words=5)
    tensor = found.train.to_tensor()
    assert tensor.shape == (5,) * length + (6,)
    for places in itertools.product(range(5), repeat=length):
        words = [found.words[place] for place in places]
        expected = predict(model, words)
        np.testing.assert_allclose(tensor[places].log_softmax(0).numpy(), expected, atol=1e-9)
    assert len(found.entropies) == length
    assert all(entropy >= 0 for entropy in found.entropies)


@pytest.mark.parametrize("name", ["tslm", "gated"])
def test_trained_models_and_their_sentences(runs, name) -> None:
    found = tslm.unroll(runs[name], "the old zebra sat on", words=3)
    assert found.error < 1e-5
    assert found.words[:3] == ("the", "old", "zebra")
    expected = predict(tslm.load(runs[name]), ["on", "the", "sat", "the", "old"])
    np.testing.assert_allclose(found.at("on the sat the old").log_softmax(0).numpy(), expected, atol=1e-5)
    with pytest.raises(CorpusError, match="no place in the legs"):
        found.at("the old xylophone sat on")
    with pytest.raises(CorpusError, match="the train is of 5"):
        found.at("the old")


def test_the_centred_train_has_no_mean_and_its_own_entropies() -> None:
    found = tslm.unroll(make(GatedConfig(), output_gate="linear"), length=3, words=4)
    tensor = found.train.to_tensor()
    expected = tensor - tensor.mean((0, 1, 2))
    torch.testing.assert_close(centre(found.train).to_tensor(), expected)
    for cut, entropy in enumerate(found.centred_entropies, 1):
        shares = torch.linalg.svdvals(expected.reshape(4**cut, -1)) ** 2
        shares = shares / shares.sum()
        assert entropy == pytest.approx(-float(torch.special.xlogy(shares, shares).sum()), abs=1e-8)
    assert found.entropies == tuple(cut_entropies(found.train))


def test_other_libraries_have_the_same_logits(tmp_path) -> None:
    model = make(GatedConfig(), output_gate="linear")
    found = tslm.unroll(model, "a b d", words=2)
    places = tuple(found.words.index(word) for word in ("a", "b", "d"))
    quimb = pytest.importorskip("quimb.tensor")
    state = found.to_quimb()
    assert isinstance(state, quimb.MatrixProductState)
    dense = state.to_dense().reshape(found.train.shape)
    np.testing.assert_allclose(dense[places], found.logits.numpy(), atol=1e-9)
    state.normalize()
    bits = [state.entropy(cut) for cut in (1, 2, 3)]
    assert bits == pytest.approx([entropy / np.log(2) for entropy in found.entropies], abs=1e-6)
    tensorly = pytest.importorskip("tensorly")
    np.testing.assert_allclose(
        tensorly.tt_to_tensor(found.to_tensorly())[places], found.logits.numpy(), atol=1e-9
    )
    found.save(tmp_path / "new" / "train.npz")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["train.npz"]
    (tmp_path / "file").touch()
    for name in ("train.npz", "train.safetensors"):
        with pytest.raises(TslmError, match="cannot write"):
            found.save(tmp_path / "file" / name)
    found.save(tmp_path / "train.npz")
    with np.load(tmp_path / "train.npz") as cores:
        np.testing.assert_array_equal(cores["core_1"], found.train.cores[1].numpy())
    found.save(tmp_path / "train.safetensors")
    from safetensors.torch import load_file

    assert torch.equal(load_file(tmp_path / "train.safetensors")["core_3"], found.train.cores[3])
    with pytest.raises(InputError, match=r"neither \.safetensors nor \.npz"):
        found.save(tmp_path / "train.txt")


def test_what_cannot_be_unrolled_is_refused(runs) -> None:
    for model in (
        make(TslmConfig()),
        make(GatedConfig(), output_gate="tanh"),
        make(GatedConfig(), head=MixtureConfig(experts=2)),
    ):
        with pytest.raises(UnsupportedError, match="no contraction"):
            tslm.unroll(model, "a")
    with pytest.raises(UnsupportedError, match="no chain"):
        tslm.unroll(runs["kn"], "the")
    model = make(GatedConfig())
    with pytest.raises(InputError, match="and not both"):
        tslm.unroll(model, "a", length=2)
    with pytest.raises(InputError, match="and not both"):
        tslm.unroll(model)
    with pytest.raises(NumberError, match="1 or more"):
        tslm.unroll(model, length=0)
    with pytest.raises(NumberError, match="no word for the legs"):
        tslm.unroll(model, length=2, words=0)
    with pytest.raises(CorpusError, match="no word"):
        tslm.unroll(model, " ")
    with pytest.raises(SizeLimitError, match="fewer words"):
        tslm.unroll(model, length=10**7)


def test_on_the_command_line(runs, capsys, tmp_path) -> None:
    folder = str(runs["gated"])
    assert main(["tensors", folder, "the cat sat", "--words", "4", "--out", str(tmp_path / "a.npz")]) == 0
    shown = capsys.readouterr().out
    assert "cut behind" in shown
    assert "logits differ from the model's own by at most" in shown
    assert main(["tensors", folder, "the zebra sat", "--words", "4", "--json"]) == 0
    told = capsys.readouterr()
    assert "a word that the model does not know, read as <unk>: zebra" in told.err
    assert json.loads(told.out)["unknown"] == ["zebra"]
    assert main(["tensors", folder, "--length", "3", "--words", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["shape"][:3] == [4, 4, 4]
    assert told["next"] is None
    assert len(told["entropies"]) == len(told["centred_entropies"]) == 3
