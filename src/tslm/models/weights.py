"""``model.safetensors``: a model's numbers on disk, without pickle, written whole and checked when read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from tslm.errors import RunError
from tslm.models.arrays import REMEDY, WEIGHTS, check_regular
from tslm.seals import check_seal, sealed


def save_weights(
    folder: Path, tensors: Mapping[str, Tensor], name: str = WEIGHTS, note: str | None = None
) -> None:
    """Write named tensors, whole or not at all, with an optional note in the file's header."""
    with sealed(folder / name) as temporary:
        contiguous = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
        # Not save_file: it makes a file that only its owner may read.
        temporary.write_bytes(save(contiguous, metadata={"note": note} if note is not None else None))


def check_size(folder: Path, numbers: int) -> None:
    """Compare what a recipe asks for with what the file can hold, before memory is taken for it.

    Args:
        folder: the run folder.
        numbers: the least numbers that a model of the recipe's shape has, of two bytes each in half precision.

    Raises:
        RunError: the file is missing, or too small for them.
    """
    path = folder / WEIGHTS
    check_regular(path)
    size = path.stat().st_size
    if size < 2 * numbers:
        raise RunError(
            f"{path} has {size:,} bytes, but recipe and vocabulary ask for {2 * numbers:,} or more; "
            "it was written for another recipe"
        )


def load_weights(
    folder: Path,
    expected: Mapping[str, tuple[torch.dtype, tuple[int, ...]]] | None = None,
    name: str = WEIGHTS,
) -> dict[str, Tensor]:
    """Read named tensors; those stored in half precision come back in single precision.

    Args:
        folder: the run folder.
        expected: the type and shape each tensor must have; None takes what is there.
        name: the file's name.

    Raises:
        RunError: the file is missing, cut short, damaged or changed, or a tensor is missing, of another shape or not
            finite.
    """
    path = folder / name
    check_regular(path)
    check_seal(path, REMEDY)
    try:
        tensors = {key: _widen(tensor) for key, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise RunError(f"cannot read {path}: it is damaged ({error}); {REMEDY}") from error
    for key, (dtype, shape) in (expected or {}).items():
        if key not in tensors:
            raise RunError(f"{path} lacks {key!r} of shape {shape}; it was written for another kind of model")
        found = tensors[key]
        if tuple(found.shape) != shape or found.dtype != dtype:
            raise RunError(
                f"{path}: {key!r} is {found.dtype} of shape {tuple(found.shape)}, "
                f"but recipe and vocabulary ask for {dtype} of shape {shape}"
            )
    for key, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise RunError(f"{path}: {key!r} holds what is no finite number; {REMEDY}")
    return tensors


def _widen(tensor: Tensor) -> Tensor:
    """Half precision is a way to store numbers, not to compute with them."""
    return tensor.float() if tensor.dtype == torch.float16 else tensor
