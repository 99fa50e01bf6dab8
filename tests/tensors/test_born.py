"""Sequences from the recursion, read as probabilities and by the Born rule: against all windows, one by one."""

from __future__ import annotations

import itertools

import pytest
import torch

from tslm.errors import NumberError, ShapeError
from tslm.tensors import SharedDecomposition
from tslm.tensors.born import SequenceTensor, fit_sequences


def draw(reading: str, dtype: torch.dtype) -> SequenceTensor:
    numbers = torch.Generator().manual_seed(0)
    parts = [torch.randn(shape, generator=numbers, dtype=dtype) for shape in [(3,), (3, 3), (3, 4)]]
    return SequenceTensor(*[part.abs() if reading == "entries" else part for part in parts], reading=reading)


@pytest.mark.parametrize("length", [1, 2, 4])
@pytest.mark.parametrize(
    ("reading", "dtype"),
    [("entries", torch.float64), ("born", torch.float64), ("born", torch.complex128)],
    ids=["entries", "born", "complex"],
)
def test_probabilities_are_those_of_the_tensor(reading: str, dtype: torch.dtype, length: int) -> None:
    model = draw(reading, dtype)
    tensor = SharedDecomposition(model.weights_R, model.W_RR, model.U_RV, length).to_tensor()
    exact = tensor / tensor.sum() if reading == "entries" else tensor.abs() ** 2 / tensor.abs().square().sum()
    windows = torch.tensor(list(itertools.product(range(4), repeat=length)))
    found = model.log_probability(windows).exp()
    torch.testing.assert_close(found, exact.flatten(), rtol=1e-9, atol=1e-12)
    assert model.perplexity(windows) > 1


def test_long_windows_stay_within_the_range_of_numbers() -> None:
    for reading in ("entries", "born"):
        windows = torch.randint(4, (5, 2000), generator=torch.Generator().manual_seed(1))
        model = draw(reading, torch.float64)
        assert bool(torch.isfinite(model.log_probability(windows)).all())


@pytest.mark.parametrize("reading", ["entries", "born"])
def test_a_fit_beats_a_random_tensor_and_finds_a_simple_language(reading: str) -> None:
    # The language of alternating words: two windows, each with probability one half.
    windows = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0]])
    fitted = fit_sequences(windows, size=2, rank=2, reading=reading, steps=200, restarts=4)
    assert fitted.perplexity(windows) == pytest.approx(2 ** (1 / 4), rel=0.02)
    again = fit_sequences(windows, size=2, rank=2, reading=reading, steps=200, restarts=4)
    assert torch.equal(fitted.W_RR, again.W_RR)


def test_complex_amplitudes_count_twice() -> None:
    fitted = fit_sequences(torch.tensor([[0, 1]]), size=2, rank=2, reading="born", is_complex=True, steps=3)
    assert fitted.parameter_count == 2 * (2 + 4 + 4)


def test_what_is_refused() -> None:
    windows = torch.tensor([[0, 1]])
    with pytest.raises(NumberError, match="rank 0"):
        fit_sequences(windows, size=2, rank=0, reading="born")
    with pytest.raises(NumberError, match="ids from 0 to 1"):
        fit_sequences(windows, size=1, rank=1, reading="born")
    with pytest.raises(NumberError, match="cannot be complex"):
        fit_sequences(windows, size=2, rank=1, reading="entries", is_complex=True)
    with pytest.raises(ShapeError, match="no window"):
        fit_sequences(torch.zeros(0, 2, dtype=torch.int64), size=2, rank=1, reading="born")
