"""Tensor trains to and from TensorLy, where it is installed: ``pip install tensorly``."""

from __future__ import annotations

from typing import Any

from tslm.errors import ShapeError, UnsupportedError
from tslm.tensors.algebra import read_entries
from tslm.tensors.train import TensorTrain


def train_to_tensorly(train: TensorTrain) -> Any:
    """Return a tensor train as ``tensorly.tt_tensor.TTTensor``, its factors arrays of NumPy.

    Example:
        >>> import tensorly
        >>> from tslm.tensors import draw_train
        >>> train = draw_train((2, 3, 4), 2)
        >>> np.allclose(tensorly.tt_to_tensor(train_to_tensorly(train)), train.to_tensor())
        True

    Raises:
        UnsupportedError: TensorLy is not installed.
    """
    try:
        from tensorly.tt_tensor import TTTensor
    except ImportError as error:
        raise UnsupportedError("TensorLy is not installed: pip install tensorly") from error
    return TTTensor([core.detach().to(train.dtype).resolve_conj().cpu().numpy() for core in train.cores])


def train_from_tensorly(factors: Any) -> TensorTrain:
    """Return a ``TTTensor``, or any list of cores (bond × mode × bond), as a tensor train.

    Example:
        >>> from tensorly.random import random_tt
        >>> train_from_tensorly(random_tt((2, 3, 4), rank=[1, 2, 2, 1])).ranks
        (2, 2)

    Raises:
        ShapeError: a factor is no core: a TT matrix has four modes.
    """
    cores = tuple(read_entries(core, f"core {place}") for place, core in enumerate(factors))
    if any(core.ndim == 4 for core in cores):
        raise ShapeError("the factors have four modes: a TT matrix, not a tensor train")
    return TensorTrain(cores)
