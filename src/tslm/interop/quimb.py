"""Tensor networks to and from quimb (the extra ``quimb``)."""

from __future__ import annotations

from typing import Any

import torch

from tslm.errors import ShapeError, UnsupportedError
from tslm.tensors.network import TensorNetwork, tensor_node


def to_quimb(network: TensorNetwork) -> Any:
    """Return the network as a ``quimb.tensor.TensorNetwork``: legs become indices, names of nodes become tags.

    δ-tensors are written out, as quimb has no other way to hold them. Entries stay torch tensors, so gradients flow.

    Raises:
        UnsupportedError: quimb is not installed.
    """
    quimb = _import_quimb()
    dtypes = [node.tensor.dtype for node in network.nodes if node.tensor is not None]
    dtype = dtypes[0] if dtypes else torch.get_default_dtype()
    tags = {node.name: ["δ"] if node.is_delta else [] for node in network.nodes}
    return quimb.TensorNetwork(
        [
            quimb.Tensor(data=node.to_tensor(dtype), inds=node.legs, tags=[node.name, *tags[node.name]])
            for node in network.nodes
        ]
    )


def from_quimb(network: Any) -> TensorNetwork:
    """Return a quimb network as a ``TensorNetwork``; a node's name is the first tag of its tensor.

    Raises:
        ShapeError: an index joins more than two tensors, or two tensors have the same first tag.
    """
    nodes = [
        tensor_node(next(iter(tensor.tags), f"T{position}"), torch.as_tensor(tensor.data), list(tensor.inds))
        for position, tensor in enumerate(network.tensors)
    ]
    if not nodes:
        raise ShapeError("the quimb network has no tensor")
    return TensorNetwork(nodes)


def _import_quimb() -> Any:
    """Return ``quimb.tensor``, or say how to get it."""
    try:
        import quimb.tensor
    except ImportError as error:
        raise UnsupportedError("quimb is not installed: pip install 'tslm[quimb]'") from error
    return quimb.tensor
