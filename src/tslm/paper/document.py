"""A table or figure beside the paper's, written as Markdown, HTML and SVG."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from tslm.files import write_text
from tslm.reports.page import make_page
from tslm.tables import html_table, markdown_table, text_table


@dataclass(frozen=True, repr=False)
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

    data: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The rows as numbers, for programs."""

    failed: tuple[str, ...] = ()
    """The runs that were to be trained for it, and failed."""

    def as_json(self) -> dict[str, Any]:
        """Return the report for ``--json``."""
        return {"name": self.name, "title": self.title, "rows": self.data, "notes": self.notes}

    def __repr__(self) -> str:
        return "\n".join([self.title, text_table(self.header, self.rows, left=(0,)), *self.notes])

    def _repr_html_(self) -> str:
        """Return figure and tables, for a notebook."""
        return f"<h3>{escape(self.title)}</h3>\n{_body(self)}"


def to_markdown(made: Report) -> str:
    """Return a report as Markdown; a figure is named as the SVG file beside it."""
    parts = [f"# {made.title}", ""]
    if made.svg:
        parts += [f"![{made.title}]({made.name}.svg)", ""]
    parts += [markdown_table(made.header, made.rows), ""]
    parts += [note.replace("<", "&lt;") + "\n" for note in made.notes]
    for heading, header, rows in made.more:
        parts += [f"## {heading}", "", markdown_table(header, rows), ""]
    return "\n".join(parts).rstrip() + "\n"


def to_html(made: Report) -> str:
    """Return a report as one self-contained page."""
    return make_page(made.title, _body(made))


def _body(made: Report) -> str:
    parts = [made.svg, html_table(made.header, made.rows)]
    parts += [f"<p>{escape(note)}</p>" for note in made.notes]
    for heading, header, rows in made.more:
        parts += [f"<h2>{escape(heading)}</h2>", html_table(header, rows)]
    return "\n".join(parts)


def write_report(made: Report, folder: Path, *, html: bool = True) -> list[Path]:
    """Write a report as ``.md``, as ``.html``, and a figure as ``.svg``; return the paths."""
    texts = {".md": to_markdown(made), ".html": to_html(made) if html else "", ".svg": made.svg}
    paths = {folder / f"{made.name}{ending}": text for ending, text in texts.items() if text}
    for path, text in paths.items():
        write_text(path, text)
    return list(paths)
