"""A trained exact cell with fewer units: balanced by what the state reaches and what the output sees.

Eq. 16 for a *trained* T. Cutting the bond of the chain in any basis, as one cuts a tensor train (``balance``), gives
every word a matrix of its own: the gates act on units, and a change of basis mixes them. To stay a cell of the same
kind, with one W and a few vectors per word, the smaller state must be some of the units. So:

1. Read a text. The second moments of the states say what is reached; those of the gradients of the model's own
   predictions, through all later words, say what is seen (the Fisher information: how much predictions change).
2. Take units away one after the other: each time the one of which, and of all that is told by it, the others can tell
   most of what is seen by linear regression.
3. Let the units that are left stand for the others: W, the read-out, and Q where products are read out, are replaced by
   their regressions.
4. Run the smaller model, whose states drift from the larger one's, and fit the same regressions to its own states.

    >>> from tslm.models.recurrent.cells.gated import GatedConfig
    >>> from tslm.models.recurrent.config import RecurrentConfig
    >>> model = RecurrentModel(RecurrentConfig(cell=GatedConfig(), rank=12, embedding=8), vocabulary).eval()
    >>> smaller = compress_model(model, corpus.splits["train"], 5, tokens=2000)
    >>> smaller.config.rank, smaller.parameter_count < model.parameter_count
    (5, True)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from tslm.errors import NumberError, UnsupportedError
from tslm.inference.balance import WINDOW, Reading, add_ridge, choose_units, observe, read_states
from tslm.inference.network import require_chain
from tslm.models.base import LanguageModel
from tslm.models.recurrent.cells import ChainCell
from tslm.models.recurrent.cells.gated import GatedCell, GatedConfig
from tslm.models.recurrent.cells.tslm import TslmCell, TslmConfig
from tslm.models.recurrent.heads.mixture import MixtureHead
from tslm.models.recurrent.heads.softmax import SoftmaxConfig, SoftmaxHead
from tslm.models.recurrent.model import RecurrentModel

COLUMNS = 32
"""Places of the text that are read side by side."""
SEEN = 160
"""Words of each column whose predictions are differentiated: each needs the whole softmax."""
ROUNDS = 1
"""How often the regressions are fitted to the smaller model's own states; more change nothing to speak of."""
FREE = 1e6
"""The limit of ‖W‖ while it is fitted: none."""


def compress_model(
    model: LanguageModel[Any],
    ids: NDArray[np.integer[Any]],
    rank: int,
    *,
    tokens: int = 20_000,
    seed: int = 0,
) -> RecurrentModel:
    """Eq. 16. Return a model of the same kind with ``rank`` units, fitted to the given one on a text.

    Args:
        model: one layer of an exact cell: pure, biased or bounded TSLM, or gated.
        ids: the text, of which ``tokens`` words are read.
        rank: the number of units that are kept.
        tokens: how many words to read.
        seed: of the predictions whose gradients are taken.

    Raises:
        UnsupportedError: the model has another cell, or several layers.
        NumberError: the rank is not below the model's own, or the text is too short.
    """
    recurrent, cell = require_chain(model)
    if not cell.exact:
        raise UnsupportedError(
            "the normalised TSLM divides by all units at once; only exact cells can be compressed"
        )
    if not 1 <= rank < cell.rank:
        raise NumberError(f"rank {rank} for a model of rank {cell.rank}; expected 1 to {cell.rank - 1}")
    ids_TB = make_columns(ids, tokens)
    reading = read_states(recurrent, ids_TB)
    seen_RR = observe(recurrent, ids_TB[:SEEN], seed=seed)
    chosen_S = choose_units(reading.states_NR, seen_RR, rank, intercept=_has_bias(cell))
    smaller = _select(recurrent, chosen_S)
    wanted = _find_targets(recurrent, cell, reading, chosen_S)
    own = Reading(**{name: part[:, chosen_S] for name, part in vars(reading).items()})
    found: list[tuple[float, dict[str, Tensor]]] = []
    for _ in range(1 + ROUNDS):
        _fit(smaller, own, wanted, recurrent)
        weights = {name: value.clone() for name, value in smaller.state_dict().items()}
        found.append((_measure(smaller, ids_TB[:SEEN]), weights))
        own = read_states(smaller, ids_TB)
    smaller.load_state_dict(min(found, key=lambda entry: entry[0])[1])
    return _limit(smaller, recurrent)


