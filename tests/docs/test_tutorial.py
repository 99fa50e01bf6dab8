"""The tutorial's code runs and prints what the page says; its pictures are those that the code draws."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

from tslm.drawing.figures import draw_figure
from tslm.drawing.sentence import draw_sentence
from tslm.tensors.sentence import sentence_network

DOCS = Path(__file__).parent.parent.parent / "docs"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def run_page(text: str) -> int:
    """Run all python blocks in one namespace; compare what each prints with the text block after it."""
    blocks = FENCE.findall(text)
    names: dict[str, object] = {}
    count = 0
    for position, (kind, code) in enumerate(blocks):
        if kind != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"block {position}", "exec"), names)  # noqa: S102 - our own page
        following = blocks[position + 1] if position + 1 < len(blocks) else ("", "")
        expected = following[1] if following[0] == "text" else ""
        assert printed.getvalue() == expected, f"block {position} prints:\n{printed.getvalue()}"
        count += 1
    return count


def test_every_block_runs_and_prints_what_the_page_says() -> None:
    assert run_page((DOCS / "tensor-space.md").read_text(encoding="utf-8")) >= 15


def test_the_runner_notices() -> None:
    with pytest.raises(AssertionError, match="prints"):
        run_page("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(AssertionError):
        run_page("```python\nassert 1 == 2\n```\n")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_figures_are_as_drawn(number: int) -> None:
    stored = (DOCS / "images" / f"figure-{number}.svg").read_text(encoding="utf-8")
    assert stored == draw_figure(number).to_svg(title=f"figure-{number}"), (
        f"tslm draw figure-{number} --out …"
    )


def test_the_sentence_is_as_drawn() -> None:
    words = ["the", "cat", "sat", "on", "the", "mat"]
    network = sentence_network(
        torch.ones(16, 16), torch.ones(16, 8), torch.ones(10_000, 16), torch.ones(6, 8)
    )
    stored = (DOCS / "images" / "sentence.svg").read_text(encoding="utf-8")
    assert stored == draw_sentence(network, words).to_svg(title="sentence")


def test_every_picture_and_page_that_is_linked_exists() -> None:
    text = (DOCS / "tensor-space.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) >= 6
    for link in links:
        assert (DOCS / link).is_file(), link
