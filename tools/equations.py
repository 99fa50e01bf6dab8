"""The map from the paper to the code: ``docs/equations.md``, its tables checked and its folded lists written anew.

A function that carries out something of the paper says so at the beginning of its docstring (``Eq. 16.``). The page has
a table per section of the paper, written by hand, with the names that matter most; behind a fold stands every tagged
function, written by ``python tools/equations.py``, and the tests that hold them, which are kept as they are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "equations.md"
MOST_NAMES = 3
"""In a row of a table that people read."""

ITEMS = [
    *[f"Eq. {n}" for n in range(1, 33)],
    "PPL",
    *[f"Claim {n}" for n in (1, 2)],
    *[f"Table {n}" for n in (1, 2)],
    *[f"Figure {n}" for n in range(1, 6)],
]
TAG = re.compile(r"(?:(Eq|Claim|Figure|Table)s?\.? (\d+(?:(?:, |–)\d+)*)|(PPL))")
LINK = re.compile(r"\[`([\w.]+)`\]\(\.\./([^)]+)\)")
CODE = re.compile(r"`([^`]+)`")


@dataclass
class Row:
    """What the page says of one thing of the paper."""

    functions: list[str] = field(default_factory=list[str])
    """All of them, from the folded list."""
    tests: list[str] = field(default_factory=list[str])
    shown: int = 0
    """Rows of the open tables that speak of it."""


def read_tags(first_line: str) -> list[str]:
    """``Eqs. 1, 2. Return …`` → Eq. 1, Eq. 2; a tag stands at the very beginning."""
    found: list[str] = []
    position = 0
    while match := TAG.match(first_line, position):
        if match[3]:
            found.append("PPL")
        else:
            for part in match[2].split(", "):
                begin, _, end = part.partition("–")
                numbers = range(int(begin), int(end or begin) + 1)
                found += [f"{match[1]} {n}".replace("Eq ", "Eq. ") for n in numbers]
        position = match.end()
        if first_line.startswith(", ", position):
            position += 2
    return found


def find_tags() -> dict[str, list[str]]:
    """Every public function, class and module of the package, by its dotted name, with its tags."""
    tags: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src" / "tslm").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        tags |= dict(_walk(module, ast.parse(path.read_text(encoding="utf-8"))))
    return tags


def _walk(module: str, tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    if isinstance(tree, ast.Module):
        yield module, read_tags((ast.get_docstring(tree) or "").split("\n")[0])
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (
            node.name[0] != "_" or node.name[:2] == "__"
        ):
            name = f"{prefix}{node.name}"
            yield f"{module}.{name}", read_tags((ast.get_docstring(node) or "").split("\n")[0])
            yield from _walk(module, node, f"{name}.")


def split_cells(line: str) -> list[str]:
    """Return the cells of a row of a table; no cell for any other line."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []


def rewrite(text: str, tags: dict[str, list[str]]) -> str:
    """Return the page with the functions of the folded lists as the docstrings say."""
    lines: list[str] = []
    for line in text.splitlines():
        cells = split_cells(line)
        if len(cells) == 3 and cells[0] in ITEMS:
            names = sorted(name for name, found in tags.items() if cells[0] in found)
            cells[1] = "<br>".join(f"`{name}`" for name in names)
            line = f"| {' | '.join(cells)} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def find_faults(text: str, tags: dict[str, list[str]]) -> list[str]:
    """Return everything that keeps the page from being complete, true and short."""
    rows = {item: Row() for item in ITEMS}
    faults: list[str] = []
    for line in text.splitlines():
        cells = split_cells(line)
        if len(cells) == 3 and cells[0] in ITEMS:
            if rows[cells[0]].functions or rows[cells[0]].tests:
                faults.append(f"{cells[0]} has two rows in the folded lists")
            rows[cells[0]] = Row(CODE.findall(cells[1]), CODE.findall(cells[2]), rows[cells[0]].shown)
    for line in text.splitlines():
        cells = split_cells(line)
        if len(cells) == 4 and read_tags(cells[0]):
            faults += _check_row(cells, rows)
    for item, row in rows.items():
        if not row.shown:
            faults.append(f"{item} has no row in an open table")
        if not row.functions:
            faults.append(f"{item} has no function in the folded lists")
        if not row.tests:
            faults.append(f"{item} has no test in the folded lists")
        faults += [
            f"{item} names the test {test}, which does not exist" for test in row.tests if not _has(test)
        ]
    for name, found in tags.items():
        faults += [f"{name} is tagged {item}, which the paper has not" for item in found if item not in ITEMS]
    if not faults and rewrite(text, tags) != text:
        faults.append("the folded lists are not those of the docstrings: python tools/equations.py")
    return faults


def _check_row(cells: list[str], rows: dict[str, Row]) -> Iterator[str]:
    """Yield what is wrong with a row that people read, and note of what it speaks."""
    items = read_tags(cells[0])
    for item in items:
        rows[item].shown += 1
    for kind, cell in (("functions", cells[2]), ("tests", cells[3])):
        links = LINK.findall(cell)
        if not 1 <= len(links) <= MOST_NAMES:
            yield f"the row of {cells[0]} shows {len(links)} {kind}; expected 1 to {MOST_NAMES}"
        for name, path in links:
            full = (
                f"{path}::{name}"
                if kind == "tests"
                else ".".join(Path(path).relative_to("src").with_suffix("").parts) + f".{name}"
            )
            if not any(full in getattr(rows[item], kind) for item in items):
                yield f"the row of {cells[0]} shows {full}, which its folded list has not"


def _has(test: str) -> bool:
    path, _, function = test.partition("::")
    source = ROOT / path
    return source.is_file() and bool(
        re.search(rf"^def {re.escape(function)}\(", source.read_text("utf-8"), re.M)
    )


def main() -> None:
    """Write the page anew and say what is still wrong with it."""
    tags = find_tags()
    text = rewrite(PAGE.read_text(encoding="utf-8"), tags)
    PAGE.write_text(text, encoding="utf-8")
    print("\n".join(find_faults(text, tags)) or f"{PAGE.name} is complete")


if __name__ == "__main__":
    main()
