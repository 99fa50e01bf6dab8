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
from tslm.tensors.canonical import canonicalise, cut_entropies, round_train, schmidt_values
from tslm.tensors.decompose import RecursiveDecomposition, decompose, maximum_rank
from tslm.tensors.network import ContractionCost, Node, TensorNetwork, delta_node, tensor_node
from tslm.tensors.recursion import explicit_tensor, lift_biases, recurse, recurse_scaled, recursive_logits
from tslm.tensors.sampling import sample_born, sample_entries
from tslm.tensors.shared import SharedDecomposition, fit_shared, share
from tslm.tensors.train import TensorTrain, draw_train, inner, join, log_norm, norm
from tslm.tensors.train_svd import decompose_train

__all__ = [
    "Approximation",
    "ContractionCost",
    "Node",
    "RecursiveDecomposition",
    "SharedDecomposition",
    "TensorNetwork",
    "TensorTrain",
    "canonicalise",
    "contract",
    "contract_mode",
    "cut_entropies",
    "decompose",
    "decompose_train",
    "delta",
    "delta_node",
    "draw_train",
    "explicit_tensor",
    "fit_shared",
    "inner",
    "inner_product",
    "join",
    "lift_biases",
    "log_norm",
    "matricise",
    "maximum_rank",
    "norm",
    "rank_one",
    "reconstruct",
    "recurse",
    "recurse_scaled",
    "recursive_logits",
    "round_train",
    "sample_born",
    "sample_entries",
    "schmidt_values",
    "share",
    "tensor_node",
    "tensor_product",
    "tensorise",
]
