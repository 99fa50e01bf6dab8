"""How a tensor network is contracted: as one einsum, planned by opt_einsum.

A δ-tensor makes all its legs one index, shared by any number of neighbours, so a network *is* an einsum. opt_einsum
finds an order of pairwise products and their cost. Each product is then ``torch.einsum``, but for the two of which
chains consist: a tensor times a vector, done where the mode stands without a copy, and an element-wise product. Where
the memory would not suffice, some summed indices are run through value by value (*sliced*) and the results added up.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import opt_einsum
import torch
from jaxtyping import Shaped
from opt_einsum import paths
from opt_einsum.parser import convert_to_valid_einsum_chars
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tslm.errors import UnsupportedError, nearest

MOST_SLICES = 2**16
"""Beyond this many slices a contraction is refused: it would run for days before it fits."""

Structure = tuple[tuple[tuple[str, ...], bool], ...]
"""The legs of each node and whether it is a δ-tensor."""


class Step(NamedTuple):
    """One product: which operands are taken from the list, and how; the result is put at the end of the list."""

    places: tuple[int, ...]
    multiply: Callable[..., Tensor]
    swap: bool = False
    """Whether two operands change places, so that a vector stands on the right."""


@dataclass(frozen=True)
class Plan:
    """All that is needed to contract networks of one structure."""

    squeezed: tuple[tuple[int, tuple[int, ...]], ...]
    """Operands with modes of size 1, which only change shapes, and their shapes without them."""
    identities: tuple[int, ...]
    """Sizes of identity matrices appended to the operands, for δ-tensors with several open legs."""
    ones: tuple[tuple[int, ...], ...]
    """Shapes of all-ones tensors appended after those, for δ-tensors that meet no other node."""
    sliced: tuple[tuple[int | None, ...], ...]
    """Per operand and mode, the number of the slice that it is cut by."""
    slice_sizes: tuple[int, ...]
    steps: tuple[Step, ...]
    shape: tuple[int, ...]
    """Of the result."""
    flops: int
    largest_intermediate: int
    largest_legs: tuple[str, ...]


@lru_cache(maxsize=256)
def make_plan(
    nodes: Structure,
    open_legs: tuple[str, ...],
    leg_sizes: tuple[tuple[str, int], ...],
    search: str = "auto",
    most_entries: int | None = None,
) -> Plan:
    """Return a plan for networks of a structure.

    Args:
        nodes: the structure.
        open_legs: legs of the result in order.
        leg_sizes: size of every leg.
        search: the name of a path search of opt_einsum, or ``cotengra``.
        most_entries: of an intermediate; larger ones are sliced as far as summed indices allow.

    Raises:
        UnsupportedError: the search is unknown, or not installed.
    """
    legs = dict(leg_sizes)
    index = tie_deltas(nodes, legs)
    sizes = {number: legs[leg] for leg, number in index.items()}
    names = {
        number: leg
        for leg, number in [*reversed(index.items()), *[(leg, index[leg]) for leg in open_legs[::-1]]]
    }
    kept = {number for number, size in sizes.items() if size > 1}
    given = [tuple(index[leg] for leg in legs) for legs, is_delta in nodes if not is_delta]
    operands = [tuple(number for number in operand if number in kept) for operand in given]
    squeezed = tuple(
        (place, tuple(sizes[number] for number in operand))
        for place, operand in enumerate(operands)
        if len(operand) < len(given[place])
    )
    output: list[int] = []
    identities: list[tuple[int, int]] = []
    for leg in open_legs:
        number = index[leg]
        if (
            number in output and number in kept
        ):  # a second open leg of one δ: its own index through an identity
            own = len(sizes)
            sizes[own], names[own] = sizes[number], leg
            identities.append((number, own))
            number = own
        output.append(number)
    output = [number for number in output if sizes[number] > 1]
    operands += identities
    met = {number for operand in operands for number in operand}
    ones = [(number,) for number in sorted(kept - met)]
    if not operands and not ones:
        ones = [()]
    operands += ones
    path = _find_path(operands, output, sizes, search)
    cut: list[int] = []
    account = _describe(operands, output, sizes, path)
    while most_entries is not None and account.largest_size > most_entries:
        free = [number for number in account.largest if number not in output]
        if not free or math.prod(sizes[number] for number in cut) > MOST_SLICES:
            break
        options = [(_describe(operands, output, sizes, path, [*cut, number]), number) for number in free]
        account, best = min(options, key=lambda option: (option[0].flops * sizes[option[1]], option[1]))
        cut.append(best)
    slices = math.prod(sizes[number] for number in cut)
    return Plan(
        squeezed=squeezed,
        identities=tuple(sizes[number] for number, _ in identities),
        ones=tuple(tuple(sizes[number] for number in operand) for operand in ones),
        sliced=tuple(
            tuple(cut.index(number) if number in cut else None for number in operand)
            if set(operand) & set(cut)
            else ()
            for operand in operands
        ),
        slice_sizes=tuple(sizes[number] for number in cut),
        steps=tuple(_make_step(contraction, account.sizes) for contraction in account.contractions),
        shape=tuple(legs[leg] for leg in open_legs),
        flops=account.flops * slices,
        largest_intermediate=account.largest_size,
        largest_legs=tuple(names[number] for number in account.largest),
    )


def run_plan(
    plan: Plan, tensors: Sequence[Shaped[Tensor, "..."]], dtype: torch.dtype
) -> Shaped[Tensor, "..."]:
    """Contract ``tensors`` (the nodes that are not δ) as the plan says."""
    device = tensors[0].device if tensors else None
    operands = [tensor if tensor.dtype == dtype else tensor.to(dtype) for tensor in tensors]
    for place, shape in plan.squeezed:
        operands[place] = operands[place].reshape(shape)
    operands += [torch.eye(size, dtype=dtype, device=device) for size in plan.identities]
    operands += [torch.ones(shape, dtype=dtype, device=device) for shape in plan.ones]
    if not plan.slice_sizes:
        result = _run_steps(plan.steps, *operands)
    else:
        total: Tensor | None = None
        for values in itertools.product(*map(range, plan.slice_sizes)):
            parts = [
                operand[tuple(slice(None) if number is None else values[number] for number in modes)]
                for operand, modes in zip(operands, plan.sliced, strict=True)
            ]
            # Without the checkpoint, gradients would keep the intermediates of all slices at once.
            part: Tensor = checkpoint(_run_steps, plan.steps, *parts, use_reentrant=False)  # pyright: ignore
            total = part if total is None else total + part
        assert total is not None  # noqa: S101 - every index has at least one value
        result = total
    return result if result.shape == plan.shape else result.reshape(plan.shape)


def _run_steps(steps: Sequence[Step], *tensors: Tensor) -> Tensor:
    operands = list(tensors)
    for places, multiply, swap in steps:
        taken = [operands.pop(place) for place in places]
        operands.append(multiply(taken[1], taken[0]) if swap else multiply(*taken))
    return operands[0]


def _make_step(contraction: Any, sizes: Mapping[str, int]) -> Step:
    """Return one entry of opt_einsum's list as a step, with the plainest operation that can do it."""
    places, removed, equation = contraction[0], contraction[1], contraction[2]
    inputs, result = equation.split("->")
    terms = inputs.split(",")
    if len(terms) == 2 and terms[0] == terms[1] == result and len(set(result)) == len(result):
        return Step(places, torch.mul)
    for swap, (tensor, vector) in enumerate([terms, terms[::-1]] if len(terms) == 2 else []):
        mode = tensor.find(vector) if len(vector) == 1 and set(vector) == removed else -1
        if mode >= 0 and tensor[:mode] + tensor[mode + 1 :] == result:
            shape = [sizes[symbol] for symbol in tensor]
            return Step(places, _multiply_by_vector(shape, mode), bool(swap))
    return Step(places, partial(torch.einsum, convert_to_valid_einsum_chars(equation)))


