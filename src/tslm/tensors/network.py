"""Tensor networks: nodes with named legs, edges where two nodes share a leg, and their exact contraction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from tslm.errors import ShapeError, SizeLimitError, nearest
from tslm.tensors.algebra import check_finite, delta, read_entries, show, show_bytes
from tslm.tensors.contraction import Plan, Structure, make_plan, run_plan

MEMORY_LIMIT = 4 * 2**30
"""Bytes that one intermediate tensor of a contraction may take unless the caller says otherwise."""


@dataclass(frozen=True)
class Node:
    """A tensor with a name and one named leg per mode.

    A δ-tensor is stored by order and size alone (``delta_node``): contraction never builds its entries.
    """

    name: str
    legs: tuple[str, ...]
    tensor: Tensor | None
    """The entries, or None for a δ-tensor."""
    sizes: tuple[int, ...]
    """The size of each leg."""

    @property
    def is_delta(self) -> bool:
        """Whether this is a δ-tensor, drawn as a triangle."""
        return self.tensor is None

    def to_tensor(self, dtype: torch.dtype | None = None) -> Shaped[Tensor, "..."]:
        """Return the entries, building them for a δ-tensor."""
        return delta(len(self.legs), self.sizes[0], dtype=dtype) if self.tensor is None else self.tensor


def tensor_node(name: str, tensor: Shaped[Tensor | np.ndarray, "..."], legs: Sequence[str]) -> Node:
    """Return a node that holds ``tensor``, one leg per mode.

    NumPy arrays become tensors, truth values whole numbers: a network of constraints counts its solutions.

    Raises:
        ShapeError: the legs are not one per mode, a name occurs twice, a leg has size 0, or the entries are no numbers.
        NumberError: an entry is NaN or infinite.
    """
    tensor = read_entries(tensor, f"node '{name}'")
    if len(legs) != tensor.ndim:
        raise ShapeError(
            f"node '{name}': {len(legs)} legs {list(legs)} for a tensor {show(tensor)} of order {tensor.ndim}"
        )
    _check_legs(name, legs)
    for leg, size in zip(legs, tensor.shape, strict=True):
        if size == 0:
            raise ShapeError(f"node '{name}': leg '{leg}' has size 0 in {show(tensor)}; expected at least 1")
    check_finite(tensor, f"node '{name}'")
    return Node(name, tuple(legs), tensor, tuple(tensor.shape))


def delta_node(name: str, size: int, legs: Sequence[str]) -> Node:
    """Return a δ-tensor (Eq. 3) of the given size on the given legs.

    Raises:
        ShapeError: there are no legs, a name occurs twice, or the size is below 1.
    """
    if size < 1 or not legs:
        raise ShapeError(
            f"δ-node '{name}': size {size} on legs {list(legs)}; expected size ≥ 1 and at least one leg"
        )
    _check_legs(name, legs)
    return Node(name, tuple(legs), None, (size,) * len(legs))


@dataclass(frozen=True)
class ContractionCost:
    """What a contraction will cost, known before it runs."""

    flops: int
    """Multiplications and additions."""
    largest_intermediate: int
    """Entries of the largest tensor made on the way, the result included."""
    largest_legs: tuple[str, ...]
    """Legs of that tensor."""
    steps: int
    """Pairwise contractions."""
    slices: int = 1
    """How often they are done, each time for one value of the sliced indices; ``flops`` counts all of them."""


@dataclass(frozen=True)
class TensorNetwork:
    """Nodes joined where they share the name of a leg; legs that only one node has are open.

    Example:
        >>> A, v = torch.rand(2, 3), torch.rand(3)
        >>> network = TensorNetwork([tensor_node("A", A, ["i", "j"]), tensor_node("v", v, ["j"])])
        >>> network.open_legs, torch.allclose(network.contract(), A @ v)
        (('i',), True)
    """

    nodes: tuple[Node, ...]
    open_legs: tuple[str, ...]
    """Open legs in the order of the modes of the result: as they appear in the nodes, unless given."""
    sizes: Mapping[str, int] = field(repr=False)
    """Size of every leg."""

    def __init__(self, nodes: Iterable[Node], open_legs: Sequence[str] | None = None) -> None:
        all_nodes = tuple(nodes)
        owners = _find_owners(all_nodes)
        found = tuple(leg for leg, holders in owners.items() if len(holders) == 1)
        if open_legs is not None and sorted(open_legs) != sorted(found):
            odd = sorted(set(open_legs) ^ set(found)) or sorted(open_legs)
            raise ShapeError(
                f"open legs {list(open_legs)} were asked for, the network has {list(found)}: see {odd}"
            )
        object.__setattr__(self, "nodes", all_nodes)
        object.__setattr__(self, "open_legs", found if open_legs is None else tuple(open_legs))
        sizes = {leg: size for node in all_nodes for leg, size in zip(node.legs, node.sizes, strict=True)}
        object.__setattr__(self, "sizes", sizes)

    @property
    def edges(self) -> tuple[tuple[str, str, str, int], ...]:
        """Contracted legs as (leg, node, node, size)."""
        owners = _find_owners(self.nodes)
        return tuple(
            (leg, held[0], held[1], self.sizes[leg]) for leg, held in owners.items() if len(held) == 2
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor the whole network stands for."""
        return tuple(self.sizes[leg] for leg in self.open_legs)

    @property
    def parameter_count(self) -> int:
        """Numbers stored in all nodes; a δ-tensor stores none."""
        return sum(node.tensor.numel() for node in self.nodes if node.tensor is not None)

    def __getitem__(self, name: str) -> Node:
        """Return the node of that name."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise ShapeError(
            f"no node '{name}' in the network: {nearest(name, [node.name for node in self.nodes])}"
        )

    def cost(self, *, search: str = "auto", memory_limit: int | None = None) -> ContractionCost:
        """Return the cost of ``contract`` without contracting; without a ``memory_limit`` nothing is sliced."""
        plan = self._plan(search, memory_limit)
        return ContractionCost(
            plan.flops,
            plan.largest_intermediate,
            plan.largest_legs,
            len(plan.steps),
            math.prod(plan.slice_sizes),
        )

    def contract(self, *, search: str = "auto", memory_limit: int = MEMORY_LIMIT) -> Shaped[Tensor, "..."]:
        """Contract all edges exactly and return the tensor of the open legs, differentiable in every node.

        δ-tensors only tie indices together and cost nothing. An intermediate tensor above the memory limit is avoided
        by running through the values of some summed indices one by one, at the price of more multiplications.

        Args:
            search: who looks for the order of the products: ``auto``, another search of opt_einsum
                (``auto-hq``, ``optimal``, ``dp``, ``random-greedy`` …), or ``cotengra``, where it is installed.
            memory_limit: the most bytes that one intermediate tensor may take.

        Raises:
            SizeLimitError: an intermediate must be larger; the message names its legs and its size.
            UnsupportedError: the search is unknown.
        """
        plan, (tensors, dtype) = self._plan(search, memory_limit), self._operands
        needed = plan.largest_intermediate * dtype.itemsize
        if needed > memory_limit:
            legs = " × ".join(f"{leg} ({self.sizes[leg]})" for leg in plan.largest_legs)
            raise SizeLimitError(
                f"the contraction needs an intermediate of legs {legs}: {show_bytes(needed)}, above the limit of "
                f"{show_bytes(memory_limit)}; cut bonds, or raise memory_limit"
            )
        return run_plan(plan, tensors, dtype)

    @cached_property
    def _operands(self) -> tuple[list[Tensor], torch.dtype]:
        """The tensors of all nodes but δ, and the dtype that holds them all."""
        tensors = [node.tensor for node in self.nodes if node.tensor is not None]
        dtypes = [tensor.dtype for tensor in tensors] or [torch.get_default_dtype()]
        return tensors, reduce(torch.promote_types, dtypes)

    def _plan(self, search: str, memory_limit: int | None) -> Plan:
        """Return the plan for this structure; plans are kept, so equal structures are planned once."""
        most = None if memory_limit is None else memory_limit // self._operands[1].itemsize
        if (search, most) not in self._plans:
            plan = make_plan(*self._structure, search, None)
            if most is not None and plan.largest_intermediate > most:
                plan = make_plan(*self._structure, search, most)
            self._plans[search, most] = plan
        return self._plans[search, most]

    @cached_property
    def _plans(self) -> dict[tuple[str, int | None], Plan]:
        """Those asked for so far."""
        return {}

    @cached_property
    def _structure(self) -> tuple[Structure, tuple[str, ...], tuple[tuple[str, int], ...]]:
        """All that a plan depends on."""
        nodes = tuple((node.legs, node.is_delta) for node in self.nodes)
        return nodes, self.open_legs, tuple(self.sizes.items())


def _check_legs(name: str, legs: Sequence[str]) -> None:
    """Refuse a name that occurs twice among the legs of one node."""
    for position, leg in enumerate(legs):
        if leg in legs[:position]:
            raise ShapeError(
                f"node '{name}' has two legs named '{leg}' in {list(legs)}; name them apart and join them by a δ"
            )


def _find_owners(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Return the nodes that hold each leg, refusing what cannot be joined."""
    if not nodes:
        raise ShapeError("a tensor network needs at least one node")
    owners: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    names: set[str] = set()
    for node in nodes:
        if node.name in names:
            raise ShapeError(f"two nodes are named '{node.name}'; names of nodes must differ")
        names.add(node.name)
        for leg, size in zip(node.legs, node.sizes, strict=True):
            holders = owners.setdefault(leg, [])
            if holders and sizes[leg] != size:
                raise ShapeError(
                    f"leg '{leg}' has size {sizes[leg]} in node '{holders[0]}' but {size} in node '{node.name}'"
                )
            if len(holders) == 2:
                raise ShapeError(
                    f"leg '{leg}' joins '{holders[0]}' and '{holders[1]}' and also '{node.name}'; "
                    f"join three with a δ-node"
                )
            holders.append(node.name)
            sizes[leg] = size
    return owners
