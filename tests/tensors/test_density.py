"""Density matrices against their definition and against quimb."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from tslm.errors import NumberError, ShapeError, SizeLimitError
from tslm.tensors import TensorTrain, draw_train, join
from tslm.tensors.density import (
    MixedState,
    reduced_density,
    state_fidelity,
    state_mutual_information,
)

both = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["real", "complex"])


def draw(
    seed: int, *, dtype: torch.dtype | None = torch.float64, size: int = 4, width: int = 3
) -> MixedState:
    numbers = torch.Generator().manual_seed(seed)
    windows = torch.randint(size, (9, 3), generator=numbers)
    weights = torch.rand(9, generator=numbers, dtype=torch.float64)
    words = (
        None
        if dtype is None
        else torch.randn(size, width, generator=torch.Generator().manual_seed(7), dtype=dtype)
    )
    if words is None:
        return MixedState.from_windows(windows, probabilities_S=weights, size=size)
    return MixedState.from_windows(windows, probabilities_S=weights, words_VM=words)


def build(state: MixedState, positions: list[int]) -> np.ndarray:
    """ρ by its definition: a sum of outer products of explicit tensor products."""
    words = np.eye(state.size) if state.words_VM is None else state.words_VM.numpy()
    matrix: np.ndarray | float = 0.0
    for weight, window in zip(state.probabilities_S.tolist(), state.windows_SN.tolist(), strict=True):
        vector = np.ones(1)
        for k in positions:
            vector = np.kron(vector, words[window[k]])
        matrix = matrix + weight * np.outer(vector, vector.conj())
    return np.asarray(matrix)


def von_neumann(matrix: np.ndarray) -> float:
    values = np.linalg.eigvalsh(matrix)
    return float(-sum(value * math.log(value) for value in values if value > 1e-14))


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.complex128], ids=["one-hot", "real", "complex"])
@pytest.mark.parametrize("seed", range(4))
def test_everything_is_that_of_the_matrix(seed: int, dtype: torch.dtype | None) -> None:
    state = draw(seed, dtype=dtype)
    matrix = build(state, [0, 1, 2])
    np.testing.assert_allclose(state.to_matrix().numpy(), matrix, atol=1e-12)
    assert np.trace(matrix).real == pytest.approx(1)
    assert state.entropy() == pytest.approx(von_neumann(matrix), abs=1e-9)
    for positions in ([0], [2], [0, 2], [1, 2]):
        assert state.entropy(positions) == pytest.approx(von_neumann(build(state, positions)), abs=1e-9)
    information = von_neumann(build(state, [0])) + von_neumann(build(state, [1, 2])) - von_neumann(matrix)
    assert state.mutual_information([0], [1, 2]) == pytest.approx(information, abs=1e-9)
    words = np.eye(4) if state.words_VM is None else state.words_VM.numpy()
    for window in itertools.islice(itertools.product(range(4), repeat=3), 0, 64, 9):
        vector = np.kron(np.kron(words[window[0]], words[window[1]]), words[window[2]])
        expected = float((vector.conj() @ matrix @ vector).real)
        assert state.probability(torch.tensor(window)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.complex128], ids=["one-hot", "real", "complex"])
def test_fidelity_is_that_of_the_matrices(dtype: torch.dtype | None) -> None:
    quimb = pytest.importorskip("quimb")
    one, other = draw(1, dtype=dtype), draw(2, dtype=dtype)
    matrices = build(one, [0, 1, 2]), build(other, [0, 1, 2])
    roots = [
        vectors * np.sqrt(values.clip(0)) @ vectors.conj().T
        for values, vectors in map(np.linalg.eigh, matrices)
    ]
    expected = np.linalg.svd(roots[0] @ roots[1])[1].sum() ** 2
    assert one.fidelity(other) == pytest.approx(expected, abs=1e-7)
    # quimb takes the square root of a singular matrix, which loses digits.
    assert one.fidelity(other) == pytest.approx(float(quimb.fidelity(*matrices, squared=True)), abs=1e-3)
    assert one.fidelity(other) == pytest.approx(other.fidelity(one))
    assert one.fidelity(one) == pytest.approx(1)


def test_both_ways_to_the_eigenvalues_agree() -> None:
    """ρ itself where it is small, the Gram matrix of the windows where that is."""
    numbers = torch.Generator().manual_seed(0)
    many = torch.randint(5, (300, 3), generator=numbers)
    words = torch.randn(5, 2, generator=numbers, dtype=torch.float64)
    state = MixedState.from_windows(many, words_VM=words)
    assert len(state.probabilities_S) > 8
    assert len(state.eigenvalues()) == 8
    assert state.entropy() == pytest.approx(von_neumann(build(state, [0, 1, 2])), abs=1e-9)


def test_one_hot_words_are_shannons() -> None:
    windows = torch.tensor([[0, 1], [0, 1], [1, 0], [2, 2]])
    state = MixedState.from_windows(windows, size=3)
    assert state.entropy(base=2) == 1.5
    assert state.probability(torch.tensor([0, 1])) == 0.5
    unit = MixedState.from_windows(windows, words_VM=torch.eye(3))
    assert unit.entropy() == pytest.approx(state.entropy())
    assert unit.fidelity(state) == pytest.approx(1)


@both
def test_reduced_densities_of_trains(dtype: torch.dtype) -> None:
    quimb = pytest.importorskip("quimb")
    train = draw_train((2, 3, 2, 3), 3, dtype=dtype)
    vector = (train.to_tensor() / train.to_tensor().norm()).reshape(-1, 1).numpy()
    for positions in ([0], [3], [1, 2], [0, 2], [0, 1, 3]):
        expected = np.asarray(quimb.partial_trace(vector @ vector.conj().T, train.shape, positions))
        np.testing.assert_allclose(reduced_density(train, positions).numpy(), expected, atol=1e-10)
    expected = quimb.mutinf_subsys(vector, train.shape, [0], [2])
    assert state_mutual_information(train, [0], [2], base=2) == pytest.approx(float(expected), abs=1e-9)


@both
def test_fidelity_of_trains(dtype: torch.dtype) -> None:
    a, b = draw_train((2, 3, 2), 3, dtype=dtype), draw_train((2, 3, 2), 2, seed=1, dtype=dtype)
    A, B = a.to_tensor().flatten(), b.to_tensor().flatten()
    expected = float((A.conj() @ B).abs() ** 2 / (A.norm() * B.norm()) ** 2)
    assert state_fidelity(a, b) == pytest.approx(expected, rel=1e-10)
    long = join(*[draw_train((2, 2), 2, seed=seed) * 1e-200 for seed in range(30)])
    assert state_fidelity(long, -1 * long) == pytest.approx(1)


def test_what_is_refused() -> None:
    windows = torch.tensor([[0, 1]])
    with pytest.raises(ShapeError, match="give at least one"):
        MixedState.from_windows(windows)
    with pytest.raises(NumberError, match="ids from 0 to 1; expected 0 to 0"):
        MixedState.from_windows(windows, size=1)
    with pytest.raises(NumberError, match="none below 0"):
        MixedState.from_windows(windows, size=2, probabilities_S=torch.tensor([-1.0]))
    with pytest.raises(NumberError, match="word 1 is the vector 0"):
        MixedState.from_windows(windows, words_VM=torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    state = MixedState.from_windows(windows, size=2)
    with pytest.raises(ShapeError, match=r"positions \[2\]"):
        state.reduce([2])
    with pytest.raises(ShapeError, match="overlap"):
        state.mutual_information([0], [0, 1])
    with pytest.raises(ShapeError, match="expected alike"):
        state.fidelity(MixedState.from_windows(windows, size=3))
    with pytest.raises(SizeLimitError, match="density matrix"):
        MixedState.from_windows(torch.zeros(1, 9, dtype=torch.int64), size=50).to_matrix()
    train = TensorTrain((torch.ones(1, 2, 1),))
    with pytest.raises(ShapeError, match=r"positions \[1\]"):
        reduced_density(train, [1])
    with pytest.raises(SizeLimitError, match="fewer positions"):
        reduced_density(draw_train((50,) * 6, 10), [0, 1, 2])
