"""The cells, by the name that ``[model.cell]`` gives them. A new one is one file and one line here."""

from __future__ import annotations

from tslm.models.recurrent.cells.additive import LstmConfig, RnnConfig
from tslm.models.recurrent.cells.base import Cell, CellConfig, CellState, ChainCell
from tslm.models.recurrent.cells.gated import GatedConfig
from tslm.models.recurrent.cells.integration import IntegrationConfig
from tslm.models.recurrent.cells.tslm import TslmConfig

CELLS: dict[str, type[CellConfig]] = {
    config.kind: config for config in (TslmConfig, GatedConfig, RnnConfig, LstmConfig, IntegrationConfig)
}

__all__ = ["CELLS", "Cell", "CellConfig", "CellState", "ChainCell"]
