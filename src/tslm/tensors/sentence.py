"""The network of a sentence: a chain of words, from real weights or from its sizes alone.

Three chains, by what a word brings. Their nodes carry the letters of the paper, and every bond's name begins with the
letter of what it counts: m, p the embedding, y the vocabulary, all others the rank.

    chain_network with U:       α – U – δ – W – δ – W – … – V     a word vector, multiplied into the state by δ
    chain_network without:          f – δ – W – δ – W – … – V     the factor itself, where it is no matrix times α
    operator_network:               h – A – A – A – … – V         a matrix of the word, as in a matrix product state
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tslm.errors import NumberError, ShapeError
from tslm.tensors.network import Node, TensorNetwork, delta_node, tensor_node

LARGEST_SIZE = 1_000_000_000
"""Of a leg of a network that is only drawn; two such legs are about what a tensor's shape can say."""

Readout = Sequence[tuple[str, Tensor]]
"""Between the last state and the open leg: matrices (out × in), and vectors that are multiplied element by element."""


def sentence_network(
    W_RR: Float[Tensor, "R R"],
    U_RM: Float[Tensor, "R M"],
    V_VR: Float[Tensor, "V R"],
    alphas_TM: Float[Tensor, "T M"],
) -> TensorNetwork:
    """Figure 3. Return the network of ⟨T₍T+1₎, A₍T₎⟩ with the given weights: its one open leg y has |V| entries.

    Nodes are α1 … αT, U1 … UT, δ1 … δT, W1 … W(T−1) and V; bonds are m (word), u, g, h (rank).
    """
    return chain_network(W_RR, alphas_TM, U_RM=U_RM, readout=[("V", V_VR)])


def chain_network(
    W_RR: Float[Tensor, "R R"],
    words: Float[Tensor, "T *"],
    *,
    U_RM: Float[Tensor, "R M"] | None = None,
    readout: Readout = (),
) -> TensorNetwork:
    """Figure 3. Return the chain of h_t = W h_{t−1} ⊙ U α_t, or of h_t = W h_{t−1} ⊙ f_t.

    Args:
        W_RR: hidden to hidden.
        words: word vectors α, or, without U, factors f.
        U_RM: input to hidden.
        readout: what the last state passes through; without any, the open leg is that of the last state.
    """
    return _join_chain(W_RR, U_RM, readout, words, tensor_node)


def operator_network(
    first_R: Float[Tensor, "R"], operators_TRR: Float[Tensor, "T R R"], *, readout: Readout
) -> TensorNetwork:
    """Return the chain of h_t = A_t h_{t−1}: nodes h1, A2 … A(T+1) and what reads the last state."""
    nodes = [tensor_node("h1", first_R, ["h1"])]
    for t, operator_RR in enumerate(operators_TRR, 2):
        nodes.append(tensor_node(f"A{t}", operator_RR, [f"h{t}", f"h{t - 1}"]))
    return TensorNetwork([*nodes, *_read_out(f"h{len(operators_TRR) + 1}", readout, tensor_node)])


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
    return _join_chain(W_RR, U_RM, [("V", V_VR)], alphas_TM, outline)


MakeNode = Callable[[str, Tensor, Sequence[str]], Node]


def _join_chain(
    W_RR: Tensor, U_RM: Tensor | None, readout: Readout, words: Tensor, make_node: MakeNode
) -> TensorNetwork:
    """Return the chain of the given tensors, each made a node by ``make_node``; words are factors where U is None."""
    rank = len(W_RR)
    length = len(words)
    if length < 1:
        raise ShapeError("a sentence network needs at least one word")
    nodes: list[Node] = []
    for t in range(1, length + 1):
        if U_RM is None:
            nodes.append(make_node(f"f{t}", words[t - 1], [f"u{t}"]))
        else:
            nodes.append(make_node(f"α{t}", words[t - 1], [f"m{t}"]))
            nodes.append(make_node(f"U{t}", U_RM, [f"u{t}", f"m{t}"]))
        nodes.append(delta_node(f"δ{t}", rank, [*([f"g{t}"] if t > 1 else []), f"u{t}", f"h{t}"]))
        if t < length:
            nodes.append(make_node(f"W{t}", W_RR, [f"g{t + 1}", f"h{t}"]))
    return TensorNetwork([*nodes, *_read_out(f"h{length}", readout, make_node)])


def _read_out(leg: str, readout: Readout, make_node: MakeNode) -> list[Node]:
    """Return the nodes between the leg of the last state and the open leg y."""
    nodes: list[Node] = []
    for place, (name, tensor) in enumerate(readout, 1):
        after = "y" if place == len(readout) else f"{name.lower()}1"
        if tensor.ndim == 1:
            nodes.append(make_node(name, tensor, [f"{name.lower()}0"]))
            nodes.append(delta_node(f"δ{name}", len(tensor), [leg, f"{name.lower()}0", after]))
        else:
            nodes.append(make_node(name, tensor, [after, leg]))
        leg = after
    return nodes
