"""Tensor space: algebra, networks and decompositions. Mathematics only; nothing here knows of words."""

from __future__ import annotations

from tslm.tensors.algebra import (
    contract,
    contract_mode,
    delta,
    inner_product,
    matricise,
    rank_one,
    tensor_product,
    tensorise,
)
from tslm.tensors.approximation import Approximation, reconstruct
from tslm.tensors.decompose import RecursiveDecomposition, decompose, maximum_rank
from tslm.tensors.network import ContractionCost, Node, TensorNetwork, delta_node, tensor_node
from tslm.tensors.recursion import explicit_tensor, lift_biases, recurse, recurse_scaled, recursive_logits
from tslm.tensors.shared import SharedDecomposition, fit_shared, share
from tslm.tensors.train import TensorTrain, decompose_train

__all__ = [
    "Approximation",
    "ContractionCost",
    "Node",
    "RecursiveDecomposition",
    "SharedDecomposition",
    "TensorNetwork",
    "TensorTrain",
    "contract",
    "contract_mode",
    "decompose",
    "decompose_train",
    "delta",
    "delta_node",
    "explicit_tensor",
    "fit_shared",
    "inner_product",
    "lift_biases",
    "matricise",
    "maximum_rank",
    "rank_one",
    "reconstruct",
    "recurse",
    "recurse_scaled",
    "recursive_logits",
    "share",
    "tensor_node",
    "tensor_product",
    "tensorise",
]
