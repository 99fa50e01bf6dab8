"""Tensor trains: T[d₁…dₙ] = G₁[d₁]·G₂[d₂]⋯Gₙ[dₙ], and their arithmetic without ever building T.

    >>> a, b = draw_train((3, 4, 5), 2, seed=1), draw_train((3, 4, 5), 3, seed=2)
    >>> (a + b).ranks, (a * b).ranks  # bonds add up, or multiply; ``round_train`` makes them smaller again
    ((5, 5), (6, 6))
    >>> torch.allclose((a * b - 2 * a).to_tensor(), a.to_tensor() * (b.to_tensor() - 2))
    True
    >>> torch.allclose(inner(a, b), (a.to_tensor() * b.to_tensor()).sum())
    True

Physicists call a train a matrix product state, its bonds virtual and its modes physical. Cores may be complex;
everything but ``norm`` is differentiable.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Shaped
from torch import Tensor

from tslm.errors import ShapeError
from tslm.tensors.algebra import show, show_shape
from tslm.tensors.network import TensorNetwork, tensor_node


@dataclass(frozen=True)
class TensorTrain:
    """Cores G₁ … Gₙ of shape (bond before × mode × bond after); the outermost bonds have size 1.

    >>> cores = torch.ones(1, 3, 2), torch.ones(2, 4, 1)
    >>> TensorTrain(cores).shape
    (3, 4)
    """

    cores: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        if not self.cores:
            raise ShapeError("a tensor train needs at least one core")
        before = 1
        for position, core in enumerate(self.cores):
            if core.ndim != 3:
                raise ShapeError(f"core {position} is {show(core)}; expected three modes: bond × mode × bond")
            if core.shape[0] != before:
                raise ShapeError(f"core {position} is {show(core)}, but the bond before it has size {before}")
            before = core.shape[2]
        if before != 1:
            raise ShapeError(f"the last core is {show(self.cores[-1])}; its last bond must have size 1")

    def __len__(self) -> int:
        return len(self.cores)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the full tensor."""
        return tuple(core.shape[1] for core in self.cores)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Sizes of the bonds between cores."""
        return tuple(core.shape[2] for core in self.cores[:-1])

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that holds the entries of all cores."""
        dtype = self.cores[0].dtype
        for core in self.cores[1:]:
            dtype = torch.promote_types(dtype, core.dtype)
        return dtype

    @property
    def parameter_count(self) -> int:
        """Numbers stored in the cores."""
        return sum(core.numel() for core in self.cores)

    def to_tensor(self, first: slice = slice(None)) -> Shaped[Tensor, "..."]:
        """Return the full tensor, or only the part with the first mode in ``first``."""
        product = self.cores[0][:, first]
        sizes = [product.shape[1], *self.shape[1:]]
        product = product.reshape(sizes[0], -1)
        for core in self.cores[1:]:
            product = (product @ core.reshape(core.shape[0], -1)).reshape(-1, core.shape[2])
        return product.reshape(sizes)

    def evaluate(self, indices: Shaped[Tensor, "B N"]) -> Shaped[Tensor, "B"]:
        """Return the entries at ``indices`` without building the tensor."""
        product = self.cores[0][0, indices[:, 0]]
        for position, core in enumerate(self.cores[1:], 1):
            product = torch.einsum("bq,qbr->br", product, core[:, indices[:, position]])
        return product[:, 0]

    def to_network(self) -> TensorNetwork:
        """Return the train as a tensor network with open legs d1 … dn and bonds q1 … q(n−1)."""
        last = len(self.cores) - 1
        nodes = [
            tensor_node(
                f"G{k + 1}",
                core[0 if k == 0 else slice(None), :, 0 if k == last else slice(None)],
                [*([f"q{k}"] if k else []), f"d{k + 1}", *([f"q{k + 1}"] if k < last else [])],
            )
            for k, core in enumerate(self.cores)
        ]
        return TensorNetwork(nodes, [f"d{k + 1}" for k in range(last + 1)])

    def to(self, dtype: torch.dtype) -> TensorTrain:
        """Return the same train in another dtype."""
        return TensorTrain(tuple(core.to(dtype) for core in self.cores))

    def conj(self) -> TensorTrain:
        """Return the complex conjugate."""
        return TensorTrain(tuple(core.conj() for core in self.cores))

    def __add__(self, other: TensorTrain) -> TensorTrain:
        """Entry by entry: the cores stand side by side, so bonds add up."""
        check_shapes(self, other)
        if len(self) == 1:
            return TensorTrain((self.cores[0] + other.cores[0],))
        cores: list[Tensor] = []
        for k, (one, two) in enumerate(zip(self.cores, other.cores, strict=True)):
            if k == 0:
                cores.append(torch.cat([one, two], 2))
            elif k == len(self) - 1:
                cores.append(torch.cat([one, two]))
            else:
                upper = torch.cat([one, one.new_zeros(*one.shape[:2], two.shape[2])], 2)
                lower = torch.cat([two.new_zeros(*two.shape[:2], one.shape[2]), two], 2)
                cores.append(torch.cat([upper, lower]))
        return TensorTrain(tuple(cores))

    def __mul__(self, other: TensorTrain | complex | float | int | Tensor) -> TensorTrain:
        """With a number, or with another train entry by entry: then bonds multiply."""
        if not isinstance(other, TensorTrain):
            return TensorTrain((self.cores[0] * other, *self.cores[1:]))
        check_shapes(self, other)
        return TensorTrain(
            tuple(
                torch.einsum("amb,cmd->acmbd", one, two).reshape(
                    one.shape[0] * two.shape[0], one.shape[1], one.shape[2] * two.shape[2]
                )
                for one, two in zip(self.cores, other.cores, strict=True)
            )
        )

    __rmul__ = __mul__

    def __neg__(self) -> TensorTrain:
        return self * -1

    def __sub__(self, other: TensorTrain) -> TensorTrain:
        return self + -other

    def __matmul__(self, other: TensorTrain) -> Shaped[Tensor, ""]:
        """⟨a, b⟩, as ``inner``."""
        return inner(self, other)


