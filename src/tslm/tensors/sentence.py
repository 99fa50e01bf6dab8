"""The network of a sentence: a chain of words, from real weights or from its sizes alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tslm.errors import NumberError, ShapeError
from tslm.tensors.network import Node, TensorNetwork, delta_node, tensor_node

LARGEST_SIZE = 1_000_000_000
"""Of a leg of a network that is only drawn; two such legs are about what a tensor's shape can say."""


def sentence_network(
    W_RR: Float[Tensor, "R R"],
    U_RM: Float[Tensor, "R M"],
    V_VR: Float[Tensor, "V R"],
    alphas_TM: Float[Tensor, "T M"],
) -> TensorNetwork:
    """Figure 3. Return the network of ⟨T₍T+1₎, A₍T₎⟩ with the given weights: its one open leg y has |V| entries.

    Nodes are α1 … αT, U1 … UT, δ1 … δT, W1 … W(T−1) and V; bonds are m (word), u, g, h (rank).
    """
    return _join_chain(W_RR, U_RM, V_VR, alphas_TM, tensor_node)


def sentence_outline(words: int, *, rank: int, embedding: int, vocabulary: int) -> TensorNetwork:
    """Return the network of a sentence by its sizes alone, to be drawn or to know its cost: no entry is stored.

    Raises:
        NumberError: a size is below 1 or above a thousand million.
    """
    for name, size in (("rank", rank), ("embedding", embedding), ("vocabulary", vocabulary)):
        if not 1 <= size <= LARGEST_SIZE:
            raise NumberError(f"{name} {size}; expected from 1 to {LARGEST_SIZE:,}")

    def outline(name: str, tensor: Tensor, legs: Sequence[str]) -> Node:
        return Node(name, tuple(legs), tensor, tuple(tensor.shape))

    W_RR, U_RM, V_VR, alphas_TM = (
        torch.empty(shape, device="meta")
        for shape in [(rank, rank), (rank, embedding), (vocabulary, rank), (words, embedding)]
    )
    return _join_chain(W_RR, U_RM, V_VR, alphas_TM, outline)


def _join_chain(
    W_RR: Tensor,
    U_RM: Tensor,
    V_VR: Tensor,
    alphas_TM: Tensor,
    make_node: Callable[[str, Tensor, Sequence[str]], Node],
) -> TensorNetwork:
    """Return the chain of the given tensors, each made a node by ``make_node``."""
    rank = len(W_RR)
    words = len(alphas_TM)
    if words < 1:
        raise ShapeError("a sentence network needs at least one word")
    nodes: list[Node] = []
    for t in range(1, words + 1):
        nodes += [
            make_node(f"α{t}", alphas_TM[t - 1], [f"m{t}"]),
            make_node(f"U{t}", U_RM, [f"u{t}", f"m{t}"]),
            delta_node(f"δ{t}", rank, [*([f"g{t}"] if t > 1 else []), f"u{t}", f"h{t}"]),
        ]
        if t < words:
            nodes.append(make_node(f"W{t}", W_RR, [f"g{t + 1}", f"h{t}"]))
    nodes.append(make_node("V", V_VR, ["y", f"h{words}"]))
    return TensorNetwork(nodes)
