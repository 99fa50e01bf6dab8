"""Diagrams: everything is drawn, nothing lies on anything else."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch

from tslm.drawing.diagram import Place, draw_network, place_nodes, render_png, save_diagram
from tslm.drawing.picture import Disc, Line, Picture, Text, Triangle, find_overlaps
from tslm.errors import ShapeError, UnsupportedError
from tslm.tensors import TensorNetwork, decompose, decompose_train, delta_node, tensor_node

SVG = "{http://www.w3.org/2000/svg}"


def ring(count: int) -> TensorNetwork:
    nodes = [
        tensor_node(f"n{k}", torch.ones(2, 2, 3), [f"r{k}", f"r{(k + 1) % count}", f"o{k}"])
        for k in range(count)
    ]
    return TensorNetwork(nodes)


@pytest.mark.parametrize(
    "network",
    [
        TensorNetwork([tensor_node("v", torch.ones(3), "i")]),
        TensorNetwork([tensor_node("A", torch.ones(2, 3), "ij"), tensor_node("v", torch.ones(3), "j")]),
        TensorNetwork([tensor_node("A", torch.ones(2, 3), "ij"), tensor_node("B", torch.ones(2, 3), "ij")]),
        TensorNetwork([tensor_node("A", torch.ones(2), "i"), tensor_node("B", torch.ones(2), "j")]),
        TensorNetwork(
            [delta_node("δ", 3, "ijkl"), *[tensor_node(leg.upper(), torch.ones(3), leg) for leg in "ijk"]]
        ),
        ring(3),
        ring(6),
        decompose_train(torch.rand(3, 3, 3, 3, 3)).form.to_network(),
        decompose(torch.rand(3, 4, 5, 3)).form.to_network(),
    ],
    ids=["vector", "product", "double", "apart", "star", "ring-3", "ring-6", "train", "recursive"],
)
def test_any_network_is_drawn_whole_and_without_overlap(network: TensorNetwork) -> None:
    picture = draw_network(network)
    assert find_overlaps(picture) == []
    nodes = [shape for shape in picture.shapes if isinstance(shape, Disc | Triangle)]
    assert {shape.name: isinstance(shape, Triangle) for shape in nodes} == {
        node.name: node.is_delta for node in network.nodes
    }
    lines = [shape for shape in picture.shapes if isinstance(shape, Line)]
    assert sum(line.dashed for line in lines) == len(network.edges)
    assert sum(not line.dashed for line in lines) == len(network.open_legs)
    texts = {shape.content for shape in picture.shapes if isinstance(shape, Text)}
    assert texts == {f"{leg}={size}" for leg, size in network.sizes.items()}


def test_places_are_always_the_same() -> None:
    assert place_nodes(ring(5)) == place_nodes(ring(5))


def test_svg_is_well_formed_and_escaped() -> None:
    network = TensorNetwork([tensor_node("a<b&", torch.ones(2), ["<leg>"])])
    root = ET.fromstring(draw_network(network).to_svg(title="a & b"))  # noqa: S314 - our own text
    assert root.findtext(f"{SVG}title") == "a & b"
    assert [text.text for text in root.iter(f"{SVG}text")] == ["a<b&", "<leg>=2"]
    assert len(list(root.iter(f"{SVG}circle"))) == 1


def test_overlaps_are_found() -> None:
    network = TensorNetwork(
        [
            tensor_node("A", torch.ones(2, 2), "ij"),
            tensor_node("B", torch.ones(2), "i"),
            tensor_node("C", torch.ones(2), "j"),
        ]
    )
    on_top = draw_network(network, places={"A": Place(0, 0), "B": Place(0.1, 0), "C": Place(2, 0)})
    assert any("'B' on node 'A'" in found for found in find_overlaps(on_top))
    through = draw_network(network, places={"A": Place(0, 0), "B": Place(1, 0), "C": Place(2, 0)})
    assert any("through node 'B'" in found for found in find_overlaps(through))
    assert find_overlaps(Picture((Text(0, 0, "one"), Text(3, 2, "two")))) == ["text 'two' on text 'one'"]


def test_files(tmp_path: Path) -> None:
    picture = draw_network(ring(3))
    save_diagram(picture, tmp_path / "ring.svg")
    assert (tmp_path / "ring.svg").read_text(encoding="utf-8").startswith("<svg")
    save_diagram(picture, tmp_path / "ring.png", width=320)
    data = (tmp_path / "ring.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") == 320
    with pytest.raises(UnsupportedError, match=r"ring.pdf.*\.svg or \.png"):
        save_diagram(picture, tmp_path / "ring.pdf")


def test_png_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UnsupportedError, match=r"tslm\[png\]"):
        render_png("<svg/>", 100)


def test_a_node_without_a_place() -> None:
    with pytest.raises(ShapeError, match="node 'n1'"):
        draw_network(ring(3), places={"n0": Place(0, 0)})
