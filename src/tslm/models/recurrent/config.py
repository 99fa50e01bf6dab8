"""The shape of a recurrent model: the ``[model]`` table of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tslm.config import check
from tslm.models.recurrent.cells import CellConfig
from tslm.models.recurrent.cells.tslm import TslmConfig
from tslm.models.recurrent.flat import nest
from tslm.models.recurrent.heads import HeadConfig
from tslm.models.recurrent.heads.softmax import SoftmaxConfig
from tslm.models.recurrent.readout import OutputGate

LARGEST = {"rank": 65_536, "embedding": 65_536, "layers": 256}
"""Far above what can be trained here; a recipe that asks for more is a mistake or a trap."""


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """The shape of a recurrent model and its regularisation."""

    cell: CellConfig = field(default_factory=TslmConfig)
    """The recurrence: the table ``[model.cell]``."""

    head: HeadConfig = field(default_factory=SoftmaxConfig)
    """From a state to a distribution: the table ``[model.head]``."""

    rank: int = 256
    """R: the rank of the decomposition, which is the size of the hidden state."""

    embedding: int = 256
    """M: the size of the word vectors."""

    layers: int = 1
    """How many cells stand one on the other."""

    skip: bool = False
    """Add to each cell's states those of the cell below, so that all are read out; with ``layers`` above 1."""

    cascade: bool = False
    """Let each cell read the words, and add what is read out of the cell below to its state; what is read out of all
    of them is added up. Without tanh the whole is a tensor network again; with ``layers`` above 1 and gated cells."""

    pairs: bool = False
    """Give cells that read words each one together with the one before it, (α_t, α_{t−1}): a bond of neighbours."""

    tied: bool = True
    """Use the embedding as the output matrix V."""

    output_gate: OutputGate = "none"
    """Read the state out as it is, as o ⊙ h, as o ⊙ tanh(h), or as o ⊙ h ⊙ (1 + Q h), products of two copies of the
    network; o = 1.3 σ(G α + g) is a gate of the last word alone."""

    dropout_words: float = 0.0
    """The chance that a word's whole vector is dropped for a window."""

    dropout_input: float = 0.0
    """Locked dropout on the word vectors: one mask for a whole window."""

    dropout_layers: float = 0.0
    """Locked dropout between cells: on what one reads, or is fed, of the one below."""

    dropout_output: float = 0.0
    """Locked dropout on what is read out (behind the gate)."""

    def __post_init__(self) -> None:
        for key, largest in LARGEST.items():
            value = getattr(self, key)
            check(1 <= value <= largest, f"model.{key} = {value} must be 1 to {largest:,}")
        check(
            not self.skip or self.layers > 1,
            "model.skip adds up the states of several cells; set model.layers to 2 or more, or leave it out",
        )
        check(
            not self.cascade or self.layers > 1,
            "model.cascade feeds cells to one another; set model.layers to 2 or more, or leave it out",
        )
        check(
            not (self.cascade and self.skip),
            "model.cascade adds up what is read out of its cells, and model.skip their states; set one of the two",
        )
        check(
            not self.cascade or self.cell.takes_more,
            f"model.cascade goes with cells that take more than words, such as gated; {self.cell.kind} does not",
        )
        for key in ("dropout_words", "dropout_input", "dropout_layers", "dropout_output"):
            value = getattr(self, key)
            check(0 <= value < 1, f"model.{key} = {value} must lie in [0, 1)")

    @property
    def reads_linearly(self) -> bool:
        """Whether what is read out of the state is linear in it, behind a given word."""
        return self.output_gate in ("none", "linear")

    def least_numbers(self, words: int) -> int:
        """Return how many numbers such a model has at the least: its embedding, each W, the first U, the head."""
        V, M, R = words, self.embedding, self.rank
        return V * M + R * M + self.layers * R * R + self.head.least_numbers(R, M)

    @classmethod
    def renew(cls, table: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a ``[model]`` table as it is written today."""
        return nest(table)
