"""Shapes on a plane as SVG: what diagrams are drawn with. No dependency; every shape knows the room it takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape

# Middle tones: readable on white and on black paper alike.
LINE = "#7b8794"
INK = "#6b7785"
TENSOR = "#3b76b8"
VECTOR = "#3f8550"
DELTA = "#c8553d"
WORDS = "#8a63b8"

FONT = 13.0
RADIUS = 17.0
"""Radius of a node."""
Number = float | int
Box = tuple[Number, Number, Number, Number]


@dataclass(frozen=True)
class Disc:
    """A circle with a label inside; with ``width`` a rounded rectangle of that half-width."""

    name: str
    x: Number
    y: Number
    radius: Number
    label: str
    colour: str
    width: Number = 0.0

    def shift(self, dx: Number, dy: Number) -> Disc:
        """Return it moved."""
        return replace(self, x=self.x + dx, y=self.y + dy)

    @property
    def box(self) -> Box:
        """Left, top, right, bottom."""
        half = self.width + self.radius
        return self.x - half, self.y - self.radius, self.x + half, self.y + self.radius

    def svg(self) -> str:
        """Return it as SVG."""
        left, top, right, bottom = self.box
        shape = (
            f'<circle cx="{self.x:.1f}" cy="{self.y:.1f}" r="{self.radius:.1f}" fill="{self.colour}"/>'
            if not self.width
            else f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" '
            f'rx="{self.radius * 0.6:.1f}" fill="{self.colour}"/>'
        )
        text = Text(
            self.x,
            self.y + FONT * 0.35,
            self.label,
            "middle",
            "#ffffff",
            fit(self.label, 2 * (self.radius + self.width) - 6),
        )
        return shape + text.svg()


@dataclass(frozen=True)
class Triangle:
    """A δ-tensor."""

    name: str
    x: Number
    y: Number
    radius: Number
    colour: str = DELTA

    def shift(self, dx: Number, dy: Number) -> Triangle:
        """Return it moved."""
        return replace(self, x=self.x + dx, y=self.y + dy)

    @property
    def box(self) -> Box:
        """Left, top, right, bottom."""
        return self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius

    def svg(self) -> str:
        """Return it as SVG."""
        corners = [
            (self.x + self.radius * math.sin(angle), self.y - self.radius * math.cos(angle))
            for angle in (0, 2 * math.pi / 3, 4 * math.pi / 3)
        ]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        return f'<polygon points="{points}" fill="{self.colour}"/>'


@dataclass(frozen=True)
class Line:
    """A leg; dashed where it is contracted. ``bend`` pushes its middle aside."""

    x1: Number
    y1: Number
    x2: Number
    y2: Number
    ends: tuple[str, ...]
    """Names of the shapes it joins."""
    dashed: bool = False
    bend: Number = 0.0

    def shift(self, dx: Number, dy: Number) -> Line:
        """Return it moved."""
        return replace(self, x1=self.x1 + dx, y1=self.y1 + dy, x2=self.x2 + dx, y2=self.y2 + dy)

    @property
    def box(self) -> Box:
        """Left, top, right, bottom."""
        xs = [point[0] for point in self.points()]
        ys = [point[1] for point in self.points()]
        return min(xs), min(ys), max(xs), max(ys)

    def middle(self) -> tuple[Number, Number]:
        """Return the control point of the curve."""
        length = math.hypot(self.x2 - self.x1, self.y2 - self.y1) or 1.0
        across = (-(self.y2 - self.y1) / length, (self.x2 - self.x1) / length)
        return (
            (self.x1 + self.x2) / 2 + across[0] * self.bend * 2,
            (self.y1 + self.y2) / 2 + across[1] * self.bend * 2,
        )

    def points(self, count: int = 21) -> list[tuple[Number, Number]]:
        """Return points along it."""
        mx, my = self.middle()
        steps = [i / (count - 1) for i in range(count)]
        return [
            (
                (1 - t) ** 2 * self.x1 + 2 * t * (1 - t) * mx + t**2 * self.x2,
                (1 - t) ** 2 * self.y1 + 2 * t * (1 - t) * my + t**2 * self.y2,
            )
            for t in steps
        ]

    def svg(self) -> str:
        """Return it as SVG."""
        dash = ' stroke-dasharray="4 3"' if self.dashed else ""
        mx, my = self.middle()
        path = f"M{self.x1:.1f},{self.y1:.1f}"
        path += (
            f"Q{mx:.1f},{my:.1f} {self.x2:.1f},{self.y2:.1f}"
            if self.bend
            else f"L{self.x2:.1f},{self.y2:.1f}"
        )
        return f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.8"{dash}/>'


@dataclass(frozen=True)
class Text:
    """A label."""

    x: Number
    y: Number
    content: str
    anchor: str = "middle"
    colour: str = INK
    size: Number = FONT
    bold: bool = False

    name: str = ""

    def shift(self, dx: Number, dy: Number) -> Text:
        """Return it moved."""
        return replace(self, x=self.x + dx, y=self.y + dy)

    @property
    def box(self) -> Box:
        """Left, top, right, bottom."""
        width = measure(self.content, self.size)
        left = self.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor] * width
        return left, self.y - 0.75 * self.size, left + width, self.y + 0.22 * self.size

    def svg(self) -> str:
        """Return it as SVG."""
        weight = ' font-weight="600"' if self.bold else ""
        return (
            f'<text x="{self.x:.1f}" y="{self.y:.1f}" text-anchor="{self.anchor}" fill="{self.colour}" '
            f'font-size="{self.size:.1f}"{weight}>{escape(self.content)}</text>'
        )


Shape = Disc | Triangle | Line | Text


@dataclass(frozen=True)
class Picture:
    """Shapes, in the order in which they are drawn."""

    shapes: tuple[Shape, ...]

    @property
    def box(self) -> Box:
        """Left, top, right, bottom of everything."""
        boxes = [shape.box for shape in self.shapes]
        return (
            min(box[0] for box in boxes),
            min(box[1] for box in boxes),
            max(box[2] for box in boxes),
            max(box[3] for box in boxes),
        )

    @property
    def size(self) -> tuple[Number, Number]:
        """Width and height."""
        left, top, right, bottom = self.box
        return right - left, bottom - top

    def shift(self, dx: Number, dy: Number) -> Picture:
        """Return it moved."""
        return Picture(tuple(shape.shift(dx, dy) for shape in self.shapes))

    def to_svg(self, margin: Number = 14.0, title: str = "") -> str:
        """Return a whole SVG file; lines lie under shapes, text on top."""
        left, top, _, _ = self.box
        width, height = self.size[0] + 2 * margin, self.size[1] + 2 * margin
        moved = self.shift(margin - left, margin - top).shapes
        ordered = sorted(
            moved, key=lambda shape: 0 if isinstance(shape, Line) else 2 if isinstance(shape, Text) else 1
        )
        name = f"<title>{escape(title)}</title>" if title else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
            f'height="{height:.0f}" font-family="DejaVu Sans, Segoe UI, Helvetica, Arial, sans-serif">{name}'
            + "".join(shape.svg() for shape in ordered)
            + "</svg>\n"
        )


def beside(parts: Sequence[Picture | str], gap: Number = 22.0) -> Picture:
    """Return pictures in a row, their zero lines aligned; a string stands between them as a sign."""
    shapes: list[Shape] = []
    x = 0.0
    for part in parts:
        picture = Picture((Text(0, FONT * 0.55, part, size=20),)) if isinstance(part, str) else part
        left, _, right, _ = picture.box
        shapes += picture.shift(x - left, 0).shapes
        x += right - left + gap
    return Picture(tuple(shapes))


def caption(picture: Picture, text: str, above: Number = 22.0) -> Picture:
    """Return a picture with a line of text under it."""
    left, _, right, bottom = picture.box
    return Picture((*picture.shapes, Text((left + right) / 2, bottom + above, text)))


def arrange(rows: Iterable[Sequence[Picture]], gap: Number = 48.0) -> Picture:
    """Return rows of pictures, bottoms aligned in a row and rows centred under each other."""
    shapes: list[Shape] = []
    y = 0.0
    for row in rows:
        height = max(picture.size[1] for picture in row)
        width = sum(picture.size[0] for picture in row) + gap * (len(row) - 1)
        x = -width / 2
        for picture in row:
            left, _, _, bottom = picture.box
            shapes += picture.shift(x - left, y + height - bottom).shapes
            x += picture.size[0] + gap
        y += height + gap
    return Picture(tuple(shapes))


def measure(text: str, size: Number) -> Number:
    """Return about how wide a text is; combining marks take no room."""
    return size * sum(
        0.0
        if "\u0300" <= letter <= "\u036f"
        else 0.98
        if letter in "mwMW"
        else 0.84
        if letter in "=+"
        else 0.66
        for letter in text
    )


def fit(text: str, width: Number) -> Number:
    """Return a size at which a text fits a width."""
    natural = measure(text, FONT)
    return FONT if natural <= width else max(6.0, FONT * width / natural)


def find_overlaps(picture: Picture) -> list[str]:
    """Return what lies on what: nodes on nodes, text on text or nodes, legs through strange nodes or text."""
    found: list[str] = []
    nodes = [shape for shape in picture.shapes if isinstance(shape, Disc | Triangle)]
    texts = [shape for shape in picture.shapes if isinstance(shape, Text)]
    lines = [shape for shape in picture.shapes if isinstance(shape, Line)]
    solid = [(_name(shape), shape.box) for shape in (*nodes, *texts)]
    for i, (name, box) in enumerate(solid):
        for other, second in solid[:i]:
            if box[0] < second[2] and second[0] < box[2] and box[1] < second[3] and second[1] < box[3]:
                found.append(f"{name} on {other}")
    for line in lines:
        inner = line.points(41)[2:-2]
        for shape in (*nodes, *texts):
            if shape.name in line.ends and not isinstance(shape, Text):
                continue
            left, top, right, bottom = shape.box
            if any(left < x < right and top < y < bottom for x, y in inner):
                found.append(f"leg {'–'.join(line.ends)} through {_name(shape)}")
    return found


def _name(shape: Disc | Triangle | Text) -> str:
    """Return a name for messages."""
    return f"text '{shape.content}'" if isinstance(shape, Text) else f"node '{shape.name}'"