def _multiply_by_vector(shape: list[int], mode: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function of a tensor and a vector that contracts a mode where it stands: no copy is made."""
    before, size, after = math.prod(shape[:mode]), shape[mode], math.prod(shape[mode + 1 :])
    result = shape[:mode] + shape[mode + 1 :]
    if len(shape) == 2 and mode == 1:
        return torch.mv
    if after == 1:
        return lambda tensor, vector: torch.mv(tensor.reshape(before, size), vector).reshape(result)
    if before == 1:
        return lambda tensor, vector: torch.mm(vector[None], tensor.reshape(size, after)).reshape(result)
    return lambda tensor, vector: torch.bmm(
        vector.expand(before, 1, size), tensor.reshape(before, size, after)
    ).reshape(result)


def tie_deltas(nodes: Structure, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the number of the index that each leg stands for: all legs of a δ-tensor are one index."""
    parent = {leg: leg for leg in sizes}

    def find(leg: str) -> str:
        while parent[leg] != leg:
            parent[leg] = parent[parent[leg]]
            leg = parent[leg]
        return leg

    for legs, is_delta in nodes:
        if is_delta:
            for leg in legs[1:]:
                parent[find(leg)] = find(legs[0])
    numbers: dict[str, int] = {}
    return {leg: numbers.setdefault(find(leg), len(numbers)) for leg in sizes}


def _find_path(
    operands: Sequence[tuple[int, ...]], output: Sequence[int], sizes: Mapping[int, int], search: str
) -> list[tuple[int, ...]]:
    """Return an order of products."""
    # Indices are numbers, not letters: sets of numbers have the same order in every process, and so have the products.
    inputs: Any = [frozenset(operand) for operand in operands]
    goal: Any = frozenset(output)
    by_number: Any = dict(sizes)
    if len(inputs) == 1:
        return [(0,)]
    if search == "cotengra":
        return list(_load_cotengra()(inputs, goal, by_number))
    if search != "auto":
        try:
            find = paths.get_path_fn(search)
        except KeyError as error:
            known = ["auto", "auto-hq", "greedy", "optimal", "dp", "random-greedy", "cotengra"]
            raise UnsupportedError(f"no path search {search!r}; {nearest(search, known)}") from error
        return list(find(inputs, goal, by_number, None))
    places = {frozenset(operand): operand for operand in operands}

    def cost(size12: int, _1: int, _2: int, _12: frozenset[int], k1: Any, k2: Any) -> tuple[int, int, bool]:
        """Fewest multiplications, smallest result; among equals, sums over first modes: memory is read in order."""
        inner = any(k1 & k2 & frozenset(places.get(k, ())[1:]) for k in (k1, k2))
        return math.prod(sizes[number] for number in k1 | k2), size12, inner

    chain: Any = paths.greedy(inputs, goal, by_number, cost_fn=cost)  # pyright: ignore
    general: Any = paths.auto(inputs, goal, by_number)
    return min(chain, general, key=lambda path: _count_flops(operands, output, sizes, path))


def _count_flops(
    operands: Sequence[tuple[int, ...]],
    output: Sequence[int],
    sizes: Mapping[int, int],
    path: Sequence[tuple[int, ...]],
) -> int:
    """Return what opt_einsum would say of a path, ten times as fast: a chain of forty words has a hundred steps."""
    left = [frozenset(operand) for operand in operands]
    holders = Counter(number for operand in [*left, frozenset(output)] for number in operand)
    total = 0
    for places in path:
        taken = [left.pop(place) for place in sorted(places, reverse=True)]
        holders.subtract(number for operand in taken for number in operand)
        joined = frozenset[int]().union(*taken)
        made = frozenset(number for number in joined if holders[number] > 0)
        holders.update(made)
        left.append(made)
        products = max(1, len(taken) - 1) + (made != joined)
        total += products * math.prod(sizes[number] for number in joined)
    return total


def _load_cotengra() -> Any:
    """Return cotengra's optimiser, or say how to get it."""
    try:
        import cotengra
    except ImportError as error:
        raise UnsupportedError("cotengra is not installed: pip install 'tslm[quimb]' brings it") from error
    options: dict[str, Any] = {
        "methods": ["greedy", "labels"],
        "max_repeats": 32,
        "parallel": False,
        "seed": 0,
    }
    return cotengra.HyperOptimizer(**options)


class _Account(NamedTuple):
    """What opt_einsum says of a path."""

    flops: int
    largest: tuple[int, ...]
    """The indices of the largest tensor made."""
    largest_size: int
    contractions: list[Any]
    sizes: dict[str, int]


def _describe(
    operands: Sequence[tuple[int, ...]],
    output: Sequence[int],
    sizes: Mapping[int, int],
    path: Sequence[tuple[int, ...]],
    cut: Sequence[int] = (),
) -> _Account:
    """Return opt_einsum's account of a path, the indices in ``cut`` left out."""
    symbols = {number: opt_einsum.get_symbol(number) for number in sizes}
    numbers = {symbol: number for number, symbol in symbols.items()}
    terms = [[number for number in operand if number not in cut] for operand in (*operands, output)]
    *inputs, result = ["".join(symbols[number] for number in term) for term in terms]
    shapes = [tuple(sizes[number] for number in term) for term in terms[:-1]]
    _, info = opt_einsum.contract_path(
        f"{','.join(inputs)}->{result}", *shapes, shapes=True, optimize=list(path)
    )
    made = [contraction[2].split("->")[1] for contraction in info.contraction_list]
    largest = max(made, key=lambda term: math.prod(info.size_dict[symbol] for symbol in term))
    return _Account(
        int(info.opt_cost),
        tuple(numbers[symbol] for symbol in largest),
        int(info.largest_intermediate),
        list(info.contraction_list),
        info.size_dict,
    )
