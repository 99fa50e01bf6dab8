"""Tensor networks and trains to and from quimb (the extra ``quimb``)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import torch

from tslm.errors import ShapeError, UnsupportedError
from tslm.tensors.algebra import read_entries
from tslm.tensors.contraction import tie_deltas
from tslm.tensors.network import Node, TensorNetwork, delta_node, tensor_node
from tslm.tensors.train import TensorTrain


def to_quimb(network: TensorNetwork) -> Any:
    """Return the network as a ``quimb.tensor.TensorNetwork``: legs become indices, names of nodes become tags.

    Example:
        >>> A, v = torch.ones(2, 3), torch.ones(3)
        >>> network = TensorNetwork([tensor_node("A", A, ["i", "j"]), tensor_node("v", v, ["j"])])
        >>> to_quimb(network).contract(output_inds=network.open_legs).data
        tensor([3., 3.])

    A δ-tensor becomes a hyper-index of its own name, shared by all its neighbours; where it has open legs, a single
    neighbour, or two legs to one neighbour, it is written out, with the tag ``δ``. Entries stay torch tensors, so
    gradients flow; those of different dtypes are promoted to one that holds them all.

    Raises:
        UnsupportedError: quimb is not installed.
    """
    quimb = _import_quimb()
    entries = [node.tensor for node in network.nodes if node.tensor is not None]
    dtype = reduce(torch.promote_types, [entry.dtype for entry in entries] or [torch.get_default_dtype()])
    renamed = _name_hyper_indices(network)
    tensors: list[Any] = []
    for node in network.nodes:
        if node.is_delta and all(leg in renamed for leg in node.legs):
            continue
        inds = tuple(renamed.get(leg, leg) for leg in node.legs)
        tags = [node.name, *(["δ"] if node.is_delta else [])]
        tensors.append(quimb.Tensor(data=node.to_tensor(dtype).to(dtype), inds=inds, tags=tags))
    return quimb.TensorNetwork(tensors)


def from_quimb(network: Any, *, output_inds: Sequence[str] | None = None) -> TensorNetwork:
    """Return a quimb network — an MPS, a circuit, a classical partition function — as a ``TensorNetwork``.

    Example:
        >>> import quimb.tensor
        >>> vector = quimb.tensor.Tensor(np.array([3.0, 4.0]), inds=["i"], tags=["v"])
        >>> matrix = quimb.tensor.Tensor(np.eye(2), inds=["i", "j"], tags=["E"])
        >>> from_quimb(vector & matrix).contract()
        tensor([3., 4.], dtype=torch.float64)

    A node is named by the first tag that no other tensor has. An index of more than two tensors, or of one tensor
    twice, becomes a δ-node of that name. The network's ``exponent`` is multiplied in, spread evenly over the tensors.

    Args:
        network: from quimb.
        output_inds: the open legs; needed only where an index of several tensors is open too.

    Raises:
        ShapeError: the network has no tensor, or an index is asked for that it has not.
    """
    tensors = list(network.tensors)
    if not tensors:
        raise ShapeError("the quimb network has no tensor")
    open_legs = tuple(network.outer_inds()) if output_inds is None else tuple(output_inds)
    holders: dict[str, int] = Counter(ind for tensor in tensors for ind in tensor.inds)
    for ind in open_legs:
        if ind not in holders:
            raise ShapeError(f"the quimb network has no index '{ind}'; it has {', '.join(sorted(holders))}")
    names = _name_nodes(tensors)
    twice = {ind for tensor in tensors for ind in tensor.inds if tensor.inds.count(ind) > 1}
    # A leg has one node and is open, or has two nodes and is not; anything else goes through a δ.
    plain = {ind for ind, count in holders.items() if count == (1 if ind in open_legs else 2)} - twice
    used = {*plain, *open_legs}
    legs_of: dict[str, list[str]] = defaultdict(list)
    scale = 10.0 ** (float(network.exponent) / len(tensors))
    nodes: list[Node] = []
    for name, tensor in zip(names, tensors, strict=True):
        legs: list[str] = []
        for ind in tensor.inds:
            leg = ind if ind in plain else _make_unique(f"{ind}:{len(legs_of[ind]) + 1}", used)
            if ind not in plain:
                legs_of[ind].append(leg)
            legs.append(leg)
        # A tensor tagged δ is one of ours that was written out; anybody else's has entries that say otherwise.
        nodes.append(_read_node(name, tensor, legs, scale))
    taken = set(names)
    for ind, legs in legs_of.items():
        size = int(network.ind_size(ind))
        wanted = [*legs, *([ind] if ind in open_legs else [])]
        nodes.append(delta_node(_make_unique(ind, taken), size, wanted))
    return TensorNetwork(nodes, open_legs)


def train_to_quimb(train: TensorTrain) -> Any:
    """Return a tensor train as ``quimb.tensor.MatrixProductState`` of NumPy arrays, with physical indices k0, k1, ….

    Example:
        >>> from tslm.tensors import draw_train
        >>> train = draw_train((2, 2, 2), 2)
        >>> state = train_to_quimb(train)
        >>> np.allclose(state.to_dense().reshape(2, 2, 2), train.to_tensor())
        True

    Raises:
        UnsupportedError: quimb is not installed.
    """
    quimb = _import_quimb()
    cores = [core.detach().to(train.dtype).resolve_conj().cpu().numpy() for core in train.cores]
    if len(cores) == 1:
        return quimb.MatrixProductState([cores[0][0, :, 0]], shape="lpr")
    return quimb.MatrixProductState([cores[0][0], *cores[1:-1], cores[-1][..., 0]], shape="lpr")


def train_from_quimb(state: Any) -> TensorTrain:
    """Return a ``quimb.tensor.MatrixProductState`` as a tensor train, its exponent multiplied in.

    Example:
        >>> import quimb.tensor
        >>> train_from_quimb(quimb.tensor.MPS_rand_state(5, bond_dim=3)).ranks
        (3, 3, 3, 3)

    Raises:
        ShapeError: the state is cyclic, or no matrix product state.
    """
    if not hasattr(state, "sites") or not hasattr(state, "site_ind"):
        raise ShapeError(
            f"a {type(state).__name__} is no matrix product state; use from_quimb for other networks"
        )
    if getattr(state, "cyclic", False):
        raise ShapeError("a cyclic matrix product state is no train; use from_quimb")
    sites = list(state.sites)
    scale = 10.0 ** (float(state.exponent) / len(sites))
    cores: list[torch.Tensor] = []
    for place, site in enumerate(sites):
        tensor, wanted = state[site], [state.site_ind(site)]
        shared = [set(tensor.inds) & set(state[other].inds) for other in sites[max(0, place - 1) : place]]
        later = [set(tensor.inds) & set(state[other].inds) for other in sites[place + 1 : place + 2]]
        before, after = sorted(set().union(*shared)), sorted(set().union(*later))
        data = read_entries(tensor.transpose(*before, *wanted, *after).data, f"site {site}")
        sizes = [math.prod(tensor.ind_size(ind) for ind in group) for group in (before, wanted, after)]
        cores.append(data.reshape(sizes) * scale)
    return TensorTrain(tuple(cores))


def _name_hyper_indices(network: TensorNetwork) -> dict[str, str]:
    """Return the legs that become hyper-indices, and their new names."""
    structure = tuple((node.legs, node.is_delta) for node in network.nodes)
    index = tie_deltas(structure, network.sizes)
    groups: dict[int, list[Node]] = defaultdict(list)
    held: dict[int, list[str]] = defaultdict(list)
    for node in network.nodes:
        for number in {index[leg] for leg in node.legs} if node.is_delta else ():
            groups[number].append(node)
        for leg in () if node.is_delta else node.legs:
            held[index[leg]].append(node.name)
    is_open = {index[leg] for leg in network.open_legs}
    renamed: dict[str, str] = {}
    used = set(network.sizes)
    for number, deltas in groups.items():
        if number not in is_open and len(held[number]) == len(set(held[number])) >= 2:
            name = _make_unique(deltas[0].name, used)
            renamed |= {leg: name for leg, own in index.items() if own == number}
    return renamed


def _name_nodes(tensors: Iterable[Any]) -> list[str]:
    """Return a name for each tensor: the first tag of its own, else its first tag with a number behind it."""
    tags = [list(tensor.tags) for tensor in tensors]
    counts = Counter(tag for held in tags for tag in held)
    taken: set[str] = set()
    names: list[str] = []
    for position, held in enumerate(tags):
        own = next((tag for tag in held if counts[tag] == 1), None)
        names.append(_make_unique(own or (held[0] if held else f"T{position}"), taken))
    return names


def _read_node(name: str, tensor: Any, legs: list[str], scale: float) -> Node:
    """Return a tensor as a node."""
    entries = read_entries(tensor.data, f"tensor '{name}'")
    if "δ" in tensor.tags and len(set(entries.shape)) == 1:
        node = delta_node(name, entries.shape[0], legs)
        if torch.equal(node.to_tensor(entries.dtype).to(entries.device), entries) and scale == 1:
            return node
    return tensor_node(name, entries if scale == 1 else entries * scale, legs)


def _make_unique(name: str, taken: set[str]) -> str:
    """Return a name that is not taken, and take it."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}#{number}"
    taken.add(found)
    return found


def _import_quimb() -> Any:
    """Return ``quimb.tensor``, or say how to get it."""
    try:
        import quimb.tensor
    except ImportError as error:
        raise UnsupportedError("quimb is not installed: pip install 'tslm[quimb]'") from error
    return quimb.tensor