def join(*trains: TensorTrain) -> TensorTrain:
    """Return the tensor product a ⊗ b ⊗ …, whose modes are those of all trains one after the other.

    >>> join(draw_train((2, 3), 2), draw_train((4,), 1)).shape
    (2, 3, 4)
    """
    return TensorTrain(tuple(core for train in trains for core in train.cores))


def inner(left: TensorTrain, right: TensorTrain) -> Shaped[Tensor, ""]:
    """Return ⟨a, b⟩ = Σ a̅·b, the left argument conjugated as physicists do; ``a.conj()`` undoes it.

    >>> a = draw_train((2, 3, 2), 2, dtype=torch.complex128)
    >>> torch.allclose(inner(a, a).real.sqrt(), a.to_tensor().norm())
    True

    Raises:
        ShapeError: the shapes differ.
    """
    check_shapes(left, right)
    dtype = torch.promote_types(left.dtype, right.dtype)
    seen = torch.ones(1, 1, dtype=dtype, device=left.cores[0].device)
    for one, two in zip(left.cores, right.cores, strict=True):
        half = torch.einsum("ac,cmd->amd", seen, two.to(dtype))
        seen = torch.einsum("amb,amd->bd", one.to(dtype).conj(), half)
    return seen[0, 0]


def log_norm(train: TensorTrain) -> float:
    """Return ln ‖T‖, exact to rounding for trains of any length, whose norm itself may be no number.

    The root of ⟨a, a⟩ would lose half of the digits, and overflow; the triangle of a QR decomposition does neither.

    >>> long = join(*[draw_train((2,), 1) * 1e-9 for _ in range(100)])
    >>> -2100 < log_norm(long) < -2000
    True
    """
    total, rest = 0.0, torch.ones(1, 1, dtype=train.dtype, device=train.cores[0].device)
    for core in train.cores:
        grown = torch.einsum("ab,bmc->amc", rest, core.detach().to(train.dtype))
        rest = torch.linalg.qr(grown.reshape(-1, core.shape[2]), mode="r")[1]
        size = float(rest.abs().max())
        if size == 0:
            return -math.inf
        total, rest = total + math.log(size), rest / size
    return total + math.log(float(rest.abs()[0, 0]))


def norm(train: TensorTrain) -> float:
    """Return ‖T‖.

    >>> a = draw_train((3, 4, 2), 2)
    >>> abs(norm(a) - float(a.to_tensor().norm())) < 1e-12
    True
    """
    return math.exp(log_norm(train))


def draw_train(
    shape: Sequence[int],
    rank: int | Sequence[int],
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> TensorTrain:
    """Return a random train, its entries of size about 1; bonds are no larger than the shape can use.

    >>> draw_train((2, 3, 4, 2), 5).ranks
    (2, 5, 2)
    """
    numbers = torch.Generator("cpu").manual_seed(seed)
    wanted = [rank] * (len(shape) - 1) if isinstance(rank, int) else list(rank)
    bonds = [1, *[min(size, bond_limit(shape, k)) for k, size in enumerate(wanted, 1)], 1]
    return TensorTrain(
        tuple(
            torch.randn(before, size, after, generator=numbers, dtype=dtype, device="cpu") / math.sqrt(before)
            for size, (before, after) in zip(shape, itertools.pairwise(bonds), strict=True)
        )
    )


def maximum_train_rank(shape: Sequence[int]) -> int:
    """Return the largest bond any tensor of that shape can need."""
    return max((bond_limit(shape, k) for k in range(1, len(shape))), default=1)


def bond_limit(shape: Sequence[int], bond: int) -> int:
    """Return the largest size that the bond after the first ``bond`` modes can need."""
    return min(math.prod(shape[:bond]), math.prod(shape[bond:]))


def check_shapes(left: TensorTrain, right: TensorTrain) -> None:
    """Refuse trains of different shapes.

    Raises:
        ShapeError: they are.
    """
    if left.shape != right.shape:
        raise ShapeError(
            f"trains of shapes {show_shape(left.shape)} and {show_shape(right.shape)}; expected equal ones"
        )
