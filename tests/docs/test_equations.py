"""``docs/equations.md`` is complete and true: what the paper has, the page shows, and what it shows exists."""

from __future__ import annotations

import re

import pytest
from tools.equations import PAGE, find_faults, find_tags, read_tags, rewrite


def test_the_map_is_complete_and_true() -> None:
    faults = find_faults(PAGE.read_text(encoding="utf-8"), find_tags())
    assert not faults, "docs/equations.md (python tools/equations.py writes its lists):\n" + "\n".join(faults)


DELTA = "[`delta`](../src/tslm/tensors/algebra.py)"


def replace_row(item: str, row: str):
    """Return a change of the page that puts another row in the place of the folded one."""
    return lambda text: re.sub(rf"(?m)^\| {re.escape(item)} \|[^|]*\|[^|]*\|$", row, text)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (replace_row("Eq. 16", ""), "Eq. 16 has no function"),
        (replace_row("Eq. 3", "| Eq. 3 | `tslm.tensors.algebra.delta` | |"), "Eq. 3 has no test"),
        (
            replace_row("Eq. 3", "| Eq. 3 | `tslm.gone` | `tests/tensors/test_space.py::test_claim_1` |"),
            "has not",
        ),
        (
            lambda text: text.replace(DELTA, DELTA.replace("delta", "gone", 1)),
            "algebra.gone, which its folded",
        ),
        (lambda text: text.replace(DELTA, ""), "shows 0 functions"),
        (lambda text: text.replace(DELTA, ", ".join([DELTA] * 4)), "shows 4 functions"),
        (lambda text: text.replace("::test_claim_1`", "::test_claim_7`"), "which does not exist"),
        (lambda text: re.sub(r"(?m)^\| Figure 4 \|.*\n", "", text, count=1), "Figure 4 has no row"),
        (lambda text: text + "\n| Eq. 1 | | |\n", "Eq. 1 has two rows"),
    ],
)
def test_faults_are_found(change, expected: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    changed = change(text)
    assert changed != text
    assert any(expected in fault for fault in find_faults(changed, find_tags()))


def test_a_tag_is_written_into_the_list() -> None:
    text, tags = PAGE.read_text(encoding="utf-8"), find_tags()
    tags |= {"tslm.models.new.thing": ["Eq. 16"]}
    assert "python tools/equations.py" in find_faults(text, tags)[0]
    assert "`tslm.models.new.thing`" in rewrite(text, tags)
    assert find_faults(rewrite(text, tags), tags) == []
    assert "new.thing is tagged Eq. 33, which the paper has not" in "".join(
        find_faults(text, tags | {"new.thing": ["Eq. 33"]})
    )


@pytest.mark.parametrize(
    ("line", "tags"),
    [
        ("Eqs. 1, 2. Return", ["Eq. 1", "Eq. 2"]),
        ("Eq. 11, Claim 1. Return the entry", ["Eq. 11", "Claim 1"]),
        ("Eqs. 22–24. x", ["Eq. 22", "Eq. 23", "Eq. 24"]),
        ("Figures 1, 2, 3. Return", ["Figure 1", "Figure 2", "Figure 3"]),
        ("PPL. exp", ["PPL"]),
        ("Return the tensor of Eq. 16.", []),
    ],
)
def test_tags_are_read(line: str, tags: list[str]) -> None:
    assert read_tags(line) == tags
