"""Tables of plain texts: for a terminal, for Markdown and for HTML; and numbers as people read them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from unicodedata import combining, east_asian_width

Rows = Sequence[Sequence[str]]
NUMBER = re.compile(r"[-+]?[\d.,]+%?|[–∞]|")


def show_number(value: float | None, digits: int = 2) -> str:
    """Return a perplexity as text; one that was not measured is a dash."""
    if value is None:
        return "–"
    return "∞" if math.isinf(value) else f"{value:.{digits}f}"


def show_count(number: int, what: str) -> str:
    """Return a number of things as text: 1 line, 2,000 lines."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def show_duration(seconds: float) -> str:
    """Return a training time as text."""
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def text_table(header: Sequence[str], rows: Rows, *, left: Sequence[int] = ()) -> str:
    """Return a table for a terminal: nothing is cut off, and what has no fixed width stands last.

    Args:
        header: the names of the columns.
        rows: the cells.
        left: the columns that stand to the left, beside the last where it holds more than numbers; the others are
            numbers.

    Example:
        >>> print(text_table(["p", "word"], [["0.5", "the"], ["0.25", "a"]]))
           p  word
         0.5  the
        0.25  a
    """
    lines = [[str(cell) for cell in line] for line in (header, *rows)]
    widths = [max(map(cell_width, column)) for column in zip(*lines, strict=True)]
    last = len(header) - 1
    numbers = bool(rows) and all(NUMBER.fullmatch(line[last]) for line in lines[1:])

    def place(column: int, cell: str) -> str:
        blank = " " * (widths[column] - cell_width(cell))
        to_left = column in left or (column == last and not numbers)
        return cell + blank if to_left else blank + cell

    return "\n".join(
        "  ".join(place(column, cell) for column, cell in enumerate(line)).rstrip() for line in lines
    )


def cell_width(text: str) -> int:
    """Return how many places a text takes in a terminal: wide signs take two, accents of their own none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def markdown_table(header: Sequence[str], rows: Rows) -> str:
    """Return a Markdown table; columns in which every text begins like a number stand to the right."""
    numbers = [bool(rows) and is_number for is_number in _numbers(header, rows)]
    lines = [header, ["--:" if number else "---" for number in numbers], *rows]
    return "\n".join("| " + " | ".join(cell.replace("<", "&lt;") for cell in line) + " |" for line in lines)


def html_table(header: Sequence[str], rows: Rows) -> str:
    """Return an HTML table; columns in which every text begins like a number stand to the right."""
    places, numbers = range(len(header)), _numbers(header, rows)

    def line(tag: str, cells: Sequence[str]) -> str:
        kinds = [' class="number" style="text-align: right"' if numbers[place] else "" for place in places]
        texts = (f"<{tag}{kinds[place]}>{escape(cells[place])}</{tag}>" for place in places)
        return f"<tr>{''.join(texts)}</tr>"

    return "\n".join(["<table>", line("th", header), *(line("td", row) for row in rows), "</table>"])


def _numbers(header: Sequence[str], rows: Rows) -> list[bool]:
    return [
        all(row[place].lstrip("*")[:1] in "0123456789–-+" for row in rows) for place in range(len(header))
    ]
