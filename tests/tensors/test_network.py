"""Tensor networks against numpy.einsum and quimb, their cost, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tslm.errors import NumberError, ShapeError, SizeLimitError
from tslm.tensors import Node, TensorNetwork, delta, delta_node, tensor_node


def random_network(seed: int, count: int) -> TensorNetwork:
    """A random connected network with δ-nodes, parallel bonds and open legs."""
    numbers = np.random.default_rng(seed)
    legs: list[list[str]] = [[] for _ in range(count)]
    sizes: dict[str, int] = {}
    is_delta = [False] + [bool(numbers.random() < 0.25) for _ in range(count - 1)]
    bond = {i: int(numbers.integers(1, 4)) for i in range(count)}

    def join(i: int, j: int, leg: str) -> None:
        size = bond[i] if is_delta[i] else bond[j] if is_delta[j] else int(numbers.integers(1, 4))
        if is_delta[i] and is_delta[j] and bond[i] != bond[j]:
            return
        legs[i].append(leg)
        legs[j].append(leg)
        sizes[leg] = size

    for i in range(1, count):
        join(i, int(numbers.integers(0, i)), f"e{i}")
    for extra in range(int(numbers.integers(0, count))):
        i, j = numbers.choice(count, 2, replace=False)
        join(int(i), int(j), f"x{extra}")
    for i in range(count):
        for open_leg in range(int(numbers.integers(0, 2)) + (not legs[i])):
            leg = f"o{i}{open_leg}"
            legs[i].append(leg)
            sizes[leg] = bond[i]
    nodes: list[Node] = []
    for i in range(count):
        if is_delta[i]:
            nodes.append(delta_node(f"n{i}", bond[i], legs[i]))
        else:
            entries = torch.from_numpy(numbers.standard_normal([sizes[leg] for leg in legs[i]]))
            nodes.append(tensor_node(f"n{i}", entries, legs[i]))
    return TensorNetwork(nodes)


def contract_densely(network: TensorNetwork) -> np.ndarray:
    """Every δ built in full, one numpy.einsum."""
    letters = {leg: position for position, leg in enumerate(network.sizes)}
    arguments: list[object] = []
    for node in network.nodes:
        arguments += [node.to_tensor(torch.float64).detach().numpy(), [letters[leg] for leg in node.legs]]
    return np.einsum(*arguments, [letters[leg] for leg in network.open_legs])


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 6))
def test_contraction_against_einsum_with_dense_deltas(seed: int, count: int) -> None:
    network = random_network(seed, count)
    expected = contract_densely(network)
    result = network.contract()
    assert result.shape == network.shape == expected.shape
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-11, atol=1e-11)


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.permutations(range(5)))
def test_contraction_does_not_depend_on_the_order_of_nodes(seed: int, order: list[int]) -> None:
    network = random_network(seed, 5)
    shuffled = TensorNetwork([network.nodes[i] for i in order], network.open_legs)
    torch.testing.assert_close(network.contract(), shuffled.contract(), rtol=1e-11, atol=1e-11)


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


@pytest.mark.parametrize("order", [2, 3])
def test_a_lone_delta_is_itself(order: int) -> None:
    legs = [f"l{i}" for i in range(order)]
    assert torch.equal(TensorNetwork([delta_node("δ", 3, legs)]).contract(), delta(order, 3))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: tensor_node("A", torch.ones(2, 3), ["i"]), ["'A'", "(2×3)", "1 legs"]),
        (lambda: tensor_node("A", torch.ones(2, 2), ["i", "i"]), ["'A'", "two legs named 'i'"]),
        (lambda: tensor_node("A", torch.ones(2, 0), ["i", "j"]), ["'A'", "leg 'j' has size 0"]),
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


def test_an_intermediate_above_the_limit_is_refused_before_it_is_made() -> None:
    network = TensorNetwork([tensor_node("a", torch.ones(300), "i"), tensor_node("b", torch.ones(400), "j")])
    assert network.cost().largest_intermediate == 120_000
    with pytest.raises(
        SizeLimitError, match=r"i \(300\) × j \(400\): 468.8 KiB, above the limit of 97.7 KiB"
    ):
        network.contract(memory_limit=100_000)
