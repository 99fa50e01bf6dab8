"""Trains go to quimb and TensorLy and come back."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import tslm
from tslm.errors import NumberError, ShapeError, UnsupportedError
from tslm.inference.states import sentence_state
from tslm.interop.quimb import train_from_quimb, train_to_quimb
from tslm.interop.tensorly import (
    decomposition_from_tensorly,
    decomposition_to_tensorly,
    train_from_tensorly,
    train_to_tensorly,
)
from tslm.tensors import TensorTrain, decompose, draw_train
from tslm.tensors.canonical import cut_entropies

SHAPES = [(3,), (2, 3), (2, 3, 4, 2)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["real", "complex"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_quimb_there_and_back(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    pytest.importorskip("quimb")
    train = draw_train(shape, 3, dtype=dtype)
    state = train_to_quimb(train)
    np.testing.assert_allclose(state.to_dense().reshape(shape), train.to_tensor(), atol=1e-12)
    back = train_from_quimb(state)
    assert back.ranks == train.ranks
    torch.testing.assert_close(back.to_tensor(), train.to_tensor(), rtol=1e-12, atol=1e-12)


def test_quimbs_own_states() -> None:
    qtn = pytest.importorskip("quimb.tensor")
    state = qtn.MPS_rand_state(6, 4, seed=1, dtype="complex128")
    dense = state.to_dense().reshape([2] * 6)
    state.equalize_norms_(1.0)
    np.testing.assert_allclose(train_from_quimb(state).to_tensor().numpy(), dense, atol=1e-12)
    with pytest.raises(ShapeError, match="cyclic"):
        train_from_quimb(qtn.MPS_rand_state(5, 2, cyclic=True))
    with pytest.raises(ShapeError, match="no matrix product state"):
        train_from_quimb(qtn.TensorNetwork([]))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tensorly_there_and_back(shape: tuple[int, ...]) -> None:
    tensorly = pytest.importorskip("tensorly")
    train = draw_train(shape, 3)
    theirs = train_to_tensorly(train)
    np.testing.assert_allclose(tensorly.tt_to_tensor(theirs), train.to_tensor(), atol=1e-12)
    torch.testing.assert_close(train_from_tensorly(theirs).to_tensor(), train.to_tensor())
    with pytest.raises(ShapeError, match="four modes"):
        train_from_tensorly([np.ones((1, 2, 2, 1))])


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4, 2)], ids=str)
def test_decompositions_go_to_tensorly(shape: tuple[int, ...]) -> None:
    pytest.importorskip("tensorly")
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    theirs = decomposition_to_tensorly(decompose(tensor).form)
    np.testing.assert_allclose(theirs.to_tensor(), tensor, atol=1e-12)
    if hasattr(theirs, "rank") and len(shape) > 2:
        torch.testing.assert_close(train_from_tensorly(theirs).to_tensor(), tensor)


def test_canonical_polyadic_there_and_back() -> None:
    tensorly = pytest.importorskip("tensorly")
    from tensorly.decomposition import parafac
    from tensorly.random import random_cp

    theirs = random_cp((3, 4, 2), rank=3, random_state=1)
    theirs.weights = np.array([2.0, -1.0, 0.5])
    ours = decomposition_from_tensorly(theirs)
    np.testing.assert_allclose(ours.to_tensor(), theirs.to_tensor(), atol=1e-12)
    for factor in ours.U:
        torch.testing.assert_close(factor.norm(dim=1), torch.ones(3, dtype=torch.float64))
    back = decomposition_to_tensorly(ours)
    assert type(back) is type(theirs)
    np.testing.assert_allclose(tensorly.cp_to_tensor(back), theirs.to_tensor(), atol=1e-12)
    found = parafac(theirs.to_tensor(), rank=2, random_state=1)
    np.testing.assert_allclose(decomposition_from_tensorly(found).to_tensor(), found.to_tensor(), atol=1e-12)
    plain = decomposition_from_tensorly((None, [np.zeros((2, 1)), np.ones((3, 1))]))
    assert plain.to_tensor().tolist() == [[0, 0, 0], [0, 0, 0]]
    with pytest.raises(ShapeError, match="with the same terms"):
        decomposition_from_tensorly((None, [np.ones((2, 1)), np.ones((3, 2))]))


@pytest.mark.parametrize("name", ["tslm", "gated"])
def test_a_trained_model_there_and_back(runs, name: str) -> None:
    pytest.importorskip("tensorly")
    found = tslm.unroll(runs[name], "the old man", words=4)
    back = train_from_tensorly(found.to_tensorly())
    torch.testing.assert_close(back.to_tensor(), found.train.to_tensor(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["tslm", "gated"])
def test_quimbs_entropy_of_a_cut_is_that_of_explain(runs, name: str) -> None:
    pytest.importorskip("quimb")
    sentence = "the old man sat"
    explained = tslm.explain(runs[name], sentence).cuts
    assert explained is not None and explained.exact  # noqa: PT018
    for cut, rank in enumerate(explained.ranks, 1):
        train = sentence_state(runs[name], sentence, cut)
        state = train_to_quimb(train)
        state.normalize()
        assert float(state.entropy(cut)) * np.log(2) == pytest.approx(np.log(rank), abs=1e-6)
        assert cut_entropies(train)[cut - 1] == pytest.approx(np.log(rank), abs=1e-6)
    with pytest.raises(NumberError, match="give one from 1 to 4"):
        sentence_state(runs[name], sentence, 5)
    with pytest.raises(UnsupportedError, match="no contraction"):
        sentence_state(runs["normalised"], sentence, 1)


def test_without_them_the_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    train = TensorTrain((torch.ones(1, 2, 1),))
    for name in ("quimb", "quimb.tensor", "tensorly", "tensorly.tt_tensor"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UnsupportedError, match="pip install 'tslm"):
        train_to_quimb(train)
    with pytest.raises(UnsupportedError, match="pip install tensorly"):
        train_to_tensorly(train)
