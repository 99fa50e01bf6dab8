"""What a cell is: a recurrence over word vectors, with its own table in the recipe.

A cell reads a window of word vectors, time first, and returns one state per word. All cells have the same methods, so
that everything around them (embedding, dropout, head, training) is the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tslm.config import check, read_choice
from tslm.models.recurrent.dropout import make_mask

CellState = tuple[Tensor, ...]
"""What a cell carries from window to window; B is the last dimension but one of each tensor."""


@dataclass(frozen=True, kw_only=True)
class CellConfig(ABC):
    """The ``[model.cell]`` table: ``kind``, and keys that only that kind of cell knows."""

    kind: ClassVar[str]

    takes_more: ClassVar[bool] = False
    """Whether the cell can be fed: add to its state what another has made of the words."""

    weight_drop: float = 0.0
    """The chance that an entry of W is dropped for a window."""

    def __post_init__(self) -> None:
        check(0 <= self.weight_drop < 1, f"model.cell.weight_drop = {self.weight_drop} must lie in [0, 1)")

    @abstractmethod
    def build(self, inputs: int, rank: int) -> Cell:
        """Make the cell."""

    @classmethod
    def from_table(cls, table: Any, where: str) -> CellConfig:
        """Read the table of any kind of cell."""
        from tslm.models.recurrent.cells import CELLS

        return read_choice(CELLS, table, where)


class Cell(nn.Module, ABC):
    """One recurrent layer."""

    def __init__(self, rank: int, weight_drop: float) -> None:
        super().__init__()
        self.rank = rank
        self.weight_drop = weight_drop

    @abstractmethod
    def start(self, batch: int) -> CellState:
        """Return what is carried before the first word."""

    @abstractmethod
    def forward(
        self, inputs_TBM: Float[Tensor, "T B M"], state: CellState
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Read a window of word vectors; return the state after each of them, and what to carry on."""

    @abstractmethod
    def recurrent_weight(self) -> Tensor:
        """Return W, the hidden-to-hidden matrix, as the recurrence uses it when not training."""

    def settle(self, iterations: int = 500) -> None:
        """Bring what the cell follows of its weights up to date; most cells follow nothing."""

    def dropped(self, W: Tensor) -> Tensor:
        """Return W with entries dropped for this window while training."""
        if not self.training or self.weight_drop == 0:
            return W
        return W * make_mask(W.shape, self.weight_drop, W)


class LimitedCell(Cell):
    """A cell that may hold the spectral norm of its square W below a limit, following it by power iteration."""

    W: Tensor
    left_R: Tensor
    """The left singular vector of W, followed by one power iteration per step."""

    def __init__(self, rank: int, weight_drop: float, norm_limit: float | None) -> None:
        super().__init__(rank, weight_drop)
        self.norm_limit = norm_limit
        # Kept with the weights where there is a limit, so that a run goes on exactly where it was.
        self.register_buffer(
            "left_R", F.normalize(torch.ones(rank), dim=0), persistent=norm_limit is not None
        )

    def recurrent_weight(self) -> Float[Tensor, "R R"]:
        """Return W, scaled down where its spectral norm is above the limit."""
        if self.norm_limit is None:
            return self.W
        with torch.no_grad():
            right_R = F.normalize(torch.mv(self.W.t(), self.left_R), dim=0)
        norm = torch.dot(self.left_R, torch.mv(self.W, right_R))
        return self.W * (self.norm_limit / norm.clamp(min=self.norm_limit))

    @torch.no_grad()
    def settle(self, iterations: int = 500) -> None:
        """Bring the followed singular vector of W to its place; one iteration per step then keeps it there."""
        if self.norm_limit is not None:
            for _ in range(iterations):
                right_R = F.normalize(torch.mv(self.W.t(), self.left_R), dim=0)
                self.left_R = F.normalize(torch.mv(self.W, right_R), dim=0)


class ChainCell(LimitedCell):
    """A cell whose word brings factors of its own and nothing else: a link of a chain of tensors.

    Where ``exact`` holds, the state is affine in the state before, h_t = A(x_t) h_{t−1} + c(x_t), with A and c of the
    word alone: linear once a constant coordinate is added, hence an exact contraction of a tensor network.
    """

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the states are an exact contraction, multilinear in what each word brings."""

    @abstractmethod
    def factors(self, words_NM: Float[Tensor, "*N M"]) -> tuple[Float[Tensor, "*N R"], ...]:
        """Return all that words bring to their step."""

    @abstractmethod
    def scan(
        self, factors: tuple[Float[Tensor, "T B R"], ...], state: CellState, W_RR: Float[Tensor, "R R"]
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Read a window of factors."""

    @abstractmethod
    def operators(
        self, words_NM: Float[Tensor, "N M"]
    ) -> tuple[Float[Tensor, "N R R"], Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        """Return A(x), c(x), and the state after x as the first word of a text, for each word; see ``exact``."""

    @abstractmethod
    def affine_parts(
        self, words_NM: Float[Tensor, "N M"]
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"], Float[Tensor, "N R"], Float[Tensor, "N R"] | None]:
        """Return a, m, c and k, None for **1**, with which A(x) = D(a) + D(m) W D(k) and c(x) = c; see ``exact``."""

    @abstractmethod
    def carry(self, states_BR: Float[Tensor, "B R"]) -> CellState:
        """Return what is carried on from states."""

    @abstractmethod
    def average_step(
        self, states_BR: Float[Tensor, "B R"], words_VM: Float[Tensor, "V M"]
    ) -> Float[Tensor, "B R"]:
        """Eq. 14. Return the states after a word that is the mean of all words: the all-ones vector, divided by |V|."""

    @abstractmethod
    def neutral_step(self, states_BR: Float[Tensor, "B R"]) -> Float[Tensor, "B R"]:
        """Return the states after a word that brings nothing of its own."""

    def forward(
        self, inputs_TBM: Float[Tensor, "T B M"], state: CellState
    ) -> tuple[Float[Tensor, "T B R"], CellState]:
        """Read a window of word vectors."""
        if self.training:
            self.settle(1)
        return self.scan(self.factors(inputs_TBM), state, self.dropped(self.recurrent_weight()))
