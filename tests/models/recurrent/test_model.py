from __future__ import annotations

import numpy as np
import pytest
import torch

from tslm.config import write_config
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RecipeError, RunError, UnsupportedError
from tslm.inference.network import require_chain
from tslm.models.recurrent.cells.additive import LstmConfig, RnnConfig
from tslm.models.recurrent.cells.gated import GatedConfig
from tslm.models.recurrent.cells.integration import IntegrationConfig
from tslm.models.recurrent.cells.tslm import TslmConfig
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.heads.mixture import MixtureConfig
from tslm.models.recurrent.model import RecurrentModel
from tslm.models.registry import read_model

VOCABULARY = Vocabulary(("the", "<eos>", "cat", "sat", "<unk>", "dog"))

CONFIGS = {
    "tslm": RecurrentConfig(rank=5, embedding=4),
    "bounded": RecurrentConfig(cell=TslmConfig(variant="bounded"), rank=4, embedding=4),
    "rnn": RecurrentConfig(cell=RnnConfig(), rank=4, embedding=4, tied=False),
    "lstm": RecurrentConfig(cell=LstmConfig(), rank=4, embedding=4, layers=2),
    "mi": RecurrentConfig(cell=IntegrationConfig(), rank=4, embedding=4),
    "mixture": RecurrentConfig(rank=5, embedding=4, head=MixtureConfig(experts=3)),
    "gated": RecurrentConfig(cell=GatedConfig(), rank=5, embedding=4, output_gate="linear"),
    "split": RecurrentConfig(cell=GatedConfig(split=True), rank=4, embedding=4, layers=2, output_gate="tanh"),
    "stack": RecurrentConfig(
        cell=GatedConfig(), rank=5, embedding=4, layers=3, skip=True, output_gate="linear"
    ),
    "pairs": RecurrentConfig(cell=GatedConfig(), rank=5, embedding=4, output_gate="linear", pairs=True),
    "product": RecurrentConfig(cell=GatedConfig(), rank=5, embedding=4, output_gate="product"),
    "cascade": RecurrentConfig(
        cell=GatedConfig(), rank=5, embedding=4, layers=3, cascade=True, output_gate="product"
    ),
    "linear cascade": RecurrentConfig(
        cell=GatedConfig(split=True),
        rank=5,
        embedding=4,
        layers=2,
        cascade=True,
        output_gate="linear",
        pairs=True,
    ),
    "products everywhere": RecurrentConfig(
        rank=5, embedding=4, layers=2, skip=True, output_gate="product", head=MixtureConfig(experts=3)
    ),
}


@pytest.fixture(params=CONFIGS)
def model(request) -> RecurrentModel:
    torch.manual_seed(0)
    model = RecurrentModel(CONFIGS[request.param], VOCABULARY).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    for layer in range(model.config.layers):
        model.cell(layer).settle()
    return model


def test_scores_equal_the_distribution_word_by_word(model) -> None:
    tokens_BT = np.array([[0, 2, 3, 1], [5, 3, 1, 0]])
    scores_BT, _ = model.score(tokens_BT, model.start(2))
    state = model.start(2)
    for t in range(4):
        distribution_BV = model.predict(state)
        np.testing.assert_allclose(np.exp(distribution_BV).sum(-1), 1, rtol=1.3e-6, atol=1e-5)
        expected_B = distribution_BV[np.arange(2), tokens_BT[:, t]]
        np.testing.assert_allclose(scores_BT[:, t], expected_B, rtol=1.3e-6, atol=1e-5)
        _, state = model.score(tokens_BT[:, t : t + 1], state)


def test_pairs_read_each_word_beside_the_one_before_it() -> None:
    torch.manual_seed(0)
    model = RecurrentModel(CONFIGS["pairs"], VOCABULARY).eval()
    tokens_TB = torch.tensor([[0, 5], [2, 3], [3, 1], [1, 0]])
    words_TBM = model.embed(tokens_TB)
    cell, state_BR = model.cell(0), torch.zeros(2, 5)
    expected = []
    for t in range(4):
        before_BM = words_TBM[t - 1] if t else torch.zeros(2, 4)
        pair_BM = torch.cat([words_TBM[t], before_BM], -1)
        (state_BR,) = cell(pair_BM.unsqueeze(0), (state_BR,))[1]
        expected.append(model.read_out(state_BR, pair_BM))
    whole_TBR, _ = model.read(tokens_TB, model.begin(2))
    torch.testing.assert_close(whole_TBR, torch.stack(expected))
    first_TBR, carried = model.read(tokens_TB[:1], model.begin(2))
    second_TBR, _ = model.read(tokens_TB[1:], carried)
    torch.testing.assert_close(torch.cat([first_TBR, second_TBR]), whole_TBR)
    with pytest.raises(UnsupportedError, match="pairs of words"):
        require_chain(model)


