"""``training_state.safetensors``: all that a run needs to go on as if it had never stopped. No pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from tslm.errors import RunError
from tslm.models.weights import save_weights
from tslm.training.position import STATE, Position


def save_checkpoint(folder: Path, position: Position, tensors: Mapping[str, Tensor]) -> None:
    """Write the training state, whole or not at all."""
    save_weights(folder, tensors, STATE, note=json.dumps(asdict(position)))


def read_checkpoint(data: bytes, path: Path) -> tuple[Position, dict[str, Tensor]]:
    """Return the training state that a file's bytes hold; ``path`` is for error messages."""
    try:
        tensors = load(data)
        # A safetensors file begins with the length of its JSON header.
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return Position(**json.loads(header["__metadata__"]["note"])), tensors
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is damaged ({error}); delete it to start the run anew") from error


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimiser's state as named tensors."""
    state: dict[int, dict[str, Any]] = optimiser.state_dict()["state"]
    return {
        f"optimiser/{number}/{key}": torch.as_tensor(value)
        for number, entries in state.items()
        for key, value in entries.items()
        if value is not None
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put named tensors back into an optimiser."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in part(tensors, "optimiser").items():
        number, key = name.split("/")
        state.setdefault(int(number), {})[key] = tensor
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    for number, kept in state.items():
        if number >= len(parameters) or (
            "exp_avg" in kept and kept["exp_avg"].shape != parameters[number].shape
        ):
            raise ValueError(f"the moments of weight {number} have another shape than the weight")
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's weights as named tensors."""
    return {f"model/{key}": tensor for key, tensor in module.state_dict().items()}


def part(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``name/``, without it."""
    return {
        key.removeprefix(f"{name}/"): tensor for key, tensor in tensors.items() if key.startswith(f"{name}/")
    }
