"""The paper's figures: every panel holds, every picture is clean."""

from __future__ import annotations

import pytest
import torch

from tslm.drawing.figures import Panel, draw_figure, figure_1, figure_2, figure_3
from tslm.drawing.picture import Disc, Text, Triangle, find_overlaps
from tslm.drawing.sentence import draw_sentence, view_sentence
from tslm.errors import NumberError, ShapeError
from tslm.tensors import decompose, recursive_logits
from tslm.tensors.sentence import sentence_network, sentence_outline

PANELS = [*figure_1(), *figure_2(), *figure_3()]


@pytest.mark.parametrize("panel", [panel for panel in PANELS if panel.joined], ids=lambda panel: panel.title)
def test_both_sides_of_every_panel_are_equal(panel: Panel) -> None:
    values = [view.network.contract() for view in panel.views]
    for value in values[1:]:
        torch.testing.assert_close(value, values[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_a_letter_has_one_meaning_in_a_panel(panel: Panel) -> None:
    sizes: dict[str, str] = {}
    tensors: dict[str, torch.Tensor] = {}
    for view in panel.views:
        for shape in view.draw().shapes:
            if isinstance(shape, Text) and "=" in shape.content:
                letter, size = shape.content.split("=")
                assert sizes.setdefault(letter, size) == size
        for node in view.network.nodes:
            label = view.places[node.name].label or node.name
            if node.tensor is not None:
                assert torch.equal(tensors.setdefault(label, node.tensor), node.tensor)
    assert not set(sizes) & set(tensors)


def test_figure_3_is_about_one_time() -> None:
    assert not any("ₜ" in panel.title for panel in figure_3())
    labels = {place.label for panel in figure_3() for view in panel.views for place in view.places.values()}
    assert {"T₍₄₎", "S₍₃₎", "h₃", "h₂", "α₃"} <= labels


@pytest.mark.parametrize("number", [1, 2, 3])
def test_figures_have_no_overlaps_and_read_well_at_800_pixels(number: int) -> None:
    picture = draw_figure(number)
    assert find_overlaps(picture) == []
    sizes = [shape.size for shape in picture.shapes if isinstance(shape, Text)]
    assert min(sizes) * min(1.0, 800 / picture.size[0]) >= 9


def test_figure_1_shows_the_five_kinds_of_the_notation() -> None:
    panels = figure_1()
    orders = [len(view.network.open_legs) for view in panels[0].views]
    assert orders == [1, 2, 3, 4]
    assert panels[0].views[2].network.nodes[0].is_delta
    assert panels[-1].views[0].network.open_legs == ()


def test_figure_2_of_a_decomposition_of_ones_own() -> None:
    form = decompose(
        torch.rand(4, 4, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    ).form
    panels = figure_2(form)
    torch.testing.assert_close(panels[2].views[1].network.contract(), form.to_tensor())
    uneven = figure_2(decompose(torch.rand(2, 3, 4, dtype=torch.float64)).form)
    assert uneven[0].views[0].leg_labels == {"d1": "m₁=2", "d2": "m₂=3", "d3": "m₃=4"}
    with pytest.raises(ShapeError, match="order 3, not 2"):
        figure_2(decompose(torch.ones(2, 2)).form)
    with pytest.raises(ShapeError, match="no tensor-network Figure 4"):
        draw_figure(4)


@pytest.mark.parametrize("count", [1, 2, 4, 5, 12])
def test_a_sentence_is_the_recursion_and_fits_the_page(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    W, U, V, alphas = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in [(4, 4), (4, 3), (7, 4), (count, 3)]
    )
    network = sentence_network(W, U, V, alphas)
    torch.testing.assert_close(
        network.contract(), recursive_logits(W, U, V, alphas)[-1], rtol=1e-10, atol=1e-10
    )
    picture = draw_sentence(network, ["extraordinarily"] * count)
    assert find_overlaps(picture) == []
    assert sum(isinstance(shape, Triangle) for shape in picture.shapes) == count
    assert sum(isinstance(shape, Disc) for shape in picture.shapes) == 3 * count
    assert picture.size[0] < 1100
    assert view_sentence(network).leg_labels["y"] == "vocabulary=7"


def test_sentences_that_do_not_fit() -> None:
    W, U, V = torch.ones(2, 2), torch.ones(2, 3), torch.ones(4, 2)
    with pytest.raises(ShapeError, match="at least one word"):
        sentence_network(W, U, V, torch.ones(0, 3))
    with pytest.raises(ShapeError, match="2 words for a network of 1"):
        draw_sentence(sentence_network(W, U, V, torch.ones(1, 3)), ["a", "b"])


def test_an_outline_has_the_cost_and_the_picture_of_the_network() -> None:
    numbers = torch.Generator().manual_seed(0)
    weights = [torch.randn(shape, generator=numbers) for shape in [(4, 4), (4, 3), (9, 4), (5, 3)]]
    network = sentence_network(*weights)
    outline = sentence_outline(5, rank=4, embedding=3, vocabulary=9)
    assert outline.cost() == network.cost()
    words = ["a", "b", "c", "d", "e"]
    assert draw_sentence(outline, words).to_svg() == draw_sentence(network, words).to_svg()
    assert outline.contract().shape == network.contract().shape
    with pytest.raises(NumberError, match="rank 0; expected from 1"):
        sentence_outline(5, rank=0, embedding=3, vocabulary=9)
