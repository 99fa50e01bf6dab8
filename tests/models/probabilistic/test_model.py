from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RecipeError, RunError
from tslm.models.probabilistic.clusters import cluster_words, describe_words
from tslm.models.probabilistic.model import ProbabilisticConfig, ProbabilisticModel
from tslm.models.registry import read_model
from tslm.runs.run import load
from tslm.runs.summary import read_summary
from tslm.runs.train import train
from tslm.training.watcher import Watcher

VOCABULARY = Vocabulary(("the", "<eos>", "cat", "sat", "<unk>", "dog"))

CONFIGS = {
    "neural": ProbabilisticConfig(rank=6, clusters=3, alone=1, embedding=4),
    "free": ProbabilisticConfig(rank=4, clusters=2, alone=0, parameters="free"),
    "dense": ProbabilisticConfig(rank=5, clusters=1, embedding=4, layers=2),
    "features": ProbabilisticConfig(rank=5, clusters=1, features=3, embedding=4),
    "free features": ProbabilisticConfig(rank=5, clusters=1, features=2, parameters="free"),
}


@pytest.fixture(params=CONFIGS)
def model(request) -> ProbabilisticModel:
    torch.manual_seed(0)
    model = ProbabilisticModel(CONFIGS[request.param], VOCABULARY).double().eval()
    with torch.no_grad():
        model.begin_k.normal_()
    return model


