"""A tensor network as a diagram in the paper's notation.

Circles are tensors, triangles δ-tensors; a leg shared by two nodes is dashed (it is summed over), an open leg is
solid; each leg carries its name and its size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tslm.drawing.picture import (
    DELTA,
    RADIUS,
    TENSOR,
    VECTOR,
    Disc,
    Line,
    Number,
    Picture,
    Shape,
    Text,
    Triangle,
    measure,
)
from tslm.errors import ShapeError, UnsupportedError
from tslm.files import whole, write_text
from tslm.tensors.network import Node, TensorNetwork

CELL = 74.0
"""Pixels between neighbouring places of the grid."""

LEG = 30.0
SMALL = 11.0


@dataclass(frozen=True)
class Place:
    """Where a node stands on the grid, and how it looks."""

    x: Number
    y: Number
    width: Number = 0.0
    """Half the length of a rounded rectangle in cells; 0 is a circle."""
    label: str | None = None
    """Instead of the node's name."""
    colour: str | None = None


@dataclass(frozen=True)
class Open:
    """Where an open leg goes: a direction, and for wide nodes the place along them where it begins."""

    dx: Number
    dy: Number
    at: Number | None = None


def draw_network(
    network: TensorNetwork,
    *,
    places: Mapping[str, Place] | None = None,
    directions: Mapping[str, Open] | None = None,
    leg_labels: Mapping[str, str] | None = None,
    cell: Number = CELL,
) -> Picture:
    """Figure 1. Return the diagram of a network.

    Args:
        network: any tensor network.
        places: where nodes stand; found automatically when left out.
        directions: where open legs go; away from everything else when left out.
        leg_labels: what to write on a leg instead of ``name=size``; an empty string writes nothing.
        cell: pixels per unit of the grid.

    Raises:
        ShapeError: ``places`` does not name every node.
    """
    found = dict(places) if places is not None else place_nodes(network)
    missing = [node.name for node in network.nodes if node.name not in found]
    if missing:
        raise ShapeError(
            f"no place was given for node '{missing[0]}'; give one for every node, or none at all"
        )
    nodes = {node.name: _draw_node(node, found[node.name], cell) for node in network.nodes}
    holders = {leg: node.name for node in network.nodes for leg in node.legs if leg in network.open_legs}
    shapes: list[Shape] = list(nodes.values())
    used: dict[str, list[float]] = {name: [] for name in nodes}
    for pair, legs in itertools.groupby(
        sorted(network.edges, key=lambda edge: sorted(edge[1:3])), lambda edge: tuple(sorted(edge[1:3]))
    ):
        group = list(legs)
        for position, (leg, _, _, size) in enumerate(group):
            bend = (position - (len(group) - 1) / 2) * 15
            line = _join(nodes[pair[0]], nodes[pair[1]], bend)
            shapes += [line, *_label_edge(line, (leg_labels or {}).get(leg, f"{leg}={size}"), bend)]
            angle = math.atan2(line.y2 - line.y1, line.x2 - line.x1)
            used[pair[0]].append(angle)
            used[pair[1]].append(angle + math.pi)
    for leg in network.open_legs:
        name = holders[leg]
        way = (directions or {}).get(leg) or _find_way(used[name])
        used[name].append(math.atan2(way.dy, way.dx))
        line, text = _draw_open(
            nodes[name], way, (leg_labels or {}).get(leg, f"{leg}={network.sizes[leg]}"), cell
        )
        shapes += [line, *text]
    return Picture(tuple(shapes))


def save_diagram(picture: Picture, path: Path, *, width: int | None = None, title: str = "") -> None:
    """Write a picture as ``.svg`` or, with the extra ``png``, as ``.png`` of the given width.

    Raises:
        UnsupportedError: another ending, or PNG without its extra.
    """
    if path.suffix == ".svg":
        write_text(path, picture.to_svg(title=title))
    elif path.suffix == ".png":
        data = render_png(picture.to_svg(title=title), width or 800)
        with whole(path) as temporary:
            temporary.write_bytes(data)
    else:
        raise UnsupportedError(f"cannot draw {path.name!r}; expected a name that ends with .svg or .png")


def render_png(svg: str, width: int) -> bytes:
    """Return an SVG as PNG on white."""
    try:
        import resvg_py
    except ImportError as error:
        raise UnsupportedError("PNG needs the extra 'png': pip install 'tslm[png]'; or write .svg") from error
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, width=width, background="white"))


def place_nodes(network: TensorNetwork) -> dict[str, Place]:
    """Return places for the nodes of any network: distances on paper follow distances in the graph.

    Several starts are tried and the one with the fewest overlaps is kept; the result is always the same.
    """
    from tslm.drawing.picture import find_overlaps

    names = [node.name for node in network.nodes]
    distance = _measure_distances(names, [(edge[1], edge[2]) for edge in network.edges])
    best: tuple[int, dict[str, Place]] | None = None
    for seed in range(6):
        spots = _spread(distance, seed)
        places = {name: Place(float(x), float(y)) for name, (x, y) in zip(names, spots, strict=True)}
        count = len(find_overlaps(draw_network(network, places=places)))
        if best is None or count < best[0]:
            best = count, places
        if count == 0:
            break
    assert best is not None  # noqa: S101 - the loop ran
    return best[1]