def lift(cell, alphas_VM: torch.Tensor) -> torch.Tensor:
    """Return the matrices of words with the constant coordinate: h̃ = (h, 1)."""
    A_VRR, c_VR, _ = cell.operators(alphas_VM)
    V, R = c_VR.shape
    last_V1R = torch.cat([c_VR.new_zeros(V, R), c_VR.new_ones(V, 1)], 1).unsqueeze(1)
    return torch.cat([torch.cat([A_VRR, c_VR.unsqueeze(-1)], 2), last_V1R], 1)


def products_of_copies(Q_RR: torch.Tensor, opened_VR: torch.Tensor) -> torch.Tensor:
    """Return, for each word, the matrix that reads o ⊙ h ⊙ (1 + Q h) out of h̃ ⊗ h̃."""
    R = len(Q_RR)
    read_VRRR = opened_VR.new_zeros(len(opened_VR), R, R + 1, R + 1)
    for r in range(R):
        read_VRRR[:, r, r, :R] = opened_VR[:, r, None] * Q_RR[r]
        read_VRRR[:, r, r, R] = opened_VR[:, r]
    return read_VRRR.flatten(2)


def two_copies(model: RecurrentModel, words: int) -> torch.Tensor:
    """Eq. 3. The logits behind every sentence of some words: one tensor, of bond (R + 1)², its words copied by δ."""
    alphas_VM = model.embed(torch.arange(len(VOCABULARY)))
    # δ: both copies of a word's leg have the same value.
    copied_VXY = torch.stack(
        [torch.kron(lifted_RR, lifted_RR) for lifted_RR in lift(model.cell(0), alphas_VM)]
    )
    first_R = model.cell(0).operators(alphas_VM)[2][VOCABULARY.eos_id]
    begun_R = torch.cat([first_R, first_R.new_ones(1)])
    tensor = torch.kron(begun_R, begun_R)
    for _ in range(words):
        tensor = torch.einsum("...y,vxy->...vx", tensor, copied_VXY)
    read_VRX = products_of_copies(model.product, model.open_gate(alphas_VM))
    outputs = torch.einsum("...vx,vrx->...vr", tensor, read_VRX)
    return outputs @ (model.output_VM @ model.head.linear()).t() + model.bias