@torch.no_grad()
def tables(model: ProbabilisticModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The model as W (R × R, from row to column), emissions (R × V) and the probability of each state before a text."""
    C, k, factors = model.config.clusters, model.config.states, model.factors
    R, V = C * k, len(model.vocabulary)
    W, emission, start = np.zeros((R, R)), np.zeros((R, V)), np.zeros(R)
    for c, d in itertools.product(range(C), range(C)):
        block = factors.blocks(torch.tensor([c]), torch.tensor([d]))[0]
        W[c * k : c * k + k, d * k : d * k + k] = factors.onward_CkC[c, :, d, None] * block
    for word in range(V):
        c = int(model.cluster_V[word])
        emission[c * k : c * k + k, word] = factors.emission_Vk[word]
    c = int(model.cluster_V[model.vocabulary.eos_id])
    start[c * k : c * k + k] = model.begin_k.softmax(0).detach()
    return W, emission, start


def test_the_factors_are_probabilities(model: ProbabilisticModel) -> None:
    W, emission, start = tables(model)
    assert (W >= 0).all()
    np.testing.assert_allclose(W.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(emission.sum(1), 1, rtol=1e-12)
    assert start.sum() == pytest.approx(1, rel=1e-12)


def test_a_text_has_the_probability_of_all_hidden_paths_together(model: ProbabilisticModel) -> None:
    """Eq. 11: the tensor contracted with the words is the sum over every path of states."""
    W, emission, start = tables(model)
    text = [2, 3, 1]
    expected = 0.0
    for path in itertools.product(range(len(W)), repeat=len(text)):
        before = start
        term = 1.0
        for place, (word, state) in enumerate(zip(text, path, strict=True)):
            term *= (before @ W[:, state] if place == 0 else W[path[place - 1], state]) * emission[
                state, word
            ]
        expected += term
    scores, _ = model.score(np.array([text]), model.start(1))
    assert scores.sum() == pytest.approx(math.log(expected), rel=1e-10)


def test_all_texts_of_a_length_have_probability_one(model: ProbabilisticModel) -> None:
    texts = np.array(list(itertools.product(range(len(VOCABULARY)), repeat=3)))
    scores, _ = model.score(texts, model.start(len(texts)))
    assert np.exp(scores.sum(1)).sum() == pytest.approx(1, rel=1e-10)


def test_predict_agrees_with_score_in_pieces(model: ProbabilisticModel, monkeypatch) -> None:
    text = np.array([[0, 2, 3, 1, 5], [4, 4, 1, 0, 0]])
    whole, _ = model.score(text, model.start(2))
    monkeypatch.setattr("tslm.models.probabilistic.hidden.AT_ONCE", 1)
    state = model.start(2)
    for t in range(text.shape[1]):
        predicted = model.predict(state)
        np.testing.assert_allclose(np.exp(predicted).sum(1), 1, rtol=1e-10)
        one, state = model.score(text[:, t : t + 1], state)
        np.testing.assert_allclose(one[:, 0], whole[:, t], rtol=1e-10)
        np.testing.assert_allclose(predicted[np.arange(2), text[:, t]], whole[:, t], rtol=1e-10)


def test_a_window_of_training_is_scored_as_text(model: ProbabilisticModel) -> None:
    text_TB = torch.tensor([[0, 2], [3, 1], [5, 4]])
    inputs_TB = torch.cat([torch.full((1, 2), VOCABULARY.eos_id), text_TB[:-1]])
    targets_TB = text_TB.clone()
    targets_TB[2, 1] = -100
    nats, ((belief_Bk,),), _, _ = model.read_window(inputs_TB, targets_TB, model.begin(2), lambda *_: None)  # type: ignore[arg-type]
    scores, state = model.score(text_TB.t().numpy(), model.start(2))
    assert nats.item() == pytest.approx(-(scores.sum() - scores[1, 2]) / 5, rel=1e-10)
    torch.testing.assert_close(belief_Bk[0], state.belief_Bk[0])


def test_dropped_states_take_no_part() -> None:
    torch.manual_seed(0)
    config = ProbabilisticConfig(rank=12, clusters=3, alone=1, embedding=4, dropout_states=0.5, dropout=0.1)
    model = ProbabilisticModel(config, VOCABULARY).train()
    inputs_TB = torch.tensor([[1, 1], [0, 2]])
    window = model.read_window(inputs_TB, torch.tensor([[0, 2], [3, 1]]), model.begin(2), lambda *_: None)  # type: ignore[arg-type]
    ((belief_Bk,),) = window.carried
    assert belief_Bk.shape == (2, 4)
    assert ((belief_Bk > 0).sum(1) == 2).all()
    window.nats.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("parameters", ["neural", "free"])
def test_features_stand_between_the_states_that_take_part(parameters) -> None:
    torch.manual_seed(0)
    config = ProbabilisticConfig(rank=6, clusters=1, features=2, parameters=parameters, embedding=4)
    model = ProbabilisticModel(config, VOCABULARY).double()
    kept_Ck = torch.tensor([[0, 2, 5]])
    block_kk = model.parts.factors(model.layout, kept_Ck).blocks(
        torch.zeros(1).long(), torch.zeros(1).long()
    )[0]
    assert block_kk.shape == (3, 3)
    assert torch.linalg.matrix_rank(block_kk) == 2
    torch.testing.assert_close(block_kk.sum(1), torch.ones(3).double())
    whole_kk = model.factors.blocks(torch.zeros(1).long(), torch.zeros(1).long())[0]
    # Given its feature, a state is chosen among those that take part as it is among all.
    ratio_kk = block_kk / whole_kk[kept_Ck[0]][:, kept_Ck[0]]
    assert (ratio_kk > 1).all()


def test_a_bigram_model_is_a_special_case() -> None:
    """One state per word: W is the matrix of bigram probabilities, and every word is its own state."""
    torch.manual_seed(0)
    V = len(VOCABULARY)
    bigram_VV = torch.rand(V, V).double()
    bigram_VV /= bigram_VV.sum(1, keepdim=True)
    model = ProbabilisticModel(
        ProbabilisticConfig(rank=V, clusters=V, alone=0, parameters="free"), VOCABULARY
    )
    model.double().eval()
    model.load_state_dict(model.state_dict() | {"parts.onward": bigram_VV.log().unsqueeze(1)})
    text = np.array([[0, 2, 3, 1, 5]])
    scores, _ = model.score(text, model.start(1))
    expected = bigram_VV[[VOCABULARY.eos_id, *text[0, :-1]], text[0]].log()
    np.testing.assert_allclose(scores[0], expected, rtol=1e-10)


def test_a_trigram_model_is_a_special_case() -> None:
    """A state for each pair of neighbours: the next word is drawn, and its state remembers the word before it."""
    torch.manual_seed(0)
    V = len(VOCABULARY)
    trigram_VVV = torch.rand(V, V, V).double()  # before, last, next
    trigram_VVV /= trigram_VVV.sum(2, keepdim=True)
    config = ProbabilisticConfig(rank=V * V, clusters=V, alone=0, parameters="free")
    model = ProbabilisticModel(config, VOCABULARY).double().eval()
    # The states of a word are numbered by the word before it: from any state of word c the next one is number c.
    within_VVkk = torch.full((V, V, V, V), -1e9).double()
    within_VVkk[torch.arange(V), :, :, torch.arange(V)] = 0
    begin_k = torch.full((V,), -1e9).double()
    begin_k[VOCABULARY.eos_id] = 0
    weights = {
        "parts.within": within_VVkk,
        "parts.onward": trigram_VVV.transpose(0, 1).log(),
        "begin_k": begin_k,
    }
    model.load_state_dict(model.state_dict() | weights)
    text = [0, 2, 3, 1, 5, 5]
    scores, _ = model.score(np.array([text]), model.start(1))
    history = [VOCABULARY.eos_id, VOCABULARY.eos_id, *text]
    expected = [math.log(trigram_VVV[history[t], history[t + 1], word]) for t, word in enumerate(text)]
    np.testing.assert_allclose(scores[0], expected, rtol=1e-10)


def test_clusters_hold_words_with_alike_neighbours() -> None:
    numbers = np.random.default_rng(0)
    # Words 2 to 5 stand between 0 and 1, words 6 to 9 between 1 and 0.
    pairs = np.stack([np.tile([0, 1], 400), numbers.integers(2, 6, 800)], 1)
    pairs[1::2, 1] += 4
    ids = pairs.flatten().astype(np.int32)
    counts = np.bincount(ids, minlength=10)
    found = cluster_words(describe_words(ids, 10, 1), counts, 4, 2, 1)
    assert found[0] != found[1]
    assert set(found[2:6]) != set(found[6:10])
    assert len(set(found[2:6])) == len(set(found[6:10])) == 1


def test_save_and_load(model: ProbabilisticModel, tmp_path) -> None:
    model = model.float()
    model.assign(torch.arange(len(VOCABULARY)).flip(0) % model.config.clusters)
    model.save(tmp_path)
    again = ProbabilisticModel.load(tmp_path, model.config, VOCABULARY)
    text = np.array([[0, 2, 3, 1]])
    np.testing.assert_array_equal(model.score(text, model.start(1))[0], again.score(text, again.start(1))[0])
    if model.config.clusters > 1:
        model.cluster_V[0] = 77
        model.save(tmp_path)
        with pytest.raises(RunError, match="cluster outside 0 to"):
            ProbabilisticModel.load(tmp_path, model.config, VOCABULARY)


def test_wrong_shapes_are_refused() -> None:
    for table, message in (
        ({"rank": 10, "clusters": 4}, "multiple of model.clusters"),
        ({"rank": 8, "clusters": 4, "alone": 4}, "below model.clusters"),
        ({"dropout": 1.0}, r"\[0, 1\)"),
        ({"features": 8}, "needs model.clusters = 1"),
    ):
        with pytest.raises(RecipeError, match=message):
            read_model({"kind": "probabilistic", **table})
    with pytest.raises(RecipeError, match="more than the 6 words"):
        ProbabilisticModel(ProbabilisticConfig(rank=7, clusters=7, alone=0), VOCABULARY)


class StopsAt(Watcher):
    def __init__(self, step: int) -> None:
        self.last = step

    def step(self, position, total, measured) -> None:
        if position.step == self.last:
            raise KeyboardInterrupt


def test_training_learns_resumes_and_keeps_its_run_folder(runs, tmp_path) -> None:
    whole = read_summary(runs["probabilistic"])
    assert whole is not None and whole.valid is not None  # noqa: PT018
    with pytest.raises(KeyboardInterrupt):
        train(whole.recipe, tmp_path / "broken", watcher=StopsAt(30))
    again = train(whole.recipe, tmp_path / "broken")
    assert again.valid is not None
    assert again.valid.perplexity == whole.valid.perplexity
    assert whole.valid.perplexity < len(load(runs["probabilistic"]).vocabulary) / 3