def make_columns(ids: NDArray[np.integer[Any]], tokens: int) -> Int[Tensor, "T B"]:
    """Return a text as columns, time first."""
    length = min(len(ids), tokens) // COLUMNS
    if length < WINDOW:
        raise NumberError(
            f"{min(len(ids), tokens)} words to read; expected at least {COLUMNS * WINDOW}: give a longer text"
        )
    return (
        torch.from_numpy(np.array(ids[: length * COLUMNS], np.int64).reshape(COLUMNS, length))
        .t()
        .contiguous()
    )


def _has_bias(cell: ChainCell) -> bool:
    """Whether a constant can be added to W h."""
    return isinstance(cell, TslmCell) and cell.variant != "pure"


@torch.no_grad()
def _select(model: RecurrentModel, chosen_S: Tensor) -> RecurrentModel:
    """Return a model of the chosen units, with everything that is theirs alone; W and the read-out are to be fitted."""
    rank, cell = len(chosen_S), cast(ChainCell, model.cell(0))
    head = model.config.head
    config = dataclasses.replace(
        model.config,
        rank=rank,
        head=SoftmaxConfig(readout=True) if isinstance(head, SoftmaxConfig) else head,
        cell=_loosen(model.config.cell),
    )
    smaller = RecurrentModel(config, model.vocabulary).to(model.bias.dtype).eval()
    smaller.rule = model.rule
    smaller.embedding.copy_(model.embedding)
    smaller.bias.copy_(model.bias)
    if smaller.output is not None and model.output is not None:
        smaller.output.copy_(model.output)
    own = cast(Any, smaller.cell(0))
    if isinstance(cell, GatedCell):
        rows = torch.cat([chosen_S + block * cell.rank for block in range(3)])
        own.U.copy_(cell.U[rows])
        own.c.copy_(cell.c[rows])
    else:
        tslm = cast(TslmCell, cell)
        own.U.copy_(tslm.U[chosen_S])
        own.b.copy_(tslm.b[chosen_S])
        own.c.copy_(tslm.c[chosen_S])
    if smaller.gate is not None and model.gate is not None:
        smaller.gate.weight.copy_(model.gate.weight[chosen_S])
        smaller.gate.bias.copy_(model.gate.bias[chosen_S])
    return smaller


def _loosen(config: Any) -> Any:
    """Return a cell's table without a limit of ‖W‖ that the fitted W might not keep, where the cell allows that."""
    bound = (isinstance(config, GatedConfig) and config.split) or (
        isinstance(config, TslmConfig) and config.variant == "bounded"
    )
    return config if bound or not config.norm_limit else dataclasses.replace(config, norm_limit=FREE)


@torch.no_grad()
def _limit(smaller: RecurrentModel, model: RecurrentModel) -> RecurrentModel:
    """Return the model with the limit of ‖W‖ that it was trained with, or as large as the fitted W needs."""
    config = cast(Any, model.config.cell)
    if cast(Any, smaller.config.cell).norm_limit == FREE:
        norm = float(torch.linalg.matrix_norm(smaller.cell(0).recurrent_weight().double(), 2))
        config = dataclasses.replace(config, norm_limit=max(config.norm_limit, 1.001 * norm))
    limited = RecurrentModel(dataclasses.replace(smaller.config, cell=config), model.vocabulary)
    limited = limited.to(model.bias.dtype).eval()
    limited.load_state_dict(smaller.state_dict())
    limited.rule = model.rule
    limited.cell(0).settle()
    return limited


@dataclass(frozen=True)
class _Targets:
    """What the smaller model's linear maps shall give, one row per word."""

    moved_NS: Tensor
    """W h (+ b) of the chosen units."""
    asked_NS: Tensor | None
    """Q h of the chosen units, where products are read out."""
    read_NM: Tensor
    """What the head's linear map makes of what is read out."""


