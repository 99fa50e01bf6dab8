"""The network of a sentence as a picture: a chain with its words underneath."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tslm.drawing.diagram import Open, Place, draw_network
from tslm.drawing.picture import WORDS, Disc, Picture, Shape, Text, caption
from tslm.errors import ShapeError
from tslm.tensors.network import TensorNetwork

NEAR = 4
"""Words from which on a chain is set closer, with letters instead of sizes at its bonds."""


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
    """Figure 3. Return a chain of ``tslm.tensors.sentence`` laid out; more than four words are set closer."""
    nodes = {node.name: node for node in network.nodes}
    bearers = find_words(network)
    words = len(bearers)
    pitch = 2.0 if words <= NEAR else 1.18
    short = words > NEAR
    places: dict[str, Place] = {}
    for t, bearer in enumerate(bearers, 1):
        x, depth = pitch * t, {"α": 1.8, "f": 0.9}.get(bearer[0], 0.0)
        places[bearer] = Place(x, depth, label=f"{bearer[0]}{_index(t)}")
        if f"δ{t}" in nodes:
            places[f"δ{t}"] = Place(x, 0)
        if f"U{t}" in nodes:
            places[f"U{t}"] = Place(x, 0.9, label="U")
        if f"W{t}" in nodes:
            places[f"W{t}"] = Place(x + pitch / 2, 0, label="W")
    x, before = pitch * words, f"δ{words}"
    for name in (node.name for node in network.nodes if node.name not in places):
        if f"δ{name}" in nodes:  # a vector above its δ, which comes next; the words stand below
            places[name] = Place(x + _step(pitch, before, f"δ{name}"), -0.9)
        else:
            x += _step(pitch, before, name)
            places[name], before = Place(x, 0), name
    labels: dict[str, str] = {}
    for leg, size in network.sizes.items():
        letter = name_size(leg)
        labels[leg] = letter if short and leg not in network.open_legs else f"{letter}={size:,}"
    return View(
        network, places, dict.fromkeys(network.open_legs, Open(0, -1) if short else Open(1, 0)), labels
    )


def draw_sentence(
    network: TensorNetwork, words: Sequence[str], *, lifted: bool = False, notes: Sequence[str] = ()
) -> Picture:
    """Figure 3. Return a sentence network with its words underneath and its sizes in a line below them.

    Args:
        network: one of the three chains of ``tslm.tensors.sentence``.
        words: one per word of the network; long ones are shortened.
        lifted: whether the last coordinate of state and words is constant: sizes are then written as r = 256 + 1.
        notes: lines below the sizes.
    """
    bearers = find_words(network)
    if len(words) != len(bearers):
        raise ShapeError(f"{len(words)} words for a network of {len(bearers)} word vectors")
    view = view_sentence(network)
    picture = view.draw()
    shapes: list[Shape] = list(picture.shapes)
    discs = {shape.name: shape for shape in picture.shapes if isinstance(shape, Disc)}
    room = 9 if len(words) > NEAR else 16
    for bearer, word in zip(bearers, words, strict=True):
        shown = word if len(word) <= room else f"{word[: room - 1]}…"
        disc = discs[bearer]
        shapes.append(Text(disc.x, disc.y + disc.radius + 19, shown, colour=WORDS, bold=True))
    sizes = {name_size(leg): size for leg, size in network.sizes.items()}
    line = " · ".join(
        f"{letter} = {sizes[letter] - 1:,} + 1"
        if lifted and letter in "rm"
        else f"{letter} = {sizes[letter]:,}"
        for letter in ("r", "m", "vocabulary")
        if letter in sizes
    )
    drawn = caption(Picture(tuple(shapes)), line, above=26)
    for note in notes:
        drawn = caption(drawn, note, above=20)
    return drawn


def find_words(network: TensorNetwork) -> list[str]:
    """Return the names of the nodes that stand for words, first to last."""
    found = [node.name for node in network.nodes if node.name[0] in "αfhA" and node.name[1:].isdigit()]
    return sorted(found, key=lambda name: int(name[1:]))


def name_size(leg: str) -> str:
    """Return what the size of a leg is called."""
    return "vocabulary" if leg == "y" else "m" if leg[0] in "mp" else "r"


def _step(pitch: float, before: str, name: str) -> float:
    """Return how far one node of the chain stands from the one before: a triangle takes less room than a disc."""
    return pitch / 2 if "δ" in before[0] + name[0] else max(pitch / 2, 0.9)


def _index(number: int) -> str:
    """Return a number as a subscript."""
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(number))
