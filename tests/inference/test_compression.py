"""A model with fewer units: exact where nothing is lost, the same kind of cell, smaller, and told as it is."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

import tslm
from tslm.errors import NumberError, RunError, UnsupportedError
from tslm.inference.balance import add_ridge, balance, choose_units, observe, read_states
from tslm.inference.compression import compress_model
from tslm.models.recurrent.cells.gated import GatedConfig
from tslm.models.recurrent.cells.tslm import TslmConfig
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.heads.mixture import MixtureConfig
from tslm.models.recurrent.model import RecurrentModel

CELLS = {
    "pure": TslmConfig(variant="pure"),
    "biased": TslmConfig(variant="biased"),
    "bounded": TslmConfig(variant="bounded"),
    "gated": GatedConfig(),
    "split": GatedConfig(split=True),
}


def make(synthetic, cell, **more) -> RecurrentModel:
    torch.manual_seed(5)
    config = RecurrentConfig(cell=cell, **{"rank": 10, "embedding": 6, **more})
    return RecurrentModel(config, synthetic.vocabulary).double().eval()


def score(model, ids) -> np.ndarray:
    return model.score(ids[None, :300], model.start(1))[0]


@torch.no_grad()
@pytest.mark.parametrize("gate", ["none", "linear", "tanh", "product"])
@pytest.mark.parametrize("name", CELLS)
def test_units_that_nothing_reads_are_dropped_without_loss(synthetic, name, gate) -> None:
    model = make(synthetic, CELLS[name], output_gate=gate)
    model.cell(0).W[:, 6:] = 0
    model.cell(0).settle()
    model.head.projection.weight[:, 6:] = 0
    if model.product is not None:
        model.product[:, 6:] = 0
    ids = synthetic.splits["train"]
    smaller = compress_model(model, ids, 6, tokens=4000)
    assert smaller.config.rank == 6
    assert smaller.parameter_count < model.parameter_count
    assert type(smaller.cell(0)) is type(model.cell(0))
    # The ridge of the regressions leaves something over.
    np.testing.assert_allclose(score(smaller, ids), score(model, ids), rtol=1e-3, atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("head", ["softmax", "mixture"])
@pytest.mark.parametrize("gate", ["none", "product"])
@pytest.mark.parametrize("name", ["biased", "gated"])
def test_units_that_repeat_others_are_told_from_them(synthetic, name, gate, head) -> None:
    more = {"head": MixtureConfig(experts=2)} if head == "mixture" else {}
    model = make(synthetic, CELLS[name], output_gate=gate, **more)
    cell = model.cell(0)
    blocks = 3 if name == "gated" else 1
    for part in (cell.U, cell.c):
        part.copy_(torch.cat([torch.cat([rows[:5], rows[:5]]) for rows in part.chunk(blocks)]))
    cell.W[5:] = cell.W[:5]
    if name == "biased":
        cell.b[5:] = cell.b[:5]
    cell.settle()
    if model.product is not None:
        model.product.mul_(10)
        for rows in (model.product, model.gate.weight, model.gate.bias):
            rows[5:] = rows[:5]
    ids = synthetic.splits["train"]
    np.testing.assert_allclose(
        score(compress_model(model, ids, 5, tokens=4000), ids), score(model, ids), atol=0.02
    )


def test_what_is_seen_is_what_the_derivatives_say(synthetic) -> None:
    """The mean of g gᵀ over drawn predictions nears the Fisher information of the last word alone."""
    model = make(synthetic, GatedConfig(), rank=3, embedding=3)
    with torch.no_grad():
        model.cell(0).U[:3], model.cell(0).c[:3] = 0, -40  # nothing is held: later words see nothing
        model.cell(0).W.zero_()
    ids = torch.from_numpy(synthetic.splits["train"][:16_000].astype(np.int64)).view(400, 40)
    with torch.no_grad():
        states = read_states(model, ids).states_NR
        log_NV = model.head.predict(states, model.output_VM, model.bias)
        p_NV, V_VR = log_NV.exp(), model.output_VM @ model.head.linear().to(torch.float64)
        centred = V_VR - (p_NV @ V_VR)[:, None]
        expected = torch.einsum("nv,nvi,nvj->ij", p_NV, centred, centred) / len(p_NV)
    torch.testing.assert_close(observe(model, ids), expected, rtol=0.1, atol=0.05 * float(expected.max()))


def test_balanced_bases_and_units() -> None:
    torch.manual_seed(0)
    mixing = torch.randn(6, 3, dtype=torch.float64)
    states = torch.randn(4000, 3, dtype=torch.float64) @ mixing.mT  # three dimensions in six units
    values, left, right = balance(states, torch.eye(6, dtype=torch.float64))
    assert int((values > 1e-2 * values[0]).sum()) == 3
    kept = (states - states.mean(0)) @ right[:, :3] @ left[:, :3].mT
    torch.testing.assert_close(kept, states - states.mean(0), rtol=0, atol=1e-3)
    seen = torch.diag(torch.tensor([0.0, 0, 0, 1, 1, 1], dtype=torch.float64))
    independent = torch.randn(4000, 6, dtype=torch.float64)
    assert choose_units(independent, seen, 3, intercept=True).tolist() == [3, 4, 5]


def test_units_go_in_the_order_of_what_their_loss_costs() -> None:
    """Each step against the regression itself: the trace of the error in the metric of what is seen."""
    torch.manual_seed(2)
    states = torch.randn(300, 5, dtype=torch.float64) @ torch.randn(5, 5, dtype=torch.float64)
    root = torch.randn(5, 5, dtype=torch.float64)
    seen, left = root @ root.mT, list(range(5))
    moments = add_ridge(states.mT @ states / len(states))
    for rank in (4, 3, 2, 1):

        def cost(units) -> float:
            told = moments[units].mT @ torch.linalg.solve(moments[units][:, units], moments[units])
            return float(((moments - told) * seen).sum())

        costs = {unit: cost([other for other in left if other != unit]) for unit in left}
        left.remove(min(costs, key=costs.__getitem__))
        assert choose_units(states, seen, rank, intercept=False).tolist() == left


def test_what_cannot_be_compressed_is_refused(synthetic, runs) -> None:
    ids = synthetic.splits["train"]
    with pytest.raises(UnsupportedError, match="normalised"):
        compress_model(make(synthetic, TslmConfig()), ids, 3)
    with pytest.raises(NumberError, match="expected 1 to 9"):
        compress_model(make(synthetic, GatedConfig()), ids, 10)
    with pytest.raises(NumberError, match="give a longer text"):
        compress_model(make(synthetic, GatedConfig()), ids[:100], 3)
    with pytest.raises(UnsupportedError, match="no chain"):
        compress_model(tslm.load(runs["kn"]), ids, 3)
    with pytest.raises(UnsupportedError, match="2 layers"):
        compress_model(make(synthetic, GatedConfig(), layers=2), ids, 3)


@pytest.fixture(scope="module")
def trained(synthetic, tmp_path_factory):
    """A gated model of a text that is long enough to be read again."""
    folder = tmp_path_factory.mktemp("compress")
    words = synthetic.vocabulary.words
    for split, ids in synthetic.splits.items():
        text = (
            " ".join(words[number] for number in ids.tolist()).replace(" <eos> ", "\n").replace("<eos>", "")
        )
        (folder / f"{split}.txt").write_text(text.strip() + "\n")
    recipe = folder / "small.toml"
    recipe.write_text(
        f'[corpus]\nname = "small"\npath = ["{folder}/train.txt"]\n[model]\nkind = "recurrent"\nrank = 16\n'
        'embedding = 12\noutput_gate = "linear"\n[model.cell]\nkind = "gated"\n[model.head]\nkind = "softmax"\n'
        "[train]\nepochs = 2\nbatch = 20\nwindow = 20\nlearning_rate = 0.01\nthreads = 1\n[objective]\n"
    )
    tslm.train(recipe, folder / "run")
    return folder / "run"


def test_a_smaller_run(trained, tmp_path) -> None:
    before = tslm.open_run(trained)
    report = tslm.compress(trained, tmp_path / "smaller", rank=8)
    after = tslm.open_run(tmp_path / "smaller")
    assert after.recipe.model.rank == 8
    assert after.summary.parameters == report.after.parameters < report.before.parameters
    assert report.after.recurrent_parameters < report.before.recurrent_parameters / 1.5
    assert report.before.valid == before.summary.valid.perplexity
    assert report.after.valid == after.summary.valid.perplexity
    assert report.loss == pytest.approx(report.after.valid / report.before.valid - 1)
    assert report.loss < 0.3
    assert json.loads((tmp_path / "smaller" / "compression.json").read_text())["from"] == "run"
    tuned = tslm.compress(trained, tmp_path / "tuned", rank=8, tune=1)
    assert tuned.after.valid < report.after.valid
    assert tslm.open_run(tmp_path / "tuned").summary.training.epochs == 1
    assert tslm.score(tmp_path / "tuned", "a b").perplexity > 1
    with pytest.raises(RunError, match="is the run itself"):
        tslm.compress(trained, trained, rank=8)
    with pytest.raises(NumberError, match="epochs"):
        tslm.compress(trained, tmp_path / "x", rank=8, tune=-1)


def test_the_limit_of_W_is_kept_or_widened(synthetic) -> None:
    model = make(synthetic, GatedConfig())
    smaller = compress_model(model, synthetic.splits["train"], 5, tokens=4000)
    norm = float(torch.linalg.matrix_norm(smaller.cell(0).recurrent_weight().detach(), 2))
    assert smaller.config.cell.norm_limit >= max(1.0, norm)
    assert math.isclose(smaller.cell(0).norm_limit, smaller.config.cell.norm_limit)
    bounded = compress_model(
        make(synthetic, dataclasses.replace(CELLS["bounded"])), synthetic.splits["train"], 5, tokens=4000
    )
    assert float(torch.linalg.matrix_norm(bounded.cell(0).recurrent_weight().detach(), 2)) <= 0.98 + 1e-6
