"""How a tensor network is contracted: an order of pairwise products found once, and carried out as matrix products."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import opt_einsum
import torch
from jaxtyping import Shaped
from opt_einsum.paths import greedy
from torch import Tensor

Indices = tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One pairwise product, worked out so far that running it takes one matrix operation."""

    left: int
    right: int
    swap: bool
    """Whether the operands change places, so that a vector stands on the right."""
    kind: Literal["vector", "matrix", "batch"]
    """A tensor times a vector in place; one matrix product; a batch of products."""
    left_order: tuple[int, ...] | None
    """Permutation of the left operand, None when it is already in order."""
    right_order: tuple[int, ...] | None
    left_shape: tuple[int, int, int]
    """For ``vector`` (modes before, summed, after), else (batch, rows, summed)."""
    right_shape: tuple[int, int, int]
    """(batch, summed, columns)."""
    shape: tuple[int, ...]
    """Shape of the product."""


@dataclass(frozen=True)
class Plan:
    """All that is needed to contract networks of one structure."""

    identities: tuple[int, ...]
    """Sizes of identity matrices appended to the operands, for δ-tensors with several open legs."""
    ones: tuple[int, ...]
    """Sizes of all-ones vectors appended after those, for δ-tensors that meet no other node."""
    diagonals: tuple[tuple[tuple[int, int], ...], ...]
    """Per operand, pairs of modes that a δ-tensor ties together, taken as diagonals one after the other."""
    sums: tuple[tuple[int, ...], ...]
    """Per operand, the modes that nothing else meets and that are summed first."""
    steps: tuple[Step, ...]
    final_order: tuple[int, ...]
    flops: int
    largest_intermediate: int
    largest_legs: tuple[str, ...]


@lru_cache(maxsize=256)
def make_plan(
    nodes: tuple[tuple[tuple[str, ...], bool], ...],
    open_legs: tuple[str, ...],
    leg_sizes: tuple[tuple[str, int], ...],
) -> Plan:
    """Return the cheapest contraction order among several searches, as a plan.

    Args:
        nodes: legs of each node and whether it is a δ-tensor.
        open_legs: legs of the result in order.
        leg_sizes: size of every leg.
    """
    sizes = dict(leg_sizes)
    index = _tie_deltas(nodes, sizes)
    operands = [tuple(index[leg] for leg in legs) for legs, is_delta in nodes if not is_delta]
    output: list[str] = []
    identities: list[Indices] = []
    for leg in open_legs:
        if index[leg] in output:  # a second open leg of one δ: give it its own index through an identity
            own = f"{leg}*"
            sizes[own] = sizes[leg]
            identities.append((index[leg], own))
            output.append(own)
        else:
            output.append(index[leg])
    operands += identities
    met = {name for operand in operands for name in operand}
    ones = [(name,) for name in dict.fromkeys(index.values()) if name not in met]
    operands += ones
    diagonals: list[tuple[tuple[int, int], ...]] = []
    for position, operand in enumerate(operands):
        pairs, operands[position] = _take_diagonals(operand)
        diagonals.append(pairs)
    sums: list[tuple[int, ...]] = []
    counts: dict[str, int] = {}
    for operand in operands:
        for name in operand:
            counts[name] = counts.get(name, 0) + 1
    for position, operand in enumerate(operands):
        alone = tuple(place for place, name in enumerate(operand) if counts[name] == 1 and name not in output)
        sums.append(alone)
        operands[position] = tuple(name for place, name in enumerate(operand) if place not in alone)
    candidates = [
        _build_steps(operands, tuple(output), sizes, path) for path in _find_paths(operands, output, sizes)
    ]
    steps, final, flops, largest = min(
        candidates, key=lambda built: (built[2], math.prod(sizes[n] for n in built[3]))
    )
    return Plan(
        identities=tuple(sizes[name] for name, _ in identities),
        ones=tuple(sizes[name] for (name,) in ones),
        diagonals=tuple(diagonals),
        sums=tuple(sums),
        steps=steps,
        final_order=tuple(final.index(name) for name in output),
        flops=flops,
        largest_intermediate=math.prod(sizes[name] for name in largest),
        largest_legs=tuple(name.rstrip("*") for name in largest),
    )