def _measure_distances(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
    """Return graph distances; parts that are not joined are put a little further apart than all others."""
    count = len(names)
    index = {name: i for i, name in enumerate(names)}
    distance = np.full((count, count), np.inf)
    np.fill_diagonal(distance, 0)
    for one, other in edges:
        distance[index[one], index[other]] = distance[index[other], index[one]] = 1
    for k in range(count):
        distance = np.minimum(distance, distance[:, k : k + 1] + distance[k : k + 1])
    finite = distance[np.isfinite(distance)].max()
    distance[~np.isfinite(distance)] = finite / 2 + 1.5
    return distance


def _spread(distance: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return places by stress majorisation, turned so that the long side lies flat and no two are too near."""
    count = len(distance)
    if count == 1:
        return np.zeros((1, 2))
    numbers = np.random.default_rng(seed)
    angles = 2 * np.pi * np.arange(count) / count
    spots = np.stack([np.cos(angles), np.sin(angles)], 1) * count / 4 + 0.1 * numbers.standard_normal(
        (count, 2)
    )
    weights = np.where(distance > 0, 1 / np.maximum(distance, 1e-9) ** 2, 0)
    laplacian = np.diag(weights.sum(1)) - weights
    inverse = np.linalg.pinv(laplacian)
    for _ in range(300):
        gaps = np.linalg.norm(spots[:, None] - spots[None], axis=2)
        pull = np.where(gaps > 1e-9, -weights * distance / np.maximum(gaps, 1e-9), 0)
        np.fill_diagonal(pull, 0)
        np.fill_diagonal(pull, -pull.sum(1))
        spots = inverse @ pull @ spots
    _, _, axes = np.linalg.svd(spots - spots.mean(0), full_matrices=False)
    spots = (spots - spots.mean(0)) @ axes.T
    gaps = np.linalg.norm(spots[:, None] - spots[None], axis=2) + np.eye(count) * 1e9
    return spots / min(1.0, max(gaps.min(), 0.2)) * 1.1


def _draw_node(node: Node, place: Place, cell: Number) -> Disc | Triangle:
    """Return the shape of a node."""
    x, y = place.x * cell, place.y * cell
    if node.is_delta:
        return Triangle(node.name, x, y, RADIUS * 0.75, place.colour or DELTA)
    colour = place.colour or (VECTOR if len(node.legs) == 1 else TENSOR)
    return Disc(node.name, x, y, RADIUS, place.label or node.name, colour, place.width * cell)


def _join(one: Disc | Triangle, other: Disc | Triangle, bend: Number) -> Line:
    """Return the dashed line between two nodes, from rim to rim."""
    x1, y1, x2, y2 = one.x, one.y, other.x, other.y
    if isinstance(one, Disc) and one.width:
        x1 = min(max(x2, one.x - one.width), one.x + one.width)
    if isinstance(other, Disc) and other.width:
        x2 = min(max(x1, other.x - other.width), other.x + other.width)
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    start, end = _rim(one), _rim(other)
    return Line(
        x1 + dx * start, y1 + dy * start, x2 - dx * end, y2 - dy * end, (one.name, other.name), True, bend
    )


def _rim(shape: Disc | Triangle) -> Number:
    """Return how far from its centre a line to a node ends."""
    return shape.radius if isinstance(shape, Disc) else shape.radius * 0.5


def _label_edge(line: Line, label: str, bend: Number) -> list[Text]:
    """Return the label beside the middle of a line, on the outer side of its bend."""
    if not label:
        return []
    x, y = line.points(3)[1]
    dx, dy = line.x2 - line.x1, line.y2 - line.y1
    length = math.hypot(dx, dy) or 1.0
    # Across the line, upwards or to the right unless the line is bent the other way.
    ax, ay = -dy / length, dx / length
    if bend == 0 and (ay > 0.05 or (abs(ay) <= 0.05 and ax < 0)):
        ax, ay = -ax, -ay
    if bend < 0:
        ax, ay = -ax, -ay
    half = measure(label, SMALL) / 2
    away = abs(ax) * half + abs(ay) * SMALL * 0.5 + 5
    return [Text(x + ax * away, y + ay * away + SMALL * 0.35, label, size=SMALL)]


def _draw_open(shape: Disc | Triangle, way: Open, label: str, cell: Number) -> tuple[Line, list[Text]]:
    """Return an open leg with its label beyond the end."""
    x = shape.x if way.at is None else shape.x + way.at * cell
    length = math.hypot(way.dx, way.dy)
    dx, dy = way.dx / length, way.dy / length
    rim = _rim(shape)
    if isinstance(shape, Disc) and shape.width and way.at is None and abs(dx) > 0.9:
        rim = shape.radius + shape.width
    line = Line(
        x + dx * rim, shape.y + dy * rim, x + dx * (rim + LEG), shape.y + dy * (rim + LEG), (shape.name,)
    )
    if not label:
        return line, []
    half = measure(label, SMALL) / 2
    tx = line.x2 + dx * (half + 4)
    ty = line.y2 + dy * (SMALL * 0.6 + 3) + SMALL * 0.35
    return line, [Text(tx, ty, label, size=SMALL)]


def _find_way(used: Sequence[float]) -> Open:
    """Return the direction farthest from those in use; downwards for a node without neighbours."""
    options = [math.pi / 2 + step * math.pi / 8 for step in range(16)]

    def room(angle: Number) -> Number:
        return min((abs(math.remainder(angle - other, 2 * math.pi)) for other in used), default=math.pi)

    widest = max(round(room(angle), 6) for angle in options)
    angle = next(angle for angle in options if round(room(angle), 6) == widest)
    return Open(math.cos(angle), math.sin(angle))
