"""Contraction against plain einsum on hundreds of networks, in values and gradients; and every fault it once had."""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np
import opt_einsum
import pytest
import torch
from tests.tensors.networks import contract_plainly, draw_network

from tslm.errors import SizeLimitError, UnsupportedError
from tslm.tensors import TensorNetwork, delta, delta_node, tensor_node
from tslm.tensors.contraction import MOST_SLICES, _count_flops

BLOCK = 50


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def check(network: TensorNetwork, **options: object) -> None:
    result, expected = network.contract(**options).detach(), contract_plainly(network).detach()
    tolerance = 1e-10 if result.dtype in (torch.float64, torch.complex128, torch.int64) else 2e-4
    scale = float(expected.abs().max()) or 1.0
    torch.testing.assert_close(result.to(expected.dtype) / scale, expected / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("block", range(8))
def test_values_of_four_hundred_networks(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        network = draw_network(seed)
        check(network)
        dtypes = [node.tensor.dtype for node in network.nodes if node.tensor is not None]
        assert not dtypes or network.contract().dtype == reduce(torch.promote_types, dtypes)


@pytest.mark.parametrize("block", range(2))
def test_gradients_of_a_hundred_networks(block: int) -> None:
    for seed in range(1000 + block * BLOCK, 1000 + (block + 1) * BLOCK):
        drawn = draw_network(seed)
        nodes = [
            node
            if node.tensor is None
            else tensor_node(node.name, node.tensor.to(torch.complex128).requires_grad_(), node.legs)
            for node in drawn.nodes
        ]
        leaves = [node.tensor for node in nodes if node.tensor is not None]
        network = TensorNetwork(nodes, drawn.open_legs)
        if not leaves:
            continue
        ours = torch.autograd.grad(network.contract().abs().square().sum(), leaves)
        plain = torch.autograd.grad(contract_plainly(network).abs().square().sum(), leaves)
        for one, other in zip(ours, plain, strict=True):
            scale = float(other.abs().max()) or 1.0
            torch.testing.assert_close(one / scale, other / scale, rtol=0, atol=1e-10)


def test_slices_add_up_on_eighty_networks() -> None:
    sliced = 0
    for seed in range(2000, 2080):
        network = draw_network(seed)
        whole = network.contract()
        limit = whole.element_size() * whole.numel()  # room for the result and for nothing larger
        check(network, memory_limit=limit)
        sliced += network.cost(memory_limit=limit).slices > 1
    assert sliced > 10


def test_the_order_of_nodes_does_not_matter() -> None:
    numbers = np.random.default_rng(0)
    for seed in range(4000, 4030):
        network = draw_network(seed)
        nodes = [network.nodes[i] for i in numbers.permutation(len(network.nodes))]
        check(TensorNetwork(nodes, network.open_legs))


def test_paths_are_counted_as_opt_einsum_counts_them() -> None:
    for terms, path in [
        ("ab,bc,cd,da->", [(0, 1), (0, 1), (0, 1)]),
        ("ab,bc,b->abc", [(0, 2), (0, 1)]),
        ("ab,ac,ad,ae->bcde", [(0, 3), (0, 1, 2)]),
        ("a,b,c->ac", [(1,), (0, 2), (0, 1)]),
    ]:
        inputs, output = terms.split("->")
        operands = [tuple(map(ord, term)) for term in inputs.split(",")]
        sizes = {ord(letter): 2 + place for place, letter in enumerate("abcde")}
        shapes = [tuple(sizes[number] for number in operand) for operand in operands]
        _, info = opt_einsum.contract_path(terms, *shapes, shapes=True, optimize=path)
        assert _count_flops(operands, tuple(map(ord, output)), sizes, path) == info.opt_cost


def test_a_batched_matrix_product_of_equal_sizes() -> None:
    """Wrong once: operands and result of one shape were taken for an element-wise product."""
    A, B = draw(2, 2, 2, seed=1), draw(2, 2, 2, seed=2)
    network = TensorNetwork(
        [tensor_node("A", A, "aik"), tensor_node("B", B, "ckj"), delta_node("δ", 2, "acb")], ["b", "i", "j"]
    )
    torch.testing.assert_close(network.contract(), A @ B)
    leaves = A.requires_grad_(), B.requires_grad_()
    grown = TensorNetwork(
        [tensor_node("A", A, "aik"), tensor_node("B", B, "ckj"), delta_node("δ", 2, "acb")], ["b", "i", "j"]
    )
    ours = torch.autograd.grad(grown.contract().square().sum(), leaves)
    expected = torch.autograd.grad((A @ B).square().sum(), leaves)
    torch.testing.assert_close(ours, expected)


def graphical_model(edges: list[tuple[int, int]], sites: int, q: int, seed: int) -> TensorNetwork:
    """δ on every site, a random q×q matrix on every edge, nothing open."""
    legs: list[list[str]] = [[] for _ in range(sites)]
    nodes = []
    for number, (one, other) in enumerate(edges):
        pair = [f"s{one}e{number}", f"s{other}e{number}"]
        legs[one].append(pair[0])
        legs[other].append(pair[1])
        nodes.append(tensor_node(f"e{number}", draw(q, q, seed=seed + number), pair))
    return TensorNetwork([*nodes, *[delta_node(f"s{i}", q, held) for i, held in enumerate(legs) if held]])


def sum_over_states(network: TensorNetwork, edges: list[tuple[int, int]], sites: int, q: int) -> float:
    """The partition function by its definition: every state of every site."""
    matrices = [network[f"e{number}"].tensor for number in range(len(edges))]
    states = torch.tensor(list(itertools.product(range(q), repeat=sites)))
    weights = torch.ones(len(states), dtype=torch.float64)
    for (one, other), matrix in zip(edges, matrices, strict=True):
        weights *= matrix[states[:, one], states[:, other]]
    return float(weights.sum())


@pytest.mark.parametrize("q", [2, 3])
def test_graphical_models_with_loops(q: int) -> None:
    """Nine of eighty were wrong once."""
    numbers = np.random.default_rng(q)
    for seed in range(40):
        sites = int(numbers.integers(3, 7))
        pairs = list(itertools.combinations(range(sites), 2))
        edges = [pairs[i] for i in numbers.choice(len(pairs), min(len(pairs), sites + 2), replace=True)]
        used = sorted({site for edge in edges for site in edge})
        edges = [(used.index(one), used.index(other)) for one, other in edges]
        network = graphical_model(edges, len(used), q, 100 * seed)
        expected = sum_over_states(network, edges, len(used), q)
        assert float(network.contract()) == pytest.approx(expected, rel=1e-10, abs=1e-9)


@pytest.mark.parametrize(("rows", "columns", "q"), [(2, 2, 2), (3, 3, 2), (3, 4, 2), (2, 4, 3), (3, 3, 3)])
def test_grids_with_random_bond_matrices(rows: int, columns: int, q: int) -> None:
    """Four of eighteen were wrong once."""
    sites = {(i, j): i * columns + j for i in range(rows) for j in range(columns)}
    edges = [
        (site, sites[step])
        for (i, j), site in sites.items()
        for step in ((i + 1, j), (i, j + 1))
        if step in sites
    ]
    for seed in range(4):
        network = graphical_model(edges, len(sites), q, 1000 * seed)
        expected = sum_over_states(network, edges, len(sites), q)
        assert float(network.contract()) == pytest.approx(expected, rel=1e-10)


def test_names_of_legs_are_free() -> None:
    """A leg named like the private name of another's twin was taken for it."""
    nodes = [
        tensor_node("v", draw(3), ["a"]),
        delta_node("δ", 3, ["a", "b", "b*"]),
        tensor_node("w", draw(2), ["a*"]),
    ]
    network = TensorNetwork(nodes)
    assert network.open_legs == ("b", "b*", "a*")
    check(network)
    assert TensorNetwork(nodes[:2]).cost().largest_legs == ("b", "b*")


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 3])
def test_a_lone_delta_is_itself(order: int, size: int) -> None:
    legs = [f"l{i}" for i in range(order)]
    assert torch.equal(TensorNetwork([delta_node("δ", size, legs)]).contract(), delta(order, size))