def run_plan(
    plan: Plan, tensors: Sequence[Shaped[Tensor, "..."]], dtype: torch.dtype
) -> Shaped[Tensor, "..."]:
    """Contract ``tensors`` (the nodes that are not δ) as the plan says."""
    device = tensors[0].device if tensors else None
    operands = [tensor if tensor.dtype == dtype else tensor.to(dtype) for tensor in tensors]
    operands += [torch.eye(size, dtype=dtype, device=device) for size in plan.identities]
    operands += [torch.ones(size, dtype=dtype, device=device) for size in plan.ones]
    for position, (pairs, modes) in enumerate(zip(plan.diagonals, plan.sums, strict=True)):
        for first, second in pairs:
            operands[position] = operands[position].diagonal(dim1=first, dim2=second)
        if modes:
            operands[position] = operands[position].sum(modes)
    for step in plan.steps:
        right, left = operands.pop(step.right), operands.pop(step.left)
        operands.append(_multiply(right, left, step) if step.swap else _multiply(left, right, step))
    result = operands[0]
    return result if plan.final_order == tuple(range(result.ndim)) else result.permute(plan.final_order)


def _multiply(left: Tensor, right: Tensor, step: Step) -> Tensor:
    """Return the product of one step, by the plainest operation that can do it."""
    if step.kind == "vector":
        before, summed, after = step.left_shape
        vector = right if right.ndim == 1 else right.reshape(summed)
        if after == 1:
            product = torch.mv(
                left if left.shape == (before, summed) else left.reshape(before, summed), vector
            )
        elif before == 1:
            product = torch.mv(
                (left if left.shape == (summed, after) else left.reshape(summed, after)).t(), vector
            )
        else:  # the mode is summed where it stands: no copy of the large operand
            product = torch.bmm(vector.expand(before, 1, summed), left.reshape(before, summed, after))
        return product if product.shape == step.shape else product.reshape(step.shape)
    if step.left_order is not None:
        left = left.permute(step.left_order)
    if step.right_order is not None:
        right = right.permute(step.right_order)
    batch, rows, summed = step.left_shape
    columns = step.right_shape[2]
    if step.kind == "matrix":
        return (left.reshape(rows, summed) @ right.reshape(summed, columns)).reshape(step.shape)
    if left.shape == right.shape == step.shape:
        return left * right
    if summed == 1:
        return (left.reshape(batch, rows, 1) * right.reshape(batch, 1, columns)).reshape(step.shape)
    return torch.bmm(left.reshape(step.left_shape), right.reshape(step.right_shape)).reshape(step.shape)


def _tie_deltas(nodes: Sequence[tuple[tuple[str, ...], bool]], sizes: Mapping[str, int]) -> dict[str, str]:
    """Return the index that each leg stands for: all legs of a δ-tensor are one index."""
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
    return {leg: find(leg) for leg in sizes}


def _take_diagonals(indices: Indices) -> tuple[tuple[tuple[int, int], ...], Indices]:
    """Return the diagonals to take so that every index of an operand occurs once, and its indices after that."""
    pairs: list[tuple[int, int]] = []
    left = list(indices)
    for name in dict.fromkeys(indices):
        while left.count(name) > 1:
            first = left.index(name)
            second = left.index(name, first + 1)
            pairs.append((first, second))
            del left[second], left[first]
            left.append(name)  # torch puts the diagonal last
    return tuple(pairs), tuple(left)


def _find_paths(
    operands: Sequence[Indices], output: Sequence[str], sizes: Mapping[str, int]
) -> Iterator[list[tuple[int, ...]]]:
    """Yield candidate orders: two that are best for chains, and opt_einsum's own."""
    inputs: list[frozenset[str]] = [frozenset(operand) for operand in operands]
    if len(inputs) == 1:
        yield []
        return
    searches: list[Callable[..., Any]] = [_find_growing, _find_cheapest_first, opt_einsum.paths.auto]
    for search in searches:
        path: list[tuple[int, ...]] = search(inputs, frozenset(output), dict(sizes))
        if all(len(pair) == 2 for pair in path):
            yield path


