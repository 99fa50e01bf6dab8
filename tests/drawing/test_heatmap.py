from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from tslm.drawing.heatmap import COLD, WARM, heat_svg, heat_tables, shade

WORDS = ["the", "<script>", "&", "<eos>"]
MATRIX = np.triu(np.arange(16.0).reshape(4, 4) - 7, 1)


def test_svg_is_well_formed_and_escapes_words() -> None:
    svg = heat_svg(WORDS, MATRIX, "effects of <b>")
    root = ElementTree.fromstring(svg)  # noqa: S314
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "<script>" in texts
    assert "<script>" not in svg
    assert f"{MATRIX[0, 1]:+.2f}" in texts
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) == 1 + 6


def test_colours_say_sign_and_strength() -> None:
    assert shade(0.0, 5.0) == "#ffffff"
    assert shade(5.0, 5.0) == "#{:02x}{:02x}{:02x}".format(*WARM)
    assert shade(-5.0, 5.0) == "#{:02x}{:02x}{:02x}".format(*COLD)
    assert shade(1.0, 0.0) == "#ffffff"


@pytest.mark.parametrize("width", [20, 28, 80])
def test_terminal_shows_every_effect_behind_its_word_however_narrow(width) -> None:
    console = Console(width=width, record=True, file=None)
    with console.capture() as capture:
        for table in heat_tables(WORDS, MATRIX, width):
            console.print(table)
    shown = capture.get()
    assert "<script>" in shown
    assert "…" not in shown
    assert all(len(line.rstrip()) <= width for line in shown.splitlines())
    for row in range(4):
        for column in range(row + 1, 4):
            assert f"{MATRIX[row, column]:+.2f}" in shown
