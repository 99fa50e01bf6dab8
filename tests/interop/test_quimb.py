"""Networks go to quimb and come back with the same value; quimb's own networks are taken as they are."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from tests.tensors.networks import contract_plainly, draw_network

from tslm.errors import ShapeError, UnsupportedError
from tslm.interop.quimb import from_quimb, to_quimb
from tslm.tensors import TensorNetwork, decompose, delta_node, tensor_node

qtn = pytest.importorskip("quimb.tensor")


def value(network: TensorNetwork, legs: tuple[str, ...]) -> torch.Tensor:
    return network.contract().permute([network.open_legs.index(leg) for leg in legs])


def test_there_and_back() -> None:
    tensor = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    network = decompose(tensor).form.to_network()
    theirs = to_quimb(network)  # δ1 has two neighbours: a plain bond
    result = theirs.contract(output_inds=network.open_legs)
    torch.testing.assert_close(torch.as_tensor(result.data), tensor)
    back = from_quimb(theirs)
    assert {node.name for node in back.nodes} == {node.name for node in network.nodes} - {"δ1"}
    torch.testing.assert_close(value(back, network.open_legs), tensor)


def test_a_delta_is_a_hyper_index_there_and_a_delta_again() -> None:
    vectors = [tensor_node(name, torch.rand(3, dtype=torch.float64), [f"{name}l"]) for name in "abcd"]
    network = TensorNetwork(
        [*vectors, delta_node("δ1", 3, ["al", "bl", "j"]), delta_node("δ2", 3, ["j", "cl", "dl"])]
    )
    theirs = to_quimb(network)
    assert len(theirs.tensors) == 4
    assert theirs.ind_size("δ1") == 3
    assert len(theirs.ind_map["δ1"]) == 4  # two δ that touch are one index
    back = from_quimb(theirs)
    assert [node.name for node in back.nodes if node.is_delta] == ["δ1"]
    torch.testing.assert_close(back.contract(), network.contract())


def test_a_delta_that_no_index_can_say_is_written_out_and_found_again() -> None:
    A = torch.rand(3, 3, dtype=torch.float64)
    network = TensorNetwork([tensor_node("A", A, "ab"), delta_node("diagonal", 3, "abc")])
    theirs = to_quimb(network)
    assert "δ" in theirs["diagonal"].tags
    back = from_quimb(theirs)
    assert back["diagonal"].is_delta
    torch.testing.assert_close(back.contract(), A.diagonal())
    alone = TensorNetwork([tensor_node("A", A, "ab"), delta_node("sum", 3, "b")])
    torch.testing.assert_close(from_quimb(to_quimb(alone)).contract(), A.sum(1))


@pytest.mark.parametrize("block", range(3))
def test_random_networks_there_and_back(block: int) -> None:
    for seed in range(5000 + 20 * block, 5020 + 20 * block):
        network = draw_network(seed)
        theirs, expected = to_quimb(network), contract_plainly(network)
        scale = float(expected.abs().max()) or 1.0
        back = value(from_quimb(theirs), network.open_legs)
        torch.testing.assert_close(back.to(expected.dtype) / scale, expected / scale, rtol=0, atol=1e-3)
        if not any(node.tensor is not None and node.tensor.dtype == torch.int64 for node in network.nodes):
            found = theirs.contract(output_inds=network.open_legs, optimize="greedy")
            found = torch.as_tensor(getattr(found, "data", found)).to(expected.dtype)
            torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=1e-3)


def test_mixed_dtypes_are_promoted_and_gradients_flow() -> None:
    a = torch.ones(2, 3, requires_grad=True)
    b = torch.ones(3, dtype=torch.complex128)
    theirs = to_quimb(TensorNetwork([tensor_node("a", a, "ij"), tensor_node("b", b, "j")]))
    assert {tensor.data.dtype for tensor in theirs.tensors} == {torch.complex128}
    theirs.contract().data.real.sum().backward()
    assert a.grad is not None


def test_a_circuit_with_repeated_tags() -> None:
    circuit = qtn.Circuit(3)
    for gate in (("H", 0), ("CX", 0, 1), ("RZ", 0.3, 2), ("CX", 1, 2)):
        circuit.apply_gate(*gate)
    ours = from_quimb(circuit.psi)
    assert len({node.name for node in ours.nodes}) == len(ours.nodes) == len(circuit.psi.tensors)
    state = value(ours, ("k0", "k1", "k2")).numpy().reshape(-1, 1)
    np.testing.assert_allclose(state, circuit.psi.to_dense(), atol=1e-12)


def test_a_matrix_product_state_and_its_exponent() -> None:
    state = qtn.MPS_rand_state(6, 4, seed=0, dtype="complex128")
    dense = state.to_dense().reshape([2] * 6)
    state.multiply_(1e3)
    state.equalize_norms_(1.0)
    assert state.exponent != 0
    legs = tuple(f"k{i}" for i in range(6))
    np.testing.assert_allclose(value(from_quimb(state), legs).numpy(), 1e3 * dense, atol=1e-10)


def test_a_hyper_network_and_an_open_hyper_index() -> None:
    ising = qtn.HTN2D_classical_ising_partition_function(3, 3, beta=0.3)
    ours = from_quimb(ising)
    assert sum(node.is_delta for node in ours.nodes) == 5  # corners have two neighbours: a plain bond
    assert float(ours.contract()) == pytest.approx(float(ising.contract(output_inds=())))
    marginal = from_quimb(ising, output_inds=["s1,1", "s0,0"])
    expected = ising.contract(output_inds=["s1,1", "s0,0"]).data
    np.testing.assert_allclose(marginal.contract().numpy(), expected)
    summed = from_quimb(qtn.TensorNetwork([qtn.Tensor(np.ones((2, 3)), ["a", "b"])]), output_inds=["a"])
    assert summed.contract().tolist() == [3, 3]
    traced = from_quimb(qtn.TensorNetwork([qtn.Tensor(np.eye(4), ["a", "a"])]))
    assert float(traced.contract()) == 4


def test_what_cannot_be_taken() -> None:
    with pytest.raises(ShapeError, match="has no tensor"):
        from_quimb(qtn.TensorNetwork([]))
    with pytest.raises(ShapeError, match="no index 'z'; it has a, b"):
        from_quimb(qtn.TensorNetwork([qtn.Tensor(np.ones((2, 3)), ["a", "b"])]), output_inds=["z"])


def test_without_quimb_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "quimb.tensor", None)
    monkeypatch.setitem(sys.modules, "quimb", None)
    network = decompose(torch.ones(2, 2)).form.to_network()
    with pytest.raises(UnsupportedError, match=r"pip install 'tslm\[quimb\]'"):
        to_quimb(network)