def test_scalars_and_legs_of_size_one() -> None:
    nodes = [
        tensor_node("two", torch.tensor(2.0), []),
        tensor_node("three", torch.full((1, 1), 3.0), ["a", "b"]),
        tensor_node("five", torch.full((1,), 5.0), ["b"]),
    ]
    assert torch.equal(TensorNetwork(nodes).contract(), torch.tensor([30.0]))
    assert torch.equal(TensorNetwork(nodes[:1]).contract(), torch.tensor(2.0))
    assert torch.equal(
        TensorNetwork([delta_node("δ", 1, "ab"), delta_node("ε", 1, "ab")]).contract(), torch.tensor(1.0)
    )


def ring(length: int, size: int) -> TensorNetwork:
    """The trace of a product of matrices, which is one number however large the intermediates."""
    return TensorNetwork(
        [
            tensor_node(f"M{i}", draw(size, size, seed=i).requires_grad_(), [f"a{i}", f"a{(i + 1) % length}"])
            for i in range(length)
        ]
    )


def test_slicing_keeps_value_gradient_and_limit() -> None:
    network = ring(6, 12)
    leaves = [node.tensor for node in network.nodes]
    whole, limit = network.contract(), 12 * 8
    assert network.cost().largest_intermediate == 144
    cost = network.cost(memory_limit=limit)
    assert cost.slices == 12
    assert cost.largest_intermediate <= 12
    sliced = network.contract(memory_limit=limit)
    torch.testing.assert_close(sliced, whole)
    torch.testing.assert_close(torch.autograd.grad(sliced, leaves), torch.autograd.grad(whole, leaves))


def test_what_slicing_cannot_reach_is_refused_before_it_is_made() -> None:
    network = TensorNetwork([tensor_node("a", torch.ones(300), "i"), tensor_node("b", torch.ones(400), "j")])
    assert network.cost().largest_intermediate == 120_000
    with pytest.raises(
        SizeLimitError, match=r"i \(300\) × j \(400\): 468.8 KiB, above the limit of 97.7 KiB"
    ):
        network.contract(memory_limit=100_000)
    with pytest.raises(SizeLimitError, match="above the limit of 8 bytes"):
        ring(8, 300).contract(memory_limit=8)
    assert MOST_SLICES < 300**4


@pytest.mark.parametrize("search", ["greedy", "optimal", "dp", "auto-hq", "random-greedy"])
def test_other_searches_of_opt_einsum(search: str) -> None:
    check(ring(5, 3), search=search)
    assert ring(5, 3).cost(search=search).flops > 0


def test_cotengra_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cotengra")
    check(ring(5, 3), search="cotengra")
    for seed in range(3000, 3010):
        check(draw_network(seed), search="cotengra")


def test_unknown_searches_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="no path search 'gredy'; did you mean 'greedy'"):
        ring(3, 2).contract(search="gredy")
    monkeypatch.setitem(__import__("sys").modules, "cotengra", None)
    with pytest.raises(UnsupportedError, match="cotengra is not installed"):
        ring(4, 2).contract(search="cotengra")