def compare(model: RecurrentModel, slow: torch.Tensor) -> None:
    """Check the logits behind every sentence of three words, and their gradients, against an explicit tensor."""
    V = len(VOCABULARY)
    sentences_TB = torch.cartesian_prod(*[torch.arange(V)] * 3).t()
    begin_1B = torch.full((1, V**3), VOCABULARY.eos_id)
    outputs_TBR, _ = model.read(torch.cat([begin_1B, sentences_TB]), model.begin(V**3))
    latents_BKM, _ = model.head(outputs_TBR[-1])
    fast = (latents_BKM[:, 0] @ model.output_VM.t() + model.bias).view(slow.shape)
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-12)
    weight = torch.randn_like(slow)
    gradients = [
        torch.autograd.grad((logits * weight).sum(), list(model.parameters()), allow_unused=True)
        for logits in (fast, slow)
    ]
    for of_fast, of_slow in zip(*gradients, strict=True):
        torch.testing.assert_close(of_fast, of_slow, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("cell", [GatedConfig(), GatedConfig(split=True), TslmConfig(variant="bounded")])
def test_products_are_read_out_of_two_copies_of_the_network(cell) -> None:
    torch.manual_seed(0)
    config = RecurrentConfig(cell=cell, rank=4, embedding=3, output_gate="product")
    model = RecurrentModel(config, VOCABULARY).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    model.cell(0).settle()
    compare(model, two_copies(model, 3))


def one_network(model: RecurrentModel, words: int) -> torch.Tensor:
    """The logits behind every sentence of some words, of a cascade of two: two copies of one chain that has both.

    The chain's state is (h̃₁ ⊗ h̃₁, h₂), of bond (R + 1)² + R, and its matrices are of single words.
    """
    alphas_VM = model.embed(torch.arange(len(VOCABULARY)))
    feed, above = model.feeds[0], model.cell(1)
    below_VRR = lift(model.cell(0), alphas_VM)
    copied_VXX = torch.stack([torch.kron(lifted_RR, lifted_RR) for lifted_RR in below_VRR])
    opened_VR = 1.3 * torch.sigmoid(alphas_VM @ feed.gate.weight.t() + feed.gate.bias)
    passed_VRX = products_of_copies(feed.product, opened_VR) @ copied_VXX
    A_VRR, c_VR, _ = above.operators(alphas_VM)
    free_VR = 1 - torch.sigmoid(alphas_VM @ above.U[: len(above.W)].t() + above.c[: len(above.W)])
    if above.split:
        free_VR = free_VR.sqrt()
    # What the cell above is fed, and what it adds of its own; the constant coordinate is the last one of h̃₁ ⊗ h̃₁.
    fed_VRX = free_VR.unsqueeze(-1) * (feed.A @ passed_VRX)
    fed_VRX = torch.cat([fed_VRX[..., :-1], fed_VRX[..., -1:] + c_VR.unsqueeze(-1)], -1)
    zero_VXR = torch.zeros_like(fed_VRX).mT
    chain_VXX = torch.cat([torch.cat([copied_VXX, zero_VXR], 2), torch.cat([fed_VRX, A_VRR], 2)], 1)
    # A text begins with <eos>, read from nothing: h̃₁ ⊗ h̃₁ = (0 … 0, 1), h₂ = 0.
    X, R = chain_VXX.shape[-1], len(above.W)
    state = torch.zeros(X, dtype=alphas_VM.dtype)
    state[X - R - 1] = 1
    state = chain_VXX[VOCABULARY.eos_id] @ state
    for _ in range(words):
        state = torch.einsum("...y,vxy->...vx", state, chain_VXX)
    # Read out of the lower cell through products of its own, of the upper one through two copies of the whole chain.
    lower = torch.einsum("...vx,vrx->...vr", state[..., : X - R], products_of_copies(feed.product, opened_VR))
    upper_h = torch.cat([state[..., X - R :], state[..., X - R - 1 : X - R]], -1)
    copies = torch.einsum("...x,...y->...xy", upper_h, upper_h).flatten(-2)
    read_VRX = products_of_copies(model.product, model.open_gate(alphas_VM))
    outputs = lower + torch.einsum("...vx,vrx->...vr", copies, read_VRX)
    return outputs @ (model.output_VM @ model.head.linear()).t() + model.bias


@pytest.mark.parametrize("split", [False, True])
def test_a_cascade_is_one_network(split) -> None:
    torch.manual_seed(0)
    config = RecurrentConfig(
        cell=GatedConfig(split=split), rank=3, embedding=2, layers=2, cascade=True, output_gate="product"
    )
    model = RecurrentModel(config, VOCABULARY).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    for layer in range(2):
        model.cell(layer).settle()
    compare(model, one_network(model, 3))


@pytest.mark.parametrize("skip", [False, True])
def test_a_stack_reads_states_for_words_and_adds_them_up_where_asked_to(skip, monkeypatch) -> None:
    torch.manual_seed(0)
    config = RecurrentConfig(
        cell=GatedConfig(), rank=5, embedding=4, layers=3, skip=skip, output_gate="linear", dropout_layers=0.5
    )
    model = RecurrentModel(config, VOCABULARY).eval()
    tokens_TB = torch.tensor([[0, 5], [2, 3], [3, 1], [1, 0]])
    words_TBM = model.embed(tokens_TB)
    states = [torch.zeros(2, 5) for _ in range(3)]
    expected = []
    for word_BM in words_TBM:
        read_BR, total_BR = word_BM, torch.zeros(2, 5)
        for layer in range(3):
            (states[layer],) = model.cell(layer)(read_BR.unsqueeze(0), (states[layer],))[1]
            total_BR = total_BR + states[layer]
            read_BR = total_BR if skip else states[layer]
        expected.append(model.read_out(read_BR, word_BM))
    whole_TBR, _ = model.read(tokens_TB, model.begin(2))
    torch.testing.assert_close(whole_TBR, torch.stack(expected))
    first_TBR, carried = model.read(tokens_TB[:2], model.begin(2))
    second_TBR, _ = model.read(tokens_TB[2:], carried)
    torch.testing.assert_close(torch.cat([first_TBR, second_TBR]), whole_TBR)
    # Dropout between cells lies on what the upper ones read, not on what is added up.
    model.train()
    monkeypatch.setattr(model, "_locked", lambda states, chance: states * 0 if chance == 0.5 else states)
    states, words_BM = [torch.zeros(2, 5) for _ in range(3)], words_TBM[0]
    read_BR, total_BR = words_BM, torch.zeros(2, 5)
    for layer in range(3):
        (states[layer],) = model.cell(layer)(read_BR.unsqueeze(0), (states[layer],))[1]
        total_BR = states[layer] + (total_BR if skip else 0)
        read_BR = torch.zeros(2, 5)
    dropped_TBR, _ = model.read(tokens_TB, model.begin(2))
    torch.testing.assert_close(dropped_TBR[0], model.read_out(total_BR, words_BM))


def test_a_cascade_is_trained_with_dropout_on_what_is_fed_and_on_w(monkeypatch) -> None:
    torch.manual_seed(0)
    cell = GatedConfig(weight_drop=0.25)
    config = RecurrentConfig(
        cell=cell, rank=5, embedding=4, layers=2, cascade=True, output_gate="product", dropout_layers=0.5
    )
    model = RecurrentModel(config, VOCABULARY)
    with torch.no_grad():
        for part in model.cells:
            part.W.add_(torch.randn_like(part.W))
    followed = [part.left_R.clone() for part in model.cells]
    tokens_TB = torch.tensor([[0, 5], [2, 3], [3, 1]])
    words_TBM = model.embed(tokens_TB)
    # Dropout as marks: what is fed is doubled, every W is left out.
    monkeypatch.setattr(model, "_locked", lambda values, chance: values * 2 if chance == 0.5 else values)
    for part in model.cells:
        monkeypatch.setattr(part, "dropped", torch.zeros_like)
    dropped_TBR, _ = model.read(tokens_TB, model.begin(2))
    states, expected = [torch.zeros(2, 5)] * 2, []
    for word_BM in words_TBM:
        a_BR, _, c_BR = model.cell(0).factors(word_BM)
        states[0] = a_BR * states[0] + c_BR
        read_BR = model.feed(0)(states[0], word_BM)
        a_BR, _, c_BR = model.cell(1).factors(word_BM)
        states[1] = a_BR * states[1] + c_BR + (1 - a_BR) * (2 * read_BR @ model.feed(0).A.t())
        expected.append(read_BR + model.read_out(states[1], word_BM))
    torch.testing.assert_close(dropped_TBR, torch.stack(expected))
    for part, before_R in zip(model.cells, followed, strict=True):
        assert not torch.equal(part.left_R, before_R)  # the norm of each W is followed while training


def test_a_text_begins_as_if_eos_had_just_been_read(model) -> None:
    tokens_BT = np.array([[0, 2]])
    inputs_TB = torch.tensor([[VOCABULARY.eos_id], [0]])
    states_TBR, _ = model.read(inputs_TB, model.begin(1))
    expected_NV = model.head.predict(states_TBR.flatten(0, 1), model.output_VM, model.bias)
    scores_BT, _ = model.score(tokens_BT, model.start(1))
    expected_T = expected_NV.detach().numpy()[np.arange(2), tokens_BT[0]]
    np.testing.assert_allclose(scores_BT[0], expected_T, rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_ids_of_any_width_are_read_and_not_written(model, dtype) -> None:
    tokens_BT = np.array([[0, 2, 3, 1]], dtype)
    tokens_BT.flags.writeable = False
    scores_BT, _ = model.score(tokens_BT, model.start(1))
    expected_BT, _ = model.score(np.array([[0, 2, 3, 1]]), model.start(1))
    assert scores_BT.dtype == np.float32
    assert np.array_equal(scores_BT, expected_BT)


def test_what_was_scored_does_not_hinder_training(model) -> None:
    """States come from inference mode, weights must not: the same model is measured after every epoch."""
    model.train()
    model.score(np.array([[0, 2, 3, 1]]), model.start(1))
    states_TBR, _ = model.read(torch.tensor([[0], [2]]), model.begin(1))
    states_TBR.sum().backward()
    assert model.embedding.grad is not None


def test_dropout_is_off_in_scoring_even_while_training(model) -> None:
    model.train()
    tokens_BT = np.array([[0, 2, 3, 1]])
    first, second = (model.score(tokens_BT, model.start(1))[0] for _ in range(2))
    assert np.array_equal(first, second)
    assert model.training


def test_saved_and_loaded_models_agree(model, tmp_path) -> None:
    model.save(tmp_path)
    again = RecurrentModel.load(tmp_path, model.config, VOCABULARY)
    tokens_BT = np.array([[0, 2, 3, 1]])
    assert np.array_equal(
        again.score(tokens_BT, again.start(1))[0], model.score(tokens_BT, model.start(1))[0]
    )
    assert again.parameter_count == model.parameter_count == sum(p.numel() for p in model.parameters())


def test_a_damaged_or_misfitting_file_is_named(model, tmp_path) -> None:
    with pytest.raises(RunError, match="it is missing"):
        RecurrentModel.load(tmp_path, model.config, VOCABULARY)
    model.save(tmp_path)
    larger = Vocabulary((*VOCABULARY.words, "mouse"))
    with pytest.raises(RunError, match="recipe and vocabulary ask for"):
        RecurrentModel.load(tmp_path, model.config, larger)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(RunError, match="damaged"):
        RecurrentModel.load(tmp_path, model.config, VOCABULARY)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "model.rank = 0 must be 1 to 65,536"),
        ({"skip": True}, "model.skip adds up the states of several cells; set model.layers to 2 or more"),
        ({"cascade": True}, "model.cascade feeds cells to one another; set model.layers to 2 or more"),
        ({"cascade": True, "skip": True, "layers": 2}, "set one of the two"),
        (
            {"cascade": True, "layers": 2},
            "goes with cells that take more than words, such as gated; tslm does not",
        ),
        ({"layers": 10**9}, "model.layers = 1000000000 must be 1 to 256"),
        ({"dropout_input": 1.0}, r"model.dropout_input = 1.0 must lie in \[0, 1\)"),
        ({"experts": 3}, 'needs model.head = "mixture"'),
        ({"cell": {"kind": "tslm", "norm_limit": 0.0}}, "model.cell.norm_limit = 0.0 must be positive"),
        ({"cell": {"kind": "tslm", "variant": "bounded", "norm_limit": 1.0}}, "does not bound the state"),
        ({"cell": {"kind": "gated", "split": True, "norm_limit": 1.1}}, "bounds the state only where"),
        ({"cell": {"kind": "lstm", "variant": "pure"}}, "unknown key 'model.cell.variant'"),
        ({"cell": {"kind": "lstmm"}}, "unknown model.cell.kind 'lstmm': did you mean 'lstm'"),
        ({"cell": {"weight_drop": 0.1}}, "missing key 'model.cell.kind'"),
        ({"cell": 3}, "model.cell = 3 is not a table"),
        ({"head": {"kind": "mixture", "experts": 0}}, "model.head.experts = 0 must be 1 to 1024"),
        (
            {"cell": "lstm", "variant": "pure"},
            "model.variant = 'pure' is a key of the TSLM; a cell 'lstm' has none",
        ),
        ({"cell": "lstm", "norm_limit": 0.5}, "model.norm_limit = 0.5 is a key of the TSLM"),
        ({"cell": {"kind": "lstm"}, "weight_drop": 0.1}, r"does not go with a table \[model.cell\]"),
        ({"head": "mixture", "readout": True}, "is a key of the softmax head"),
    ],
)
def test_wrong_settings_are_refused(settings, message) -> None:
    with pytest.raises(RecipeError, match=message):
        read_model({"kind": "recurrent", **settings})


