"""The network of a sentence as a picture: a chain with its words underneath."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tslm.drawing.diagram import Open, Place, draw_network
from tslm.drawing.picture import WORDS, Disc, Picture, Shape, Text, caption
from tslm.errors import ShapeError
from tslm.tensors.network import TensorNetwork


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
