"""Tensor trains and decompositions to and from TensorLy, where it is installed: ``pip install tensorly``."""

from __future__ import annotations

from typing import Any

import torch

from tslm.errors import ShapeError, UnsupportedError
from tslm.tensors.algebra import read_entries
from tslm.tensors.decompose import RecursiveDecomposition
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


def decomposition_to_tensorly(form: RecursiveDecomposition) -> Any:
    """Return Eq. 16 as TensorLy has it: a ``CPTensor`` where every W is the identity, a ``TTTensor`` elsewhere.

    The term i of one level goes on to the terms j of the next with weight Wⱼᵢ, so the terms are the bonds of a train.

    Example:
        >>> import tensorly
        >>> from tslm.tensors import decompose
        >>> tensor = torch.rand(2, 3, 4, dtype=torch.float64)
        >>> np.allclose(decomposition_to_tensorly(decompose(tensor).form).to_tensor(), tensor)
        True

    Raises:
        UnsupportedError: TensorLy is not installed.
    """
    if not all(
        link.shape[0] == link.shape[1] and torch.equal(link, torch.eye(len(link)).to(link)) for link in form.W
    ):
        return train_to_tensorly(_to_train(form))
    try:
        from tensorly.cp_tensor import CPTensor
    except ImportError as error:
        raise UnsupportedError("TensorLy is not installed: pip install tensorly") from error
    factors = [factor.detach().mT.resolve_conj().cpu().numpy() for factor in form.U]
    return CPTensor((form.weights.detach().resolve_conj().cpu().numpy(), factors))


def decomposition_from_tensorly(cp: Any) -> RecursiveDecomposition:
    """Return a ``CPTensor``, or its weights and factors, as Eq. 16: the same terms at every level, each W the identity.

    Example:
        >>> from tensorly.random import random_cp
        >>> decomposition_from_tensorly(random_cp((2, 3, 4), rank=5)).ranks
        (5, 5, 5)

    Raises:
        ShapeError: the factors have different numbers of terms.
    """
    weights, factors = cp
    U = [read_entries(factor, f"factor {place}").mT for place, factor in enumerate(factors)]
    if any(factor.ndim != 2 or len(factor) != len(U[0]) for factor in U):
        shapes = ", ".join(str(tuple(factor.mT.shape)) for factor in U)
        raise ShapeError(
            f"the factors are {shapes}; each must be a matrix, mode × terms, with the same terms"
        )
    dtype = U[0].dtype
    given = (
        torch.ones(len(U[0]), dtype=dtype) if weights is None else read_entries(weights, "weights").to(dtype)
    )
    lengths = torch.stack([torch.linalg.vector_norm(factor, dim=1) for factor in U])
    # Rows of length 1, as Eq. 16 has them; what has no length adds nothing, whatever its direction.
    unit = tuple(
        factor / length.clamp(min=torch.finfo(length.dtype).tiny)[:, None]
        for factor, length in zip(U, lengths, strict=True)
    )
    links = tuple(torch.eye(len(U[0]), dtype=dtype) for _ in U[1:])
    return RecursiveDecomposition(given * lengths.prod(0), links, unit)


def _to_train(form: RecursiveDecomposition) -> TensorTrain:
    """Return Eq. 16 as a train whose bonds are its terms."""
    cores = [torch.einsum("id,ji->idj", factor, link) for factor, link in zip(form.U, form.W, strict=False)]
    cores.append((form.weights[:, None] * form.U[-1])[:, :, None])
    # Nothing comes before the first level: S₍₁₎ = 1 for each of its terms.
    cores[0] = cores[0].sum(0, keepdim=True)
    return TensorTrain(tuple(core.contiguous() for core in cores))
