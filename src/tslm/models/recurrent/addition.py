"""Eqs. 17, 20. The sum of languages: logits are linear in T, and the sum of two networks is a network.

Each model's logits are the inner product of its tensor with the sentence, so λ₁T₁ + λ₂T₂ has the logits λ₁y₁ + λ₂y₂.
As with tensor trains, its bond is as large as theirs together: the state is (h₁, h₂), the word (α₁, α₂), and every
matrix has theirs on its diagonal. So the sum is a model of the same kind, as exact as its terms were.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tslm.errors import NumberError, UnsupportedError
from tslm.models.recurrent.cells.base import LimitedCell
from tslm.models.recurrent.cells.tslm import TslmConfig
from tslm.models.recurrent.heads.softmax import SoftmaxConfig, SoftmaxHead
from tslm.models.recurrent.model import RecurrentModel
from tslm.tables import show_count


@torch.no_grad()
def add_models(models: Sequence[RecurrentModel], weights: Sequence[float]) -> RecurrentModel:
    """Return one model whose logits are the weighted sum of the models' logits.

    Args:
        models: with one kind of cell, as many layers, one softmax and the same words; their sizes may differ.
        weights: λ, one for each.

    Raises:
        UnsupportedError: the logits of such models are no sum of theirs, or the sum is no model of the same kind.
        NumberError: there is not one weight for each model, or they are too large for the numbers of the sum.
    """
    check_weights(weights, len(models))
    check_addable(models)
    first = models[0]
    ranks, sizes = [m.config.rank for m in models], [m.config.embedding for m in models]
    R, M = sum(ranks), sum(sizes)
    tied = all(model.config.tied for model in models)
    config = dataclasses.replace(
        first.config,
        rank=R,
        embedding=M,
        tied=tied,
        cell=_common_cell(models),
        head=SoftmaxConfig(readout=True),
    )
    total = RecurrentModel(config, first.vocabulary).to(first.bias).eval()
    total.rule = first.rule
    # Word vectors are multiplied by √M as they are read; tied, the read-out makes up for it.
    shares = [(size / M) ** 0.5 for size in sizes]
    total.embedding.copy_(torch.cat([m.embedding * s for m, s in zip(models, shares, strict=True)], 1))
    if total.output is not None:
        total.output.copy_(torch.cat([model.output_VM for model in models], 1))
    reading = [
        _projection(m) * w / (s if tied else 1) for m, w, s in zip(models, weights, shares, strict=True)
    ]
    assert isinstance(total.head, SoftmaxHead)  # noqa: S101
    assert total.head.projection is not None  # noqa: S101
    total.head.projection.weight.copy_(_side_by_side(reading, sizes, ranks))
    total.bias.copy_(torch.stack([m.bias * w for m, w in zip(models, weights, strict=True)]).sum(0))
    for name, parameter in total.named_parameters():
        if name.startswith(("gate.", "product", "feeds.")):
            columns = sizes if name.endswith("gate.weight") else ranks
            parts = [model.get_parameter(name) for model in models]
            parameter.copy_(_side_by_side(parts, ranks, columns if parameter.ndim == 2 else None))
    for layer in range(config.layers):
        cells = [model.cell(layer) for model in models]
        for name, parameter in total.cell(layer).named_parameters():
            # W as the recurrence uses it, scaled down to its limit already.
            parts = [cell.recurrent_weight() if name == "W" else cell.get_parameter(name) for cell in cells]
            columns = ranks if name == "W" or (layer > 0 and not config.cascade) else sizes
            parameter.copy_(_side_by_side(parts, ranks, columns if parameter.ndim == 2 else None))
        total.cell(layer).settle()
    if not all(bool(parameter.isfinite().all()) for parameter in total.parameters()):
        raise NumberError(f"weights {', '.join(map(str, weights))} are too large for the numbers of the sum")
    return total


def check_weights(weights: Sequence[float], count: int) -> None:
    """Raise a NumberError unless there is one finite weight for each of so many models."""
    if len(weights) != count:
        raise NumberError(f"{show_count(len(weights), 'weight')} for {count} models; give one for each")
    if not all(map(math.isfinite, weights)) or not any(weights):
        raise NumberError(
            f"weights {', '.join(map(str, weights))}; give finite numbers, one of them not zero"
        )


def check_addable(models: Sequence[object]) -> None:
    """Raise an UnsupportedError that says why models cannot be added."""
    taken = [_take(model) for model in models]
    first = taken[0]
    for model in taken:
        if model.vocabulary.words != first.vocabulary.words or model.rule != first.rule:
            raise UnsupportedError("the models know different words; add models of one corpus")
        if _describe(model) != _describe(first):
            raise UnsupportedError(
                f"the models are built differently ({_describe(first)}; {_describe(model)}), so that their sum is no "
                "model of one kind; mix them: tslm compare --mix log-linear"
            )


def _take(model: object) -> RecurrentModel:
    """Return a model that can be a term of a sum."""
    if not isinstance(model, RecurrentModel):
        raise UnsupportedError(
            f"a model of kind {getattr(model, 'kind', '?')!r} has no logits to add; mix it: tslm compare --mix"
        )
    if not isinstance(model.config.head, SoftmaxConfig):
        raise UnsupportedError(
            "a mixture of softmaxes adds probabilities, not logits; mix the models: tslm compare --mix"
        )
    if isinstance(model.config.cell, TslmConfig) and model.config.cell.variant == "normalised":
        raise UnsupportedError(
            "the normalised TSLM divides by all units at once, those of the other model too; "
            "mix the models: tslm compare --mix log-linear"
        )
    return model


def _describe(model: RecurrentModel) -> str:
    """Return all that must be alike in the terms of a sum, in words."""
    config, cell = model.config, dataclasses.asdict(model.config.cell)
    settings = [f"{key} = {cell[key]}" for key in ("variant", "split") if key in cell]
    more = [key for key in ("skip", "cascade", "pairs") if getattr(config, key)]
    layers = show_count(config.layers, "layer")
    return ", ".join([config.cell.kind, *settings, layers, *more, f"output gate {config.output_gate}"])


def _common_cell(models: Sequence[RecurrentModel]) -> Any:
    """Return the cells' table, with a limit of ‖W‖ that all keep: the norm of the sum's W is the largest of theirs."""
    config: Any = models[0].config.cell
    cells = [model.cell(layer) for model in models for layer in range(model.config.layers)]
    limits = [cell.norm_limit for cell in cells if isinstance(cell, LimitedCell)]
    if not limits:
        return config
    given = [limit for limit in limits if limit is not None]
    none = None if isinstance(config, TslmConfig) else 0.0
    return dataclasses.replace(config, norm_limit=max(given) if len(given) == len(limits) else none)


def _projection(model: RecurrentModel) -> Float[Tensor, "M R"]:
    """Return the matrix that reads the latent out of the state."""
    linear_MR = model.head.linear()
    assert linear_MR is not None  # noqa: S101 - one softmax
    return linear_MR.to(model.bias)


def _side_by_side(parts: Sequence[Tensor], rows: Sequence[int], columns: Sequence[int] | None) -> Tensor:
    """Return the direct sum of arrays.

    Where an array is several blocks of its model's size, such as the gates of a cell, so is the sum, block for block.

    Args:
        parts: the arrays, one for each model.
        rows: the height of a block of each.
        columns: its width; None for vectors.
    """
    if columns is None:
        blocks = len(parts[0]) // rows[0]
        return torch.cat([part.view(blocks, -1) for part in parts], 1).flatten()
    high, wide = len(parts[0]) // rows[0], parts[0].shape[1] // columns[0]
    total = parts[0].new_zeros(high, sum(rows), wide, sum(columns))
    row = column = 0
    for part, height, width in zip(parts, rows, columns, strict=True):
        total[:, row : row + height, :, column : column + width] = part.reshape(high, height, wide, width)
        row, column = row + height, column + width
    return total.view(high * sum(rows), wide * sum(columns))
