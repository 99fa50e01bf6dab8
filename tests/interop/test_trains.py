"""Trains go to quimb and TensorLy and come back."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from tslm.errors import ShapeError, UnsupportedError
from tslm.interop.quimb import train_from_quimb, train_to_quimb
from tslm.interop.tensorly import train_from_tensorly, train_to_tensorly
from tslm.tensors import TensorTrain, draw_train

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


def test_without_them_the_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    train = TensorTrain((torch.ones(1, 2, 1),))
    for name in ("quimb", "quimb.tensor", "tensorly", "tensorly.tt_tensor"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UnsupportedError, match="pip install 'tslm"):
        train_to_quimb(train)
    with pytest.raises(UnsupportedError, match="pip install tensorly"):
        train_to_tensorly(train)
