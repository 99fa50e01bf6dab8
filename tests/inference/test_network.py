"""The network of a sentence contracts to the model's own logits, whatever the cell, and is drawn as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tslm
from tslm.corpus.vocabulary import Vocabulary
from tslm.drawing.picture import find_overlaps
from tslm.drawing.sentence import draw_sentence
from tslm.errors import CorpusError, SizeLimitError, UnsupportedError
from tslm.inference.drawing import draw_model
from tslm.inference.network import build_network
from tslm.models.recurrent.cells.additive import LstmConfig
from tslm.models.recurrent.cells.gated import GatedConfig
from tslm.models.recurrent.cells.tslm import TslmConfig
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.heads.mixture import MixtureConfig
from tslm.models.recurrent.heads.softmax import SoftmaxConfig
from tslm.models.recurrent.model import RecurrentModel

WORDS = ("<eos>", "<unk>", "a", "b", "c", "d")
CELLS = [
    *[TslmConfig(variant=variant) for variant in ("pure", "biased", "bounded", "normalised")],
    GatedConfig(),
    GatedConfig(split=True),
]


def name(cell: Any) -> str:
    return f"{cell.kind}-{getattr(cell, 'variant', 'split' if getattr(cell, 'split', False) else 'plain')}"


def make(cell: Any, **more: Any) -> RecurrentModel:
    torch.manual_seed(3)
    model = RecurrentModel(
        RecurrentConfig(cell=cell, **{"rank": 7, "embedding": 7, **more}), Vocabulary(WORDS)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    for one in range(model.config.layers):
        model.cell(one).settle()
    return model.double().eval()


def predict(model: RecurrentModel, words: list[str]) -> np.ndarray:
    _, state = model.score(model.vocabulary.encode(words)[None], model.start(1))
    return model.predict(state)[0]


@pytest.mark.parametrize("cell", CELLS, ids=name)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"embedding": 4},
        {"tied": False, "head": SoftmaxConfig(readout=True)},
        {"output_gate": "linear", "embedding": 5},
    ],
    ids=["plain", "projected", "readout", "gate"],
)
@pytest.mark.parametrize("words", [["a"], ["b", "a", "a", "d", "c", "x"]], ids=len)
def test_it_contracts_to_the_models_own_logits(cell: Any, more: dict[str, Any], words: list[str]) -> None:
    model = make(cell, **more)
    found = build_network(model, " ".join(words))
    assert found.logits
    assert found.exact == model.chain().exact
    assert found.words == ("<eos>", *words)
    logits = found.contract()
    np.testing.assert_allclose(logits.log_softmax(-1).numpy(), predict(model, words), atol=1e-10)
    # Not only up to what a softmax does not see: the very logits.
    _, state = model.score(model.vocabulary.encode(words)[None], model.start(1))
    with torch.inference_mode():
        latents, _ = model.head(state.output_BR)
        expected = torch.nn.functional.linear(latents[0, 0], model.output_VM, model.bias)
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)
    picture = draw_sentence(found.network, found.words, lifted=True, notes=found.notes)
    assert find_overlaps(picture) == []


@pytest.mark.parametrize("cell", CELLS, ids=name)
@pytest.mark.parametrize(
    "more",
    [{"output_gate": "tanh"}, {"output_gate": "product"}, {"head": MixtureConfig(experts=3)}],
    ids=["tanh", "product", "mixture"],
)
def test_where_no_matrix_reads_the_state_it_contracts_to_the_state(cell: Any, more: dict[str, Any]) -> None:
    model = make(cell, **more)
    found = build_network(model, "a c b")
    assert not found.logits
    assert any("the open leg is the state" in note for note in found.notes)
    ids = torch.from_numpy(model.vocabulary.encode(["<eos>", "a", "c", "b"]).astype(np.int64))
    states, _ = model.cell(0)(model.embed(ids)[:, None], model.cell(0).start(1))
    torch.testing.assert_close(found.contract()[:-1], states[-1, 0].detach(), rtol=1e-9, atol=1e-9)
    assert float(found.contract()[-1]) == pytest.approx(1)
    assert "vocabulary" not in draw_model(model, "a c b")


@pytest.mark.parametrize("name", ["tslm", "gated", "normalised"])
def test_trained_models(runs, name: str) -> None:
    model = tslm.load(runs[name])
    words = ["the", "old", "man", "sat", "on"]
    logits = build_network(model, " ".join(words)).contract()
    np.testing.assert_allclose(logits.log_softmax(-1).numpy(), predict(model, words), atol=1e-5)


def test_network_is_drawn_with_its_real_sizes(runs) -> None:
    svg = draw_model(tslm.load(runs["tslm"]), "the <script>alert(1)</script> sat")
    assert "r = 12 + 1" in svg
    assert "m = 10 + 1" in svg
    assert "&lt;eos&gt;" in svg
    assert "always 1: it carries the biases" in svg
    assert "<script" not in svg
    assert "A₃" in draw_model(tslm.load(runs["gated"]), "the cat sat")


def test_what_is_no_chain_is_refused(runs) -> None:
    model = tslm.load(runs["tslm"])
    with pytest.raises(SizeLimitError, match="25 words"):
        draw_model(model, "the " * 25)
    with pytest.raises(CorpusError, match="no word"):
        draw_model(model, "")
    with pytest.raises(UnsupportedError, match="'ngram' is no chain"):
        draw_model(tslm.load(runs["kn"]), "the cat")
    with pytest.raises(UnsupportedError, match="2 layers"):
        build_network(make(TslmConfig(), layers=2), "a")
    with pytest.raises(UnsupportedError, match="no chain"):
        build_network(make(LstmConfig()), "a")