def test_flat_tables_of_old_recipes_are_nested() -> None:
    old = {
        "cell": "tslm",
        "variant": "biased",
        "weight_drop": 0.1,
        "head": "mixture",
        "experts": 2,
        "latent": "identity",
    }
    config = read_model({"kind": "recurrent", **old, "dropout_latent": 0.3, "readout": False})[1]
    assert config.cell == TslmConfig(variant="biased", weight_drop=0.1)
    assert config.head == MixtureConfig(experts=2, latent="identity", dropout=0.3)
    # An old run folder had every default written out, whatever the cell.
    written = {
        "cell": "lstm",
        "variant": "normalised",
        "holding": 0.5,
        "head": "softmax",
        "experts": 1,
        "latent": "tanh",
    }
    assert read_model({"kind": "recurrent", **written})[1] == RecurrentConfig(cell=LstmConfig())


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_config_is_read_as_it_was_written(config) -> None:
    assert read_model({"kind": "recurrent", **write_config(config)}) == ("recurrent", config)


def test_locked_dropout_drops_the_same_entries_at_every_step() -> None:
    torch.manual_seed(0)
    config = RecurrentConfig(rank=4, embedding=4, dropout_input=0.5, dropout_output=0.5, dropout_words=0.3)
    model = RecurrentModel(config, VOCABULARY).train()
    ones_TBM = torch.ones(6, 3, 4)
    dropped_TBM = model._locked(ones_TBM, 0.5)
    assert (dropped_TBM == dropped_TBM[0]).all()
    assert set(dropped_TBM.unique().tolist()) == {0.0, 2.0}
