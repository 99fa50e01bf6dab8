"""The effects of words on words as a heat map: in the terminal and as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from tslm.shapes import Float

if TYPE_CHECKING:
    from rich.table import Table

WARM = (194, 65, 12)
"""A word that makes another likelier."""
COLD = (29, 78, 216)
"""A word that makes another less likely."""

CELL = 46
FONT = "font-family='system-ui, sans-serif'"


def shade(value: float, largest: float) -> str:
    """Return the colour of an effect: white for none, deeper the stronger it is."""
    share = min(1.0, abs(value) / largest) ** 0.7 if largest > 0 else 0.0
    red, green, blue = (round(255 + (end - 255) * share) for end in (WARM if value > 0 else COLD))
    return f"#{red:02x}{green:02x}{blue:02x}"


def ink(value: float, largest: float) -> str:
    """Return a colour of writing that can be read on the shade."""
    return "#ffffff" if largest > 0 and abs(value) / largest > 0.45 else "#1f2937"


def largest_effect(matrix: Float[np.ndarray, "T T"]) -> float:
    """Return the largest finite effect."""
    finite = np.abs(matrix[np.isfinite(matrix)])
    return float(finite.max()) if finite.size else 0.0


def heat_tables(words: Sequence[str], matrix: Float[np.ndarray, "T T"], width: int) -> list[Table]:
    """Return the heat map for the terminal: one line per word, one column per word behind it.

    A sentence that is too long for the width takes several tables, one below the other; nothing is cut off.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    largest = largest_effect(matrix)
    sizes = [
        max(cell_len(word), *(len(f"{value:+.2f}") for value in matrix[:, column].tolist()))
        for column, word in enumerate(words)
    ]
    before = max(map(cell_len, words[:-1])) + 2
    tables: list[Table] = []
    begin = 1
    while begin < len(words):
        end, used = begin, before
        while end < len(words) and (end == begin or used + sizes[end] + 2 <= width):
            used += sizes[end] + 2
            end += 1
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("", no_wrap=True, min_width=before - 2)
        for column in range(begin, end):
            table.add_column(Text(words[column]), justify="right", no_wrap=True, min_width=sizes[column])
        for row in range(end - 1):
            cells = [
                Text(f"{value:+.2f}", style=f"{ink(value, largest)} on {shade(value, largest)}")
                if column > row
                else Text("")
                for column, value in enumerate(matrix[row].tolist())
                if begin <= column < end
            ]
            table.add_row(Text(words[row]), *cells)
        tables.append(table)
        begin = end
    return tables


def heat_svg(words: Sequence[str], matrix: Float[np.ndarray, "T T"], title: str) -> str:
    """Return the heat map as an SVG picture."""
    largest = largest_effect(matrix)
    count = len(words)
    left = 14 + 8 * max(len(word) for word in words)
    top = 44 + 6 * max(len(word) for word in words)
    width, height = max(left + CELL * count + 50, 16 + 7 * len(title)), top + 32 * count + 14
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
        f"role='img' {FONT} font-size='13'>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{width}' height='{height}' fill='#ffffff'/>",
        f"<text x='10' y='20' font-size='12' fill='#4b5563'>{escape(title)}</text>",
    ]
    for place, word in enumerate(words):
        x, y = left + CELL * (place - 1), top + 32 * place
        if place:
            parts.append(
                f"<text transform='translate({x + CELL / 2},{top - 8}) rotate(-40)' fill='#111827'>"
                f"{escape(word)}</text>"
            )
        if place < count - 1:
            parts.append(
                f"<text x='{left - 8}' y='{y + 20}' text-anchor='end' fill='#111827'>{escape(word)}</text>"
            )
        for column in range(place + 1, count):
            value = float(matrix[place, column])
            cell = left + CELL * (column - 1)
            parts.append(
                f"<rect x='{cell}' y='{y}' width='{CELL - 2}' height='30' rx='3' fill='{shade(value, largest)}' "
                "stroke='#e5e7eb'>"
                f"<title>{escape(words[place])} → {escape(words[column])}: {value:+.4f}</title></rect>"
                f"<text x='{cell + CELL / 2 - 1}' y='{y + 19}' text-anchor='middle' font-size='11' "
                f"fill='{ink(value, largest)}'>{value:+.2f}</text>"
            )
    return "".join([*parts, "</svg>\n"])