def _find_cheapest_first(
    inputs: list[frozenset[str]], output: frozenset[str], sizes: dict[str, int]
) -> list[tuple[int, ...]]:
    """Return the order that always takes the product of fewest multiplications, smallest result first."""

    def cost(
        size12: int, _size1: int, _size2: int, _k12: frozenset[str], k1: frozenset[str], k2: frozenset[str]
    ) -> tuple[int, int]:
        return math.prod(sizes[name] for name in k1 | k2), size12

    return list(greedy(inputs, output, sizes, cost_fn=cost))  # pyright: ignore[reportArgumentType]


def _find_growing(
    inputs: list[frozenset[str]], output: frozenset[str], sizes: dict[str, int]
) -> list[tuple[int, ...]]:
    """Return the order in which one tensor, the smallest at first, takes in its neighbours, cheapest first."""

    def size(names: frozenset[str]) -> int:
        return math.prod(sizes[name] for name in names)

    counts = Counter(name for operand in (*inputs, output) for name in operand)
    remaining = list(inputs)
    grown = remaining.pop(start := min(range(len(inputs)), key=lambda i: size(inputs[i])))
    path: list[tuple[int, ...]] = []
    while remaining:
        near = [i for i, operand in enumerate(remaining) if operand & grown] or range(len(remaining))
        chosen = min(near, key=lambda i: (size(remaining[i] | grown), i))
        operand = remaining.pop(chosen)
        # In the list of operands the grown one is last, save at the very beginning.
        path.append((chosen, len(remaining) + 1) if path else (chosen + (chosen >= start), start))
        counts.subtract(operand & grown)
        grown = frozenset(name for name in operand | grown if counts[name] > 1 or name not in operand & grown)
    return path


def _build_steps(
    operands: Sequence[Indices], output: Indices, sizes: Mapping[str, int], path: Sequence[tuple[int, ...]]
) -> tuple[tuple[Step, ...], Indices, int, Indices]:
    """Return the steps of a path with the final indices, the flops and the indices of the largest tensor made."""
    remaining = list(operands)
    counts: dict[str, int] = {}
    for operand in (*remaining, output):
        for name in operand:
            counts[name] = counts.get(name, 0) + 1
    flops = 0
    largest: Indices = output
    steps: list[Step] = []
    for pair in path:
        first, second = sorted(pair)
        left, right = remaining[first], remaining[second]
        del remaining[second], remaining[first]
        swap = set(left) < set(right)
        if swap:
            left, right = right, left
        both = [name for name in left if name in right]
        summed = [name for name in both if counts[name] == 2]
        batch = [name for name in both if counts[name] > 2]
        rows = [name for name in left if name not in both]
        columns = [name for name in right if name not in both]
        for name in both:
            counts[name] -= 1
        for name in summed:
            counts[name] -= 1
        product = (*batch, *rows, *columns)
        work = math.prod(sizes[name] for name in (*product, *summed))
        flops += 2 * work if summed else work
        if math.prod(sizes[name] for name in product) > math.prod(sizes[name] for name in largest):
            largest = product
        steps.append(_make_step((first, second), swap, (left, right), (batch, rows, summed, columns), sizes))
        remaining.append(product)
    return tuple(steps), remaining[0], flops, largest


def _make_step(
    places: tuple[int, int],
    swap: bool,
    operands: tuple[Indices, Indices],
    groups: tuple[list[str], list[str], list[str], list[str]],
    sizes: Mapping[str, int],
) -> Step:
    """Return the step with its permutations and matrix shapes worked out."""
    left, right = operands
    batch, rows, summed, columns = groups

    def order(indices: Indices, wanted: list[str]) -> tuple[int, ...] | None:
        permutation = tuple(indices.index(name) for name in wanted)
        return None if permutation == tuple(range(len(indices))) else permutation

    def size(names: Sequence[str]) -> int:
        return math.prod(sizes[name] for name in names)

    start = left.index(right[0]) if summed and not batch and not columns else -1
    in_place = start >= 0 and left[start : start + len(right)] == right
    return Step(
        left=places[0],
        right=places[1],
        swap=swap,
        kind="vector" if in_place else "batch" if batch else "matrix",
        left_order=order(left, batch + rows + summed),
        right_order=order(right, batch + summed + columns),
        left_shape=(size(left[:start]), size(summed), size(left[start + len(right) :]))
        if in_place
        else (size(batch), size(rows), size(summed)),
        right_shape=(size(batch), size(summed), size(columns)),
        shape=tuple(sizes[name] for name in batch + rows + columns),
    )
