from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from tslm.automata import anything, contains, of_length, without
from tslm.corpus.vocabulary import Vocabulary
from tslm.models.probabilistic.constrained import Constrained
from tslm.models.probabilistic.model import ProbabilisticConfig, ProbabilisticModel

VOCABULARY = Vocabulary(("the", "<eos>", "cat", "sat", "<unk>", "dog"))
EOS = VOCABULARY.eos_id
WORDS = [word for word in range(len(VOCABULARY)) if word != EOS]
LONGEST = 4

AUTOMATA = {
    "anything": anything(),
    "word": contains((2,)),
    "phrase": contains((0, 2)),
    "both": contains((2,)) & contains((3, 0)),
    "without": without((2, 5)) & contains((0,)),
    "length": of_length(2) & contains((4,)),
}


CONFIGS = {
    "clusters": ProbabilisticConfig(rank=6, clusters=3, alone=1, embedding=4),
    "features": ProbabilisticConfig(rank=5, clusters=1, features=2, parameters="free"),
}


@pytest.fixture(scope="module", params=CONFIGS)
def model(request) -> ProbabilisticModel:
    torch.manual_seed(0)
    model = ProbabilisticModel(CONFIGS[request.param], VOCABULARY)
    with torch.no_grad():
        model.begin_k.normal_()
    return model.double().eval()


@pytest.fixture(scope="module")
def sentences(model: ProbabilisticModel) -> dict[tuple[int, ...], float]:
    """Every sentence of up to so many words, and its probability."""
    found = {}
    for length in range(LONGEST + 1):
        for text in itertools.product(WORDS, repeat=length):
            scores, _ = model.score(np.array([[*text, EOS]]), model.start(1))
            found[text] = math.exp(scores.sum())
    return found


@pytest.mark.parametrize("name", AUTOMATA)
def test_probability_and_lengths_are_those_of_all_sentences_written_out(model, sentences, name) -> None:
    automaton = AUTOMATA[name]
    constrained = Constrained(model.network, automaton, LONGEST)
    expected = np.zeros(LONGEST + 1)
    for text, probability in sentences.items():
        expected[len(text)] += probability * automaton.accepts(text)
    belief_R = model.network.begin_R
    assert constrained.probability(belief_R) == pytest.approx(expected.sum(), rel=1e-10)
    np.testing.assert_allclose(constrained.lengths(belief_R), expected, rtol=1e-8, atol=1e-15)


@pytest.mark.parametrize("name", AUTOMATA)
def test_the_next_word_is_weighed_by_what_can_still_match(model, sentences, name) -> None:
    automaton, begun = AUTOMATA[name], (3,)
    constrained = Constrained(model.network, automaton, LONGEST)
    _, state = model.score(np.array([begun]), model.start(1))
    match_V, word_V = constrained.weigh(state, automaton.read(begun), LONGEST - 1)
    np.testing.assert_allclose(word_V.log().numpy(), model.predict(state)[0], rtol=1e-10)
    whole = math.exp(model.score(np.array([begun]), model.start(1))[0].sum())
    for word in range(len(VOCABULARY)):
        if word == EOS:
            expected = sentences[begun] * automaton.accepts(begun)
        else:
            expected = sum(
                p for text, p in sentences.items() if text[:2] == (3, word) and automaton.accepts(text)
            )
        assert match_V[word].item() * whole == pytest.approx(expected, rel=1e-9, abs=1e-16)


def test_samples_match_and_have_their_probabilities(model, sentences) -> None:
    automaton = contains((2,)) & of_length(1, 2)
    expected = {text: p for text, p in sentences.items() if automaton.accepts(text)}
    total = sum(expected.values())
    drawn = Constrained(model.network, automaton, 2).sample(1500, 1)
    assert all(automaton.accepts(line) for line in drawn)
    squares = sum(
        (drawn.count(list(text)) - 1500 * p / total) ** 2 / (1500 * p / total) for text, p in expected.items()
    )
    assert squares < 2.5 * len(expected)
