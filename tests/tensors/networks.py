"""Random networks of every kind, and their value by one plain einsum with every δ built in full."""

from __future__ import annotations

import math

import numpy as np
import torch

from tslm.tensors import Node, TensorNetwork, delta_node, tensor_node

DTYPES = [torch.float64, torch.complex128, torch.float32, torch.complex64, torch.int64]


def draw_network(seed: int, *, most: int = 100_000) -> TensorNetwork:
    """Draw a network: loops, several bonds between two nodes, δ of any order, legs of size 1, scalars, parts apart.

    Args:
        seed: of the draw.
        most: terms of the sum that the plain einsum runs over; larger networks are drawn again.
    """
    numbers = np.random.default_rng(seed)
    while True:
        network = _draw(numbers)
        if math.prod(network.sizes.values()) <= most:
            return network


def _draw(numbers: np.random.Generator) -> TensorNetwork:
    count = int(numbers.integers(1, 9))
    # Equal sizes are what hides a wrong product, so most networks have one size only.
    sizes_allowed = [[2], [2], [3], [1, 2], [1, 2, 3]][numbers.integers(5)]
    is_delta = numbers.random(count) < 0.35
    delta_size = [int(numbers.choice(sizes_allowed)) for _ in range(count)]
    legs: list[list[str]] = [[] for _ in range(count)]
    sizes: dict[str, int] = {}

    def add(holders: list[int]) -> None:
        fixed = {delta_size[i] for i in holders if is_delta[i]}
        if len(fixed) <= 1:
            leg = f"leg{len(sizes)}"
            sizes[leg] = fixed.pop() if fixed else int(numbers.choice(sizes_allowed))
            for holder in holders:
                legs[holder].append(leg)

    for _ in range(int(numbers.integers(0, 3 * count))):
        if count > 1:
            add([int(i) for i in numbers.choice(count, 2, replace=False)])
    for _ in range(int(numbers.integers(0, 4))):
        add([int(numbers.integers(count))])
    nodes: list[Node] = []
    chosen = [DTYPES[i] for i in numbers.choice(5, int(numbers.integers(1, 3)))]
    for i in range(count):
        shape = [sizes[leg] for leg in legs[i]]
        if is_delta[i] and legs[i]:
            nodes.append(delta_node(f"n{i}", delta_size[i], legs[i]))
        else:
            dtype = chosen[numbers.integers(len(chosen))]
            values = 2 * numbers.standard_normal(shape) + 1j * numbers.standard_normal(shape)
            entries = torch.as_tensor(values if dtype.is_complex else values.real).to(dtype)
            nodes.append(tensor_node(f"n{i}", entries, legs[i]))
    return TensorNetwork([nodes[i] for i in numbers.permutation(len(nodes))])


def contract_plainly(network: TensorNetwork, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the value by one einsum over all legs; gradients flow through it."""
    letters = {leg: position for position, leg in enumerate(network.sizes)}
    wanted = dtype or torch.complex128
    arguments: list[object] = []
    for node in network.nodes:
        arguments += [node.to_tensor(wanted).to(wanted), [letters[leg] for leg in node.legs]]
    with torch.backends.opt_einsum.flags(enabled=False):
        return torch.einsum(*arguments, [letters[leg] for leg in network.open_legs])
