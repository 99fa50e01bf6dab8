"""A table or figure beside the paper's, written as Markdown, HTML and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from tslm.files import write_text
from tslm.reports.page import make_page, make_table


@dataclass(frozen=True)
class Report:
    """A table or figure beside the paper's, ready to be written as Markdown and HTML."""

    name: str
    """The file's name without its ending."""
    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list[str])
    svg: str = ""
    more: list[tuple[str, list[str], list[list[str]]]] = field(
        default_factory=list[tuple[str, list[str], list[list[str]]]]
    )
    """Further tables: heading, header, rows."""

    def as_json(self) -> dict[str, Any]:
        """Return rows as objects, for ``--json``."""
        return {
            "name": self.name,
            "title": self.title,
            "rows": [dict(zip(self.header, row, strict=True)) for row in self.rows],
            "notes": self.notes,
        }


def to_markdown(made: Report) -> str:
    """Return a report as Markdown; a figure is named as the SVG file beside it."""
    parts = [f"# {made.title}", ""]
    if made.svg:
        parts += [f"![{made.title}]({made.name}.svg)", ""]
    parts += [_markdown_table(made.header, made.rows), ""]
    parts += [f"{_escape(note)}\n" for note in made.notes]
    for heading, header, rows in made.more:
        parts += [f"## {heading}", "", _markdown_table(header, rows), ""]
    return "\n".join(parts).rstrip() + "\n"


def to_html(made: Report) -> str:
    """Return a report as one self-contained page."""
    parts = [made.svg, make_table(made.header, made.rows)]
    parts += [f"<p>{escape(note)}</p>" for note in made.notes]
    for heading, header, rows in made.more:
        parts += [f"<h2>{escape(heading)}</h2>", make_table(header, rows)]
    return make_page(made.title, "\n".join(parts))


def write_reports(made: Report, folder: Path) -> list[Path]:
    """Write a report as ``.md``, ``.html`` and, for a figure, ``.svg``; return the paths."""
    texts = {".md": to_markdown(made), ".html": to_html(made)}
    if made.svg:
        texts[".svg"] = made.svg
    for ending, text in texts.items():
        write_text(folder / f"{made.name}{ending}", text)
    return [folder / f"{made.name}{ending}" for ending in texts]


def _escape(text: str) -> str:
    return text.replace("<", "&lt;")


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_escape(cell) for cell in line) + " |" for line in lines)
