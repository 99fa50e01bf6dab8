"""``docs/equations.md`` is complete: every equation has a row, every row real functions and tests, every tag a row."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MAP = ROOT / "docs" / "equations.md"
ITEMS = [
    *[f"Eq. {n}" for n in range(1, 33)],
    "PPL",
    *[f"Claim {n}" for n in (1, 2)],
    *[f"Table {n}" for n in (1, 2)],
    *[f"Figure {n}" for n in range(1, 6)],
]
TAG = re.compile(r"(?:(Eq|Claim|Figure|Table)s?\.? (\d+(?:(?:, |–)\d+)*)|(PPL))")


def read_rows(text: str) -> dict[str, tuple[list[str], list[str], list[str]]]:
    """Item → functions, tests, and what is only planned."""
    rows: dict[str, tuple[list[str], list[str], list[str]]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if len(cells) != 4 or cells[0] not in ITEMS:
            continue
        assert cells[0] not in rows, f"{cells[0]} has two rows"
        planned = re.findall(r"planned: `([^`]+)`", cells[2] + cells[3])
        names = [name for name in re.findall(r"`([^`]+)`", cells[2]) if name not in planned]
        tests = [name for name in re.findall(r"`([^`]+)`", cells[3]) if name not in planned]
        rows[cells[0]] = names, tests, planned
    return rows


def read_tags(first_line: str) -> set[str]:
    """``Eqs. 1, 2. Return …`` → {Eq. 1, Eq. 2}; a tag stands at the very beginning."""
    found: set[str] = set()
    position = 0
    while match := TAG.match(first_line, position):
        if match[3]:
            found.add("PPL")
        else:
            for part in match[2].split(", "):
                begin, _, end = part.partition("–")
                found |= {
                    f"{match[1]} {n}".replace("Eq ", "Eq. ") for n in range(int(begin), int(end or begin) + 1)
                }
        position = match.end()
        if first_line.startswith(", ", position):
            position += 2
    return found


def walk(module: str, tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield every public function, class and module of a file with its tags."""
    if isinstance(tree, ast.Module):
        yield module, read_tags((ast.get_docstring(tree) or "").split("\n")[0])
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (
            node.name[0] != "_" or node.name[:2] == "__"
        ):
            name = f"{prefix}{node.name}"
            yield f"{module}.{name}", read_tags((ast.get_docstring(node) or "").split("\n")[0])
            yield from walk(module, node, f"{name}.")


def find_tags() -> dict[str, set[str]]:
    """Dotted name → tags, for all of the package."""
    tags: dict[str, set[str]] = {}
    for path in sorted((ROOT / "src" / "tslm").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        tags |= dict(walk(module, ast.parse(path.read_text(encoding="utf-8"))))
    return tags


def find_faults(text: str, tags: dict[str, set[str]]) -> list[str]:
    """Everything that keeps the map from being complete and true."""
    rows = read_rows(text)
    faults = [f"{item} has no row" for item in ITEMS if item not in rows]
    for item, (names, tests, planned) in rows.items():
        if not names and not planned:
            faults.append(f"the row of {item} names no function")
        if not tests and not planned:
            faults.append(f"the row of {item} names no test")
        for name in names:
            if name not in tags:
                faults.append(f"the row of {item} names {name}, which does not exist")
            elif item not in tags[name]:
                faults.append(f"the docstring of {name} must begin with '{item}.', as its row says")
        for test in tests:
            path, _, function = test.partition("::")
            source = ROOT / path
            if not source.is_file() or not re.search(
                rf"^def {re.escape(function)}\(", source.read_text("utf-8"), re.M
            ):
                faults.append(f"the row of {item} names the test {test}, which does not exist")
        for name in planned:
            exists = (ROOT / name.partition("::")[0]).is_file() if "/" in name else is_there(name)
            if exists:
                faults.append(
                    f"the row of {item} says planned: {name}, but it exists: name its functions and tests"
                )
    for name, found in tags.items():
        faults += [
            f"{name} is tagged {item}: add it to the row of {item}"
            for item in sorted(found)
            if item in rows and name not in rows[item][0]
        ]
        faults += [f"{name} is tagged {item}, which the paper has not" for item in sorted(found - set(ITEMS))]
    return faults


def is_there(module: str) -> bool:
    """Whether a module exists."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_the_map_is_complete_and_true() -> None:
    faults = find_faults(MAP.read_text(encoding="utf-8"), find_tags())
    assert not faults, "docs/equations.md:\n" + "\n".join(faults)


DELTA = "`tslm.tensors.algebra.delta`"


def replace_row(item: str, row: str):
    """Return a change of the map that puts another row in the place of one."""
    return lambda text: re.sub(rf"(?m)^\| {re.escape(item)} \|.*$", row, text)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (replace_row("Eq. 16", ""), "Eq. 16 has no row"),
        (lambda text: text.replace(DELTA, "`tslm.tensors.algebra.gone`"), "does not exist"),
        (lambda text: text.replace(DELTA, "`tslm.tensors.algebra.contract`"), "must begin with 'Eq. 3.'"),
        (lambda text: text.replace(DELTA, ""), "names no function"),
        (lambda text: text.replace("::test_claim_1`", "::test_claim_7`"), "names the test"),
        (replace_row("Eq. 3", f"| Eq. 3 | x | {DELTA} | |"), "names no test"),
        (replace_row("Figure 4", "| Figure 4 | x | planned: `tslm.tensors` | |"), "but it exists"),
    ],
)
def test_faults_are_found(change, expected: str) -> None:
    text = MAP.read_text(encoding="utf-8")
    changed = change(text)
    assert changed != text
    assert any(expected in fault for fault in find_faults(changed, find_tags()))


def test_a_tag_without_a_row_is_found() -> None:
    tags = find_tags() | {"tslm.models.new.thing": {"Eq. 16", "Eq. 33"}}
    faults = find_faults(MAP.read_text(encoding="utf-8"), tags)
    assert "tslm.models.new.thing is tagged Eq. 16: add it to the row of Eq. 16" in faults
    assert "tslm.models.new.thing is tagged Eq. 33, which the paper has not" in faults


@pytest.mark.parametrize(
    ("line", "tags"),
    [
        ("Eqs. 1, 2. Return", {"Eq. 1", "Eq. 2"}),
        ("Eq. 11, Claim 1. Return the entry", {"Eq. 11", "Claim 1"}),
        ("Eqs. 22–24. x", {"Eq. 22", "Eq. 23", "Eq. 24"}),
        ("Figures 1, 2, 3. Return", {"Figure 1", "Figure 2", "Figure 3"}),
        ("PPL. exp", {"PPL"}),
        ("Return the tensor of Eq. 16.", set()),
    ],
)
def test_tags_are_read(line: str, tags: set[str]) -> None:
    assert read_tags(line) == tags
