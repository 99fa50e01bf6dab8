from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError, NumberError
from tslm.models.probabilistic.model import ProbabilisticConfig, ProbabilisticModel

VOCABULARY = Vocabulary(("the", "<eos>", "cat", "sat", "<unk>", "dog"))
EOS = VOCABULARY.eos_id

PATTERNS = ([0, None, 3], [None, None], [None, 2, None], [0, 2], [None, None, None])


CONFIGS = {
    "neural": ProbabilisticConfig(rank=6, clusters=3, alone=1, embedding=4),
    "dense": ProbabilisticConfig(rank=5, clusters=1, parameters="free"),
    "features": ProbabilisticConfig(rank=5, clusters=1, features=2, embedding=4),
}


@pytest.fixture(params=CONFIGS)
def model(request) -> ProbabilisticModel:
    torch.manual_seed(0)
    model = ProbabilisticModel(CONFIGS[request.param], VOCABULARY).double().eval()
    with torch.no_grad():
        model.begin_k.normal_()
    return model


def all_fillings(model: ProbabilisticModel, pattern, span: str, exclude=()) -> dict[tuple[int, ...], float]:
    """The probability of every filling, each scored by itself."""
    allowed = [word for word in range(len(VOCABULARY)) if word != EOS and word not in exclude]
    blanks = sum(word is None for word in pattern)
    found = {}
    for filling in itertools.product(allowed, repeat=blanks):
        rest = iter(filling)
        text = [next(rest) if word is None else word for word in pattern]
        text += [EOS] if span in ("sentence", "suffix") else []
        if span in ("sentence", "prefix"):
            scores, _ = model.score(np.array([text]), model.start(1))
            found[filling] = math.exp(scores.sum())
        else:
            value = model.network.anywhere_R()
            for word in text:
                value = model.network.move(value) * model.network.mass_R([word])
            found[filling] = value.sum().item()
    return found


@pytest.mark.parametrize("span", ["sentence", "prefix", "suffix", "fragment"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_answer_is_that_of_all_fillings_written_out(model, pattern, span) -> None:
    exclude = (4,)
    expected = all_fillings(model, pattern, span, exclude)
    total = sum(expected.values())
    filled = model.fill(pattern, span=span, exclude=exclude)
    assert filled.log_probability == pytest.approx(math.log(total), rel=1e-9)
    blanks = sum(word is None for word in pattern)
    posteriors = np.zeros((blanks, len(VOCABULARY)))
    for filling, probability in expected.items():
        for blank, word in enumerate(filling):
            posteriors[blank, word] += probability / total
    np.testing.assert_allclose(filled.posteriors, posteriors, rtol=1e-9, atol=1e-15)
    if blanks:
        best = filled.best(7)
        ranked = sorted(expected.items(), key=lambda entry: -entry[1])[:7]
        assert [entry.words for entry in best] == [words for words, _ in ranked]
        np.testing.assert_allclose(
            [entry.probability for entry in best], [p / total for _, p in ranked], rtol=1e-9
        )


def test_samples_come_from_the_joint_posterior(model) -> None:
    pattern = [None, 2, None]
    expected = all_fillings(model, pattern, "sentence")
    total = sum(expected.values())
    drawn = model.fill(pattern).sample(4000, 1)
    found: dict[tuple[int, ...], int] = {}
    for row in drawn.tolist():
        found[tuple(row)] = found.get(tuple(row), 0) + 1
    squares = sum(
        (found.get(filling, 0) - 4000 * p / total) ** 2 / (4000 * p / total)
        for filling, p in expected.items()
    )
    assert squares < 2.0 * len(expected)
    np.testing.assert_array_equal(drawn, model.fill(pattern).sample(4000, 1))


def test_lines_go_on_behind_a_prefix(model) -> None:
    lines = model.fill([0, None], span="prefix").sample_lines(20, 1, 5)
    assert all(line[0] == 0 and EOS not in line[:-1] and 2 <= len(line) <= 7 for line in lines)
    assert any(len(line) > 2 for line in lines)


def test_somewhere_in_a_text_is_where_a_long_text_leads(model) -> None:
    anywhere_R = model.network.anywhere_R()
    torch.testing.assert_close(model.network.move(anywhere_R), anywhere_R, rtol=1e-6, atol=1e-7)


def test_impossible_and_wrong_patterns(model) -> None:
    nothing = model.fill([None], exclude=[0, 2, 3, 4, 5])
    assert nothing.log_probability == -math.inf
    assert not nothing.posteriors.any()
    assert nothing.best(3) == []
    with pytest.raises(CorpusError, match="outside the vocabulary"):
        model.fill([99])
    with pytest.raises(CorpusError, match="no words and no blanks"):
        model.fill([])
    with pytest.raises(NumberError, match="seed -1"):
        model.fill([None]).sample(1, -1)
    assert model.fill_cost([0, None]).terms > 0
