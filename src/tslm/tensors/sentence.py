"""The network of a sentence: a chain of words, from real weights to a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from tslm.errors import NumberError, ShapeError
from tslm.tensors.diagram import Open, Place, draw_network
from tslm.tensors.network import Node, TensorNetwork, delta_node, tensor_node
from tslm.tensors.picture import WORDS, Disc, Picture, Shape, Text, caption

LARGEST_SIZE = 1_000_000_000
"""Of a leg of a network that is only drawn; two such legs are about what a tensor's shape can say."""


@dataclass(frozen=True)
class View:
    """A network and how it is laid out."""

    network: TensorNetwork
    places: Mapping[str, Place]
    directions: Mapping[str, Open] = field(default_factory=dict[str, Open])
    leg_labels: Mapping[str, str] | None = None
    cell: float | int = 74.0

    def draw(self) -> Picture:
        """Return the diagram."""
        return draw_network(
            self.network,
            places=self.places,
            directions=self.directions,
            leg_labels=self.leg_labels,
            cell=self.cell,
        )


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


def view_sentence(network: TensorNetwork) -> View:
    """Figure 3. Return a sentence network laid out as a chain; more than four words are set closer."""
    words = sum(node.name.startswith("α") for node in network.nodes)
    pitch = 2.0 if words <= 4 else 1.18
    short = words > 4
    places: dict[str, Place] = {}
    labels: dict[str, str] = {}
    for t in range(1, words + 1):
        x = pitch * t
        places |= {
            f"δ{t}": Place(x, 0),
            f"U{t}": Place(x, 0.9, label="U"),
            f"α{t}": Place(x, 1.8, label=f"α{_index(t)}"),
        }
        if t < words:
            places[f"W{t}"] = Place(x + pitch / 2, 0, label="W")
    places["V"] = Place(pitch * words + pitch / 2, 0)
    for leg, size in network.sizes.items():
        letter = {"m": "m", "y": "|V|"}.get(leg[0], "r")
        labels[leg] = letter if short and leg != "y" else f"{letter}={size:,}"
    return View(network, places, {"y": Open(0, -1) if short else Open(1, 0)}, labels)


def draw_sentence(network: TensorNetwork, words: Sequence[str]) -> Picture:
    """Figure 3. Return a sentence network with its words underneath and its sizes in a line below them.

    Args:
        network: from ``sentence_network``.
        words: one per α; long ones are shortened.
    """
    count = sum(node.name.startswith("α") for node in network.nodes)
    if len(words) != count:
        raise ShapeError(f"{len(words)} words for a network of {count} word vectors")
    view = view_sentence(network)
    picture = view.draw()
    shapes: list[Shape] = list(picture.shapes)
    discs = {shape.name: shape for shape in picture.shapes if isinstance(shape, Disc)}
    room = 9 if count > 4 else 16
    for t, word in enumerate(words, 1):
        shown = word if len(word) <= room else f"{word[: room - 1]}…"
        disc = discs[f"α{t}"]
        shapes.append(Text(disc.x, disc.y + disc.radius + 19, shown, colour=WORDS, bold=True))
    sizes = f"r = {network['δ1'].sizes[0]:,} · m = {network.sizes['m1']:,} · |V| = {network.sizes['y']:,}"
    return caption(Picture(tuple(shapes)), sizes, above=26)


def _index(number: int) -> str:
    """Return a number as a subscript."""
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(number))
