"""Claims 1 and 2 and Eqs. 4–15 on random corpora."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tslm.errors import NumberError, ShapeError, SizeLimitError
from tslm.tensors.space import (
    MixedRepresentation,
    count_conditional,
    embed,
    entry_probability,
    marginal_probability,
    one_hot,
    pad_prefix,
    project,
    sentence_tensor,
)


@st.composite
def corpora(draw: st.DrawFn) -> tuple[torch.Tensor, int]:
    """Random sentences of one length over a small vocabulary, with repetitions."""
    size = draw(st.integers(1, 4))
    length = draw(st.integers(1, 4))
    sentence = st.lists(st.integers(0, size - 1), min_size=length, max_size=length)
    return torch.tensor(draw(st.lists(sentence, min_size=1, max_size=12))), size


def all_words(size: int, length: int) -> list[torch.Tensor]:
    return [torch.tensor(words, dtype=torch.int64) for words in itertools.product(range(size), repeat=length)]


@settings(max_examples=25, deadline=None)
@given(corpora())
def test_claim_1(corpus: tuple[torch.Tensor, int]) -> None:
    """p(s) is the entry of T, the inner product of the explicit tensors, the factored one, and the share of counts."""
    sentences, size = corpus
    language = MixedRepresentation.from_sentences(sentences, size=size)
    T = language.to_tensor()
    assert float(T.sum()) == pytest.approx(1, abs=1e-12)
    for words in all_words(size, sentences.shape[1]):
        share = float((sentences == words).all(1).double().mean())
        vectors = one_hot(words, size)
        for found in (
            entry_probability(T, words),
            project(T, sentence_tensor(vectors)),
            language.probability(vectors),
            language.chain_probability(vectors),
        ):
            assert float(found) == pytest.approx(share, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(corpora())
def test_claim_2(corpus: tuple[torch.Tensor, int]) -> None:
    """p(prefix) by all-ones padding is the marginal of T and the share of counts; conditionals are count ratios."""
    sentences, size = corpus
    language = MixedRepresentation.from_sentences(sentences, size=size)
    T = language.to_tensor()
    for length in range(sentences.shape[1] + 1):
        for words in all_words(size, length):
            share = float((sentences[:, :length] == words).all(1).double().mean())
            vectors = one_hot(words, size)
            padded = pad_prefix(vectors, sentences.shape[1])
            for found in (
                marginal_probability(T, words),
                language.prefix_probability(vectors),
                project(T, sentence_tensor(padded)),
            ):
                assert float(found) == pytest.approx(share, abs=1e-12)
            if length:
                ratio = count_conditional(sentences, words)
                assert float(language.conditional_probability(vectors)) == pytest.approx(ratio, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(corpora(), st.integers(1, 3), st.integers(0, 2**31))
def test_explicit_and_factored_agree_for_embedded_words(
    corpus: tuple[torch.Tensor, int], embedding: int, seed: int
) -> None:
    sentences, size = corpus
    coefficients = torch.randn(
        size, embedding, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    language = MixedRepresentation.from_sentences(sentences, coefficients_VM=coefficients)
    vectors = embed(sentences[0], coefficients)
    explicit = float(project(language.to_tensor(), sentence_tensor(vectors)))
    assert float(language.probability(vectors)) == pytest.approx(explicit, rel=1e-11, abs=1e-12)
    sign, log = language.log_probability(vectors)
    assert float(sign * log.exp()) == pytest.approx(explicit, rel=1e-10, abs=1e-12)


def test_orthogonality_of_one_hot_words_and_sentences() -> None:
    words = one_hot(torch.arange(3), 3)
    assert torch.equal(words @ words.T, torch.eye(3, dtype=torch.float64))
    sentences = [sentence_tensor(one_hot(ids, 3)) for ids in all_words(3, 2)]
    for i, j in itertools.product(range(9), repeat=2):
        assert float(project(sentences[i], sentences[j])) == float(i == j)


def test_factored_form_at_any_length() -> None:
    generator = torch.Generator().manual_seed(0)
    sentences = torch.randint(50, (4, 2000), generator=generator)
    language = MixedRepresentation.from_sentences(sentences, size=50)
    assert float(language.probability(one_hot(sentences[2], 50))) == 0.25
    assert float(language.prefix_probability(one_hot(sentences[2, :1500], 50))) == 0.25
    coefficients = torch.randn(50, 8, generator=generator, dtype=torch.float64)
    embedded = MixedRepresentation.from_sentences(sentences, coefficients_VM=coefficients)
    sign, log = embedded.log_probability(embed(sentences[0], coefficients))
    assert (float(sign), math.isfinite(float(log))) == (1.0, True)
    assert float(log) > 709  # its exponential would overflow


def test_impossible_sentences_have_probability_zero() -> None:
    language = MixedRepresentation.from_sentences(torch.tensor([[0, 1]]), size=3)
    never = one_hot(torch.tensor([2, 2]), 3)
    assert float(language.probability(never)) == 0
    assert float(language.conditional_probability(never)) == 0
    assert language.log_probability(never)[1] == -math.inf


def test_the_explicit_form_refuses_and_names_the_memory() -> None:
    vectors = one_hot(torch.zeros(5, dtype=torch.int64), 10_000)
    with pytest.raises(
        SizeLimitError, match=r"10000×10000×10000×10000×10000\) would take .* PiB.*limit of 1.0 GiB"
    ):
        sentence_tensor(vectors)
    language = MixedRepresentation(torch.ones(1, dtype=torch.float64), vectors[None])
    with pytest.raises(SizeLimitError, match="use probability"):
        language.to_tensor()
    assert float(language.probability(vectors)) == 1


def test_bad_input() -> None:
    two = torch.tensor([[0, 1]])
    with pytest.raises(NumberError, match="ids from 0 to 1; expected 0 to 0"):
        one_hot(two, 1)
    with pytest.raises(NumberError, match=r"\(1×2\)"):
        embed(two, torch.ones(1, 2))
    with pytest.raises(ShapeError, match="and not both"):
        MixedRepresentation.from_sentences(two)
    with pytest.raises(NumberError, match="sum to 2"):
        MixedRepresentation(torch.ones(2), torch.ones(2, 1, 1))
    with pytest.raises(ShapeError, match=r"\(2\) and sentences \(1×1×1\)"):
        MixedRepresentation(torch.ones(2), torch.ones(1, 1, 1))
    with pytest.raises(NumberError, match="nan"):
        MixedRepresentation(torch.ones(1), torch.full((1, 1, 1), torch.nan))
    language = MixedRepresentation.from_sentences(two, size=2)
    with pytest.raises(ShapeError, match=r"\(3×2\)"):
        language.probability(torch.ones(3, 2, dtype=torch.float64))
    with pytest.raises(ShapeError, match="prefix of 3 words"):
        language.prefix_probability(torch.ones(3, 2, dtype=torch.float64))
    with pytest.raises(ShapeError, match="3 words"):
        entry_probability(language.to_tensor(), torch.tensor([0, 1, 0]))
    with pytest.raises(ShapeError, match="3 words"):
        marginal_probability(language.to_tensor(), torch.tensor([0, 1, 0]))
    with pytest.raises(ShapeError, match="0 words"):
        count_conditional(two, torch.tensor([], dtype=torch.int64))