@torch.no_grad()
def _find_targets(model: RecurrentModel, cell: ChainCell, reading: Reading, chosen_S: Tensor) -> _Targets:
    W_RR = cell.recurrent_weight().double()
    moved_NS = reading.before_NR @ W_RR[chosen_S].mT
    if _has_bias(cell):
        moved_NS = moved_NS + cast(TslmCell, cell).b.double()[chosen_S]
    asked_NS = None if model.product is None else reading.states_NR @ model.product.double()[chosen_S].mT
    head = model.head
    if isinstance(head, MixtureHead):
        weight = torch.cat([head.latent.weight, head.prior.weight]).double()
        bias = torch.cat([head.latent.bias, head.prior.weight.new_zeros(len(head.prior.weight))]).double()
        return _Targets(moved_NS, asked_NS, reading.outputs_NR @ weight.mT + bias)
    projection = cast(SoftmaxHead, head).projection
    read_NM = reading.outputs_NR if projection is None else reading.outputs_NR @ projection.weight.double().mT
    return _Targets(moved_NS, asked_NS, read_NM)


@torch.no_grad()
def _fit(smaller: RecurrentModel, own: Reading, wanted: _Targets, model: RecurrentModel) -> None:
    """Put the regressions of what is wanted on the smaller model's own states in the place of W and the read-out."""
    cell = cast(Any, smaller.cell(0))
    W_SS, b_S = _regress(own.before_NR, wanted.moved_NS, intercept=_has_bias(cell))
    cell.W.copy_(W_SS)
    if _has_bias(cell):
        cell.b.copy_(b_S)
    cell.settle()
    outputs_NS = own.outputs_NR
    if smaller.product is not None and wanted.asked_NS is not None:
        Q_SS, _ = _regress(own.states_NR, wanted.asked_NS, intercept=False)
        smaller.product.copy_(Q_SS)
        outputs_NS = own.opened_NR * own.states_NR * (1 + own.states_NR @ Q_SS.mT)
    if isinstance(smaller.head, MixtureHead):
        # The prior has no bias, so nothing has an intercept but the latents' own.
        weight, bias = _regress(outputs_NS, wanted.read_NM, intercept=True)
        count = len(smaller.head.latent.bias)
        smaller.head.latent.weight.copy_(weight[:count])
        smaller.head.latent.bias.copy_(bias[:count])
        prior, _ = _regress(outputs_NS, wanted.read_NM[:, count:], intercept=False)
        smaller.head.prior.weight.copy_(prior)
        return
    projection = cast(SoftmaxHead, smaller.head).projection
    assert projection is not None  # noqa: S101 - the smaller model has a readout
    weight, bias = _regress(outputs_NS, wanted.read_NM, intercept=True)
    projection.weight.copy_(weight)
    smaller.bias.copy_(model.bias + model.output_VM @ bias.to(model.bias.dtype))


def _regress(inputs_NS: Tensor, wanted_NK: Tensor, *, intercept: bool) -> tuple[Tensor, Tensor]:
    """Return the matrix (K × S) and the constant that come nearest to what is wanted, a little ridge added."""
    mean_S = inputs_NS.mean(0) if intercept else torch.zeros_like(inputs_NS[0])
    mean_K = wanted_NK.mean(0) if intercept else torch.zeros_like(wanted_NK[0])
    centred_NS = inputs_NS - mean_S
    gram_SS = add_ridge(centred_NS.mT @ centred_NS)
    weight_SK = torch.linalg.solve(gram_SS, centred_NS.mT @ (wanted_NK - mean_K))
    return weight_SK.mT, mean_K - mean_S @ weight_SK


@torch.no_grad()
def _measure(model: RecurrentModel, ids_TB: Int[Tensor, "T B"]) -> float:
    """Return the mean −ln p of the text's own words."""
    outputs_TBR, _ = model.read(ids_TB[:-1], model.begin(ids_TB.shape[1]))
    scores_N = model.head.score(outputs_TBR.flatten(0, 1), model.output_VM, model.bias, ids_TB[1:].flatten())
    return -float(scores_N.double().mean())
