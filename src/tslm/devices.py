"""Where a model computes: on the CPU, or on an accelerator that PyTorch knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from tslm.errors import UnsupportedError, nearest

if TYPE_CHECKING:  # imported where a device is asked for, which counting n-grams never does
    import torch
    from torch import Tensor

    from tslm.models.base import LanguageModel

Device = Literal["auto", "cpu", "cuda", "mps"]
DEVICES: tuple[Device, ...] = get_args(Device)
"""What recipes and commands can choose from; ``auto`` takes an accelerator where there is one."""


def choose_device(wanted: str) -> torch.device:
    """Return the device of a name.

    Raises:
        UnsupportedError: there is no such device, or none on this machine.
    """
    import torch

    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if wanted == "auto":
        wanted = next((name for name, available in there.items() if available()), "cpu")
    elif wanted not in DEVICES:
        raise UnsupportedError(f"there is no device {wanted!r}: {nearest(wanted, DEVICES)}")
    elif wanted in there and not there[wanted]():
        raise UnsupportedError(
            f"device {wanted!r} was asked for, but PyTorch {torch.__version__} finds none on this machine; install "
            "a PyTorch that is built for it, or take --device cpu"
        )
    return torch.device(wanted)


def place_model(model: LanguageModel[Any], wanted: str) -> LanguageModel[Any]:
    """Bring what a model computes with tensors to a device, and return the model; what is counted stays on the CPU.

    Raises:
        UnsupportedError: there is no such device on this machine, or the model cannot compute there.
    """
    if wanted == "cpu":
        return model  # as every model is opened
    from tslm.models.cached import CachedModel
    from tslm.models.interpolation import Interpolation
    from tslm.models.trainable import Trainable

    device = choose_device(wanted)
    if isinstance(model, Trainable):
        if device.type != "cpu" and not model.moves:
            raise UnsupportedError(
                f"a model of kind {model.kind!r} computes on the CPU only, not on {device.type!r}; take --device cpu"
            )
        model.to(device)
    elif isinstance(model, Interpolation):
        for part in model.parts:
            place_model(part.model, device.type)
    elif isinstance(model, CachedModel):
        place_model(model.part.model, device.type)
    return model


def widest(device: torch.device) -> torch.dtype:
    """Return the most precise floating-point type of a device, in which long sums are formed."""
    import torch

    return torch.float32 if device.type == "mps" else torch.float64


def random_state(device: torch.device) -> Tensor | None:
    """Return the state of a device's own random numbers; None where they are the CPU's."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.mps.get_rng_state() if device.type == "mps" else None


def set_random_state(device: torch.device, state: Tensor) -> None:
    """Go on with a device's random numbers where ``random_state`` was."""
    import torch

    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state)
