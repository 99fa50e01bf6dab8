"""The sum of models has the sum of their logits, whatever they are made of; and is what the theory says it is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import NumberError, UnsupportedError
from tslm.inference.chain import is_exact
from tslm.models.recurrent.addition import add_models
from tslm.models.recurrent.cells.additive import LstmConfig, RnnConfig
from tslm.models.recurrent.cells.gated import GatedConfig
from tslm.models.recurrent.cells.integration import IntegrationConfig
from tslm.models.recurrent.cells.tslm import TslmConfig
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.heads.mixture import MixtureConfig
from tslm.models.recurrent.heads.softmax import SoftmaxConfig
from tslm.models.recurrent.model import RecurrentModel

VOCABULARY = Vocabulary(("the", "<eos>", "cat", "sat", "<unk>", "dog"))

CONFIGS = {
    "gated": RecurrentConfig(cell=GatedConfig(), output_gate="linear", head=SoftmaxConfig(readout=True)),
    "split": RecurrentConfig(cell=GatedConfig(split=True), output_gate="tanh"),
    "stack": RecurrentConfig(cell=GatedConfig(), layers=2, skip=True, output_gate="linear"),
    "product": RecurrentConfig(cell=GatedConfig(), output_gate="product", head=SoftmaxConfig(readout=True)),
    "cascade": RecurrentConfig(cell=GatedConfig(), layers=3, cascade=True, output_gate="product"),
    "pairs": RecurrentConfig(cell=GatedConfig(), pairs=True, output_gate="linear"),
    "pure": RecurrentConfig(cell=TslmConfig(variant="pure")),
    "biased": RecurrentConfig(cell=TslmConfig(variant="biased", norm_limit=0.7)),
    "bounded": RecurrentConfig(cell=TslmConfig(variant="bounded"), tied=False),
    "rnn": RecurrentConfig(cell=RnnConfig()),
    "lstm": RecurrentConfig(cell=LstmConfig(), layers=2, tied=False),
    "mi": RecurrentConfig(cell=IntegrationConfig()),
}
SIZES = ((5, 5), (4, 3), (3, 6))
WEIGHTS = (0.7, 0.5, -0.2)


def make(config: RecurrentConfig, size: tuple[int, int], seed: int, **changes) -> RecurrentModel:
    torch.manual_seed(seed)
    config = dataclasses.replace(config, rank=size[0], embedding=size[1], **changes)
    model = RecurrentModel(config, VOCABULARY).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    for layer in range(config.layers):
        model.cell(layer).settle()
    return model


def logits(model: RecurrentModel, tokens_TB: torch.Tensor) -> torch.Tensor:
    outputs_TBR, _ = model.read(tokens_TB, model.begin(tokens_TB.shape[1]))
    latents_NKM, _ = model.head(outputs_TBR.flatten(0, 1))
    return latents_NKM[:, 0] @ model.output_VM.t() + model.bias


@torch.no_grad()
@pytest.mark.parametrize("name", CONFIGS)
def test_the_sums_logits_are_the_sum_of_the_logits(name) -> None:
    models = [make(CONFIGS[name], size, seed) for seed, size in enumerate(SIZES)]
    total = add_models(models, WEIGHTS)
    assert (total.config.rank, total.config.embedding) == (12, 14)
    tokens_TB = torch.randint(0, 6, (9, 4), generator=torch.Generator().manual_seed(1))
    expected = sum(weight * logits(model, tokens_TB) for model, weight in zip(models, WEIGHTS, strict=True))
    torch.testing.assert_close(logits(total, tokens_TB), expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("name", ["gated", "pure", "bounded"])
def test_the_sum_of_exact_networks_is_exact(name) -> None:
    models = [make(CONFIGS[name], size, seed) for seed, size in enumerate(SIZES[:2])]
    total = add_models(models, (0.5, 0.5))
    cell = total.chain()
    assert cell is not None
    assert is_exact(total, cell)


@torch.no_grad()
def test_models_with_and_without_a_tied_output_or_a_limit_go_together() -> None:
    tied = make(CONFIGS["gated"], (5, 4), 0)
    loose = make(CONFIGS["gated"], (4, 6), 1, tied=False, cell=GatedConfig(norm_limit=0.0))
    total = add_models([tied, loose], (1.0, 1.0))
    assert total.output is not None
    assert total.config.cell.norm_limit == 0
    tokens_TB = torch.tensor([[0, 5], [2, 3], [3, 1], [1, 0]])
    torch.testing.assert_close(
        logits(total, tokens_TB), logits(tied, tokens_TB) + logits(loose, tokens_TB), rtol=1e-9, atol=1e-9
    )


def test_a_saved_sum_is_loaded_as_it_was(tmp_path) -> None:
    models = [make(CONFIGS["gated"], size, seed).float() for seed, size in enumerate(SIZES)]
    total = add_models(models, WEIGHTS)
    total.save(tmp_path)
    again = RecurrentModel.load(tmp_path, total.config, VOCABULARY)
    tokens_BT = np.array([[0, 2, 3, 1, 5, 5, 2]])
    np.testing.assert_allclose(
        again.score(tokens_BT, again.start(1))[0], total.score(tokens_BT, total.start(1))[0], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"cell": LstmConfig()},
            "built differently .gated, split = False, 1 layer, output gate linear; lstm",
        ),
        ({"layers": 2}, "built differently"),
        ({"layers": 2, "cascade": True}, "2 layers, cascade, output gate linear"),
        ({"output_gate": "none"}, "output gate none"),
        ({"head": MixtureConfig(experts=2)}, "adds probabilities, not logits"),
        ({"cell": TslmConfig()}, "divides by all units at once"),
    ],
    ids=["cell", "layers", "cascade", "gate", "mixture", "normalised"],
)
def test_what_cannot_be_added_says_why(changes, message) -> None:
    first = make(CONFIGS["gated"], (5, 5), 0)
    with pytest.raises(UnsupportedError, match=message):
        add_models([first, make(CONFIGS["gated"], (5, 5), 1, **changes)], (1.0, 1.0))


def test_models_of_other_words_or_too_few_weights_are_refused() -> None:
    first = make(CONFIGS["gated"], (5, 5), 0)
    other = RecurrentModel(first.config, Vocabulary(("the", "<eos>", "cow", "sat", "<unk>", "dog"))).double()
    with pytest.raises(UnsupportedError, match="different words"):
        add_models([first, other], (1.0, 1.0))
    with pytest.raises(NumberError, match="1 weight for 2 models"):
        add_models([first, first], (1.0,))
