"""Claims 1 and 2 at work: the count tensor equals counting, and so does its recurrent form."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RecipeError, RunError, ShapeError, SizeLimitError
from tslm.models.ngram.count_tensor import CountTensor, CountTensorConfig
from tslm.models.ngram.counting import count_ngrams

WORDS = ("a", "<eos>", "b", "c")
V, EOS, BEGIN = 4, 1, 4


def random_text(seed: int, tokens: int = 120) -> NDArray[np.int32]:
    words = np.random.default_rng(seed).choice(V, tokens, p=[0.5, 0.2, 0.2, 0.1]).astype(np.int32)
    words[-1] = EOS
    return words


def make_tensor(order: int, seed: int = 0) -> tuple[CountTensor, Counter[tuple[int, ...]]]:
    """A tensor, and its windows counted by hand."""
    ids = random_text(seed)
    windows: Counter[tuple[int, ...]] = Counter()
    window = (BEGIN,) * order
    for word in ids.tolist():
        window = (*window[1:], word)
        windows[window] += 1
        window = (BEGIN,) * order if word == EOS else window
    return CountTensor.from_counts(count_ngrams(ids, order, V, EOS), Vocabulary(WORDS)), windows


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_joint_prefix_and_conditional_equal_counting(order: int) -> None:
    tensor, windows = make_tensor(order, seed=order)
    total = sum(windows.values())
    for length in range(order + 1):
        prefixes = np.array(list(product(range(V + 1), repeat=length)), np.int64).reshape(
            (V + 1) ** length, length
        )
        expected = Counter[tuple[int, ...]]()
        for window, times in windows.items():
            expected[window[:length]] += times
        wanted = np.array([expected[tuple(prefix)] for prefix in prefixes.tolist()]) / total
        np.testing.assert_allclose(tensor.prefix(prefixes), wanted, rtol=1e-12, atol=0)
        if length:
            before = np.array([expected_of(windows, prefix[:-1]) for prefix in prefixes.tolist()])
            ratio = np.divide(wanted * total, before, out=np.full(len(before), np.nan), where=before > 0)
            np.testing.assert_allclose(tensor.conditional(prefixes), ratio, rtol=1e-12)
    every = np.array(list(product(range(V + 1), repeat=order)))
    np.testing.assert_array_equal(tensor.joint(every), tensor.prefix(every))
    assert tensor.joint(every).sum() == pytest.approx(1, abs=1e-12)


def expected_of(windows: Counter[tuple[int, ...]], prefix: list[int]) -> int:
    return sum(times for window, times in windows.items() if list(window[: len(prefix)]) == prefix)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_the_tensor_itself_and_the_all_ones_padding(order: int) -> None:
    tensor, windows = make_tensor(order)
    dense = tensor.to_tensor()
    assert dense.shape == (V + 1,) * order
    for window, times in windows.items():
        assert float(dense[window]) == pytest.approx(times / sum(windows.values()), rel=1e-12)
    assert float(dense.sum()) == pytest.approx(1, abs=1e-12)
    # Claim 2 to the letter: contract the last axes with all-ones vectors.
    contracted = dense
    for length in range(order - 1, 0, -1):
        contracted = contracted @ torch.ones(V + 1, dtype=torch.float64)
        prefixes = np.array(list(product(range(V + 1), repeat=length)))
        np.testing.assert_allclose(
            tensor.prefix(prefixes), contracted.flatten().numpy(), rtol=1e-12, atol=1e-15
        )


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_the_recurrent_form_gives_prefix_probabilities(order: int) -> None:
    tensor, _ = make_tensor(order)
    form = tensor.recurrent_form()
    ids = random_text(0)[:40]
    log_probability, _ = tensor.score(ids[None], tensor.start(1))
    states = form.read(torch.from_numpy(ids.astype(np.int64)))
    np.testing.assert_allclose(states.sum(1).numpy(), np.exp(log_probability[0].cumsum()), rtol=1e-12)
    # An impossible text has probability zero from its first impossible word on.
    impossible = np.array([3] * 12)
    np.testing.assert_allclose(
        form.read(torch.from_numpy(impossible)).sum(1).numpy(),
        np.exp(tensor.score(impossible[None], tensor.start(1))[0][0].cumsum()),
        rtol=1e-12,
    )


def test_the_bigram_is_the_transition_matrix() -> None:
    tensor, _windows = make_tensor(2)
    form = tensor.recurrent_form()
    assert form.U.to_dense().sum(1).tolist() == [1.0] * form.U.shape[0]
    columns = form.W.to_dense().sum(0)
    np.testing.assert_allclose(columns.numpy(), 1, rtol=1e-12)
    assert float(form.start.sum()) == pytest.approx(1)


def test_run_folder(tmp_path: Path) -> None:
    tensor, _ = make_tensor(3)
    tensor.save(tmp_path)
    again = CountTensor.load(tmp_path, CountTensorConfig(order=3), tensor.vocabulary)
    assert isinstance(again, CountTensor)
    every = np.array(list(product(range(V + 1), repeat=3)))
    np.testing.assert_array_equal(again.joint(every), tensor.joint(every))
    assert again.byte_count == tensor.byte_count > 0
    with pytest.raises(RunError, match="order 3"):
        CountTensor.load(tmp_path, CountTensorConfig(order=2), tensor.vocabulary)


def test_fit_and_errors(synthetic: Corpus) -> None:
    tensor = CountTensor.fit(CountTensorConfig(order=2), synthetic)
    assert tensor.prefix(np.zeros((1, 0), np.int64))[0] == 1
    with pytest.raises(ShapeError, match="3 words do not fit a tensor of order 2"):
        tensor.prefix(np.zeros((1, 3), np.int64))
    with pytest.raises(ShapeError, match="windows of 1 words"):
        tensor.joint(np.zeros((1, 1), np.int64))
    with pytest.raises(ShapeError, match="between 0 and"):
        tensor.prefix(np.array([[99]]))
    with pytest.raises(SizeLimitError, match="entries are more than 10"):
        tensor.to_tensor(limit=10)
    with pytest.raises(RecipeError, match="must be 1 to 7"):
        CountTensorConfig(order=0)


@pytest.mark.ptb
def test_penn_treebank_as_a_sparse_recurrent_tensor(ptb: Corpus) -> None:
    tensor = CountTensor.fit(CountTensorConfig(order=5), ptb)
    form = tensor.recurrent_form()
    assert form.W.shape[0] > 500_000
    ids = ptb.splits["train"][:15]
    log_probability, _ = tensor.score(ids[None], tensor.start(1))
    np.testing.assert_allclose(
        form.read(torch.from_numpy(ids.astype(np.int64))).sum(1).log().numpy(),
        log_probability[0].cumsum(),
        atol=1e-12,
    )
