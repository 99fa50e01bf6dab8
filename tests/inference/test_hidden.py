from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch

import tslm
from tslm.cli import main
from tslm.corpus.vocabulary import Vocabulary
from tslm.models.probabilistic.model import ProbabilisticConfig, ProbabilisticModel

VOCABULARY = Vocabulary(("the", "<eos>", "cat", "sat", "<unk>"))
SENTENCE = "cat the sat"
IDS = [2, 0, 3, 1]


@pytest.fixture(params=[(1, 0), (1, 3), (2, 0)])
def model(request) -> ProbabilisticModel:
    torch.manual_seed(0)
    clusters, features = request.param
    config = ProbabilisticConfig(rank=6, clusters=clusters, features=features, alone=0, embedding=4)
    model = ProbabilisticModel(config, VOCABULARY).double().eval()
    with torch.no_grad():
        model.begin_k.normal_()
    return model


def probability(model: ProbabilisticModel, texts: np.ndarray) -> np.ndarray:
    """p of whole texts, each scored by itself."""
    scores, _ = model.score(texts, model.start(len(texts)))
    return np.exp(scores.sum(1))


def test_the_effect_of_a_word_is_what_summing_over_it_takes_away(model: ProbabilisticModel) -> None:
    effects = tslm.explain(model, SENTENCE).effects
    assert effects is not None
    assert effects.exact
    for s, t in itertools.product(range(4), range(4)):
        if s >= t:
            assert effects.matrix[s, t] == 0
            continue
        given = probability(model, np.array([IDS[: t + 1]])) / probability(model, np.array([IDS[:t]]))
        texts = np.array([[*IDS[:s], word, *IDS[s + 1 : t + 1]] for word in range(len(VOCABULARY))])
        without = probability(model, texts).sum() / probability(model, texts[:, :-1]).sum()
        assert effects.matrix[s, t] == pytest.approx(math.log(given[0] / without), rel=1e-8)


def test_the_information_of_a_cut_is_that_of_all_beginnings(model: ProbabilisticModel) -> None:
    cuts = tslm.explain(model, SENTENCE).cuts
    assert cuts is not None
    assert cuts.information is not None
    for cut in (1, 2, 3):
        beginnings = itertools.product(range(len(VOCABULARY)), repeat=cut)
        right = probability(model, np.array([[*words, *IDS[cut:]] for words in beginnings])).sum()
        left, whole = probability(model, np.array([IDS[:cut]]))[0], probability(model, np.array([IDS]))[0]
        assert cuts.information[cut - 1] == pytest.approx(
            math.log2(whole / left / right), rel=1e-8, abs=1e-10
        )


def test_its_mean_over_all_sentences_is_the_mutual_information_of_the_two_sides(
    model: ProbabilisticModel,
) -> None:
    """I(x₁; x₂ x₃) from the table of all texts of three words, and from the network's own contractions."""
    from tslm.inference.hidden import Passes

    V = len(VOCABULARY)
    texts = np.array(list(itertools.product(range(V), repeat=3)))
    joint = probability(model, texts).reshape(V, V * V)
    expected = (joint * np.log(joint / joint.sum(1, keepdims=True) / joint.sum(0))).sum()
    found = 0.0
    for text, chance in zip(texts.tolist(), joint.flatten(), strict=True):
        passes = Passes(model.network, text)
        found += chance * (passes.log_left[-1] - passes.log_left[0] - passes.log_right[0])
    assert found == pytest.approx(expected, rel=1e-8)
    assert expected > 0


def test_posteriors_of_states_are_those_of_all_paths(model: ProbabilisticModel) -> None:
    explanation = tslm.explain(model, SENTENCE)
    assert explanation.states is not None
    network = model.network
    R, begin = model.config.rank, network.begin_R.numpy()
    W = network.move(torch.eye(R).double()).numpy()
    emission = np.zeros((R, len(VOCABULARY)))
    for word in range(len(VOCABULARY)):
        emission[network.of_word(word), word] = network.emission_k(word)
    posterior = np.zeros((len(IDS), R))
    for path in itertools.product(range(R), repeat=len(IDS)):
        term = float(begin @ W[:, path[0]]) * emission[path[0], IDS[0]]
        for place in range(1, len(IDS)):
            term *= W[path[place - 1], path[place]] * emission[path[place], IDS[place]]
        posterior[np.arange(len(IDS)), path] += term
    posterior /= posterior.sum(1, keepdims=True)
    assert explanation.cuts is not None
    for place, report in enumerate(explanation.states):
        best = np.argsort(-posterior[place])[: len(report.states)]
        assert [state.number for state in report.states] == best.tolist()
        for state in report.states:
            assert state.probability == pytest.approx(posterior[place, state.number], rel=1e-8)
            top, chance = state.words[0]
            assert chance == pytest.approx(emission[state.number].max(), rel=1e-8)
            assert VOCABULARY.words[int(emission[state.number].argmax())] == top
        if place < len(IDS) - 1:
            possible = posterior[place][posterior[place] > 0]
            expected = math.exp(-(possible * np.log(possible)).sum())
            assert explanation.cuts.ranks[place] == pytest.approx(expected, rel=1e-8)


def test_the_command_shows_states_and_information(runs, capsys) -> None:
    assert main(["explain", str(runs["probabilistic"]), "the cat sat on the mat"]) == 0
    shown = capsys.readouterr().out
    assert "cut bits" in shown
    assert "shares its states with" in shown
    assert main(["explain", str(runs["probabilistic"]), "the cat sat", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["states"]) == 4
    assert len(report["cuts"]["information"]) == 3
    assert report["states"][0]["states"][0]["words"][0]["probability"] > 0
