"""Tensor networks: their value against quimb, their cost, what they take and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tslm.errors import NumberError, ShapeError
from tslm.tensors import Node, TensorNetwork, delta_node, tensor_node


def chain(words: int, rank: int, embedding: int, vocabulary: int) -> tuple[TensorNetwork, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    W, U, V, alphas = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) / shape[-1] ** 0.5
        for shape in [(rank, rank), (rank, embedding), (vocabulary, rank), (words, embedding)]
    )
    nodes: list[Node] = []
    state = torch.ones(rank, dtype=torch.float64)
    for t in range(words):
        nodes += [
            tensor_node(f"α{t}", alphas[t], [f"m{t}"]),
            tensor_node(f"U{t}", U, [f"u{t}", f"m{t}"]),
            delta_node(f"δ{t}", rank, [*([f"g{t}"] if t else []), f"u{t}", f"h{t}"]),
        ]
        nodes.append(
            tensor_node("V", V, ["y", f"h{t}"])
            if t == words - 1
            else tensor_node(f"W{t}", W, [f"g{t + 1}", f"h{t}"])
        )
        state = (W @ state if t else state) * (U @ alphas[t])
    return TensorNetwork(nodes), V @ state


def test_forty_words_are_contracted_at_the_cost_of_the_recursion() -> None:
    words, rank, embedding, vocabulary = 40, 16, 12, 50
    network, expected = chain(words, rank, embedding, vocabulary)
    torch.testing.assert_close(network.contract(), expected, rtol=1e-12, atol=0)
    by_hand = words * 2 * rank * embedding + (words - 1) * (2 * rank**2 + rank) + 2 * rank * vocabulary
    cost = network.cost()
    assert cost.flops == by_hand
    assert (cost.largest_intermediate, cost.largest_legs) == (vocabulary, ("y",))


def test_contraction_value_against_quimb() -> None:
    quimb = pytest.importorskip("quimb.tensor")
    network, _ = chain(5, 4, 3, 6)
    tensors = [quimb.Tensor(node.to_tensor(torch.float64).numpy(), node.legs) for node in network.nodes]
    expected = quimb.TensorNetwork(tensors).contract(output_inds=network.open_legs)
    np.testing.assert_allclose(network.contract().numpy(), expected.data, rtol=1e-12)


def test_gradients_flow_to_every_node() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randn(2, 3, 3, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )

    def value(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        nodes = [tensor_node("a", a, "ijk"), tensor_node("b", b, "ilm"), delta_node("δ", 3, "jklp")]
        return TensorNetwork(nodes, ["p", "m"]).contract()

    assert torch.autograd.gradcheck(value, (a, b))


def test_structure_is_reported() -> None:
    network = TensorNetwork([tensor_node("A", torch.ones(2, 3), "ij"), tensor_node("v", torch.ones(3), "j")])
    assert network.edges == (("j", "A", "v", 3),)
    assert network.open_legs == ("i",)
    assert network.shape == (2,)
    assert network.parameter_count == 9
    assert network["v"].legs == ("j",)
    assert TensorNetwork(network.nodes, ["i"]).contract().tolist() == [3.0, 3.0]


def test_mixed_dtypes_are_promoted() -> None:
    nodes = [
        tensor_node("A", torch.ones(2, 3), "ij"),
        tensor_node("v", torch.ones(3, dtype=torch.float64), "j"),
    ]
    assert TensorNetwork(nodes).contract().dtype == torch.float64


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.arange(6.0).reshape(2, 3)[::-1, ::-1],
        np.arange(6, dtype=">f8").reshape(2, 3),
        np.arange(6, dtype=np.longdouble).reshape(3, 2).T,
        np.array([[1j, 2, 3], [4, 5, 6]], dtype=np.complex64),
        np.array([[True, False, True], [True, True, False]]),
    ],
)
def test_numpy_arrays_are_taken(array: np.ndarray) -> None:
    vector = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    network = TensorNetwork([tensor_node("A", array, "ij"), tensor_node("v", vector, "j")])
    expected = array.astype(complex if array.dtype.kind == "c" else float) @ vector
    np.testing.assert_allclose(network.contract().numpy(), expected)


def test_truth_values_are_counted() -> None:
    """Three colours on a triangle: six ways."""
    different = ~torch.eye(3, dtype=torch.bool)
    edges = [tensor_node(f"e{i}", different, [f"{i}a", f"{(i + 1) % 3}b"]) for i in range(3)]
    corners = [delta_node(f"c{i}", 3, [f"{i}a", f"{i}b"]) for i in range(3)]
    value = TensorNetwork([*edges, *corners]).contract()
    assert value.dtype == torch.int64
    assert int(value) == 6


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: tensor_node("A", torch.ones(2, 3), ["i"]), ["'A'", "(2×3)", "1 legs"]),
        (lambda: tensor_node("A", torch.ones(2, 2), ["i", "i"]), ["'A'", "two legs named 'i'"]),
        (lambda: tensor_node("A", torch.ones(2, 0), ["i", "j"]), ["'A'", "leg 'j' has size 0"]),
        (lambda: tensor_node("A", np.array(["a", "b"]), ["i"]), ["'A'", "array of <U1", "expected numbers"]),
        (lambda: delta_node("δ", 0, ["i"]), ["'δ'", "size 0"]),
        (lambda: delta_node("δ", 2, ["i", "i"]), ["two legs named 'i'"]),
        (lambda: TensorNetwork([]), ["at least one node"]),
        (
            lambda: TensorNetwork(
                [tensor_node("A", torch.ones(2), "i"), tensor_node("B", torch.ones(3), "i")]
            ),
            ["leg 'i' has size 2 in node 'A' but 3 in node 'B'"],
        ),
        (
            lambda: TensorNetwork([tensor_node(name, torch.ones(2), "i") for name in "ABC"]),
            ["leg 'i'", "'A'", "'B'", "'C'", "δ"],
        ),
        (
            lambda: TensorNetwork(
                [tensor_node("A", torch.ones(2), "i"), tensor_node("A", torch.ones(2), "j")]
            ),
            ["two nodes are named 'A'"],
        ),
        (lambda: TensorNetwork([tensor_node("A", torch.ones(2), "i")], ["k"]), ["['k']", "['i']"]),
        (lambda: TensorNetwork([tensor_node("alpha", torch.ones(2), "i")])["alpa"], ["did you mean 'alpha'"]),
    ],
)
def test_what_cannot_be_joined_is_refused(build, words: list[str]) -> None:
    with pytest.raises(ShapeError) as caught:
        build()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_non_finite_entries_are_refused(bad: float) -> None:
    with pytest.raises(NumberError, match=r"node 'A'.*at \(1,\)"):
        tensor_node("A", torch.tensor([1.0, bad]), "i")
