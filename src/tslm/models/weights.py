"""``model.safetensors``: a model's numbers on disk, without pickle, written whole and checked when read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from tslm.errors import RunError
from tslm.files import whole
from tslm.models.arrays import WEIGHTS


def save_weights(
    folder: Path, tensors: Mapping[str, Tensor], name: str = WEIGHTS, note: str | None = None
) -> None:
    """Write named tensors, whole or not at all, with an optional note in the file's header."""
    with whole(folder / name) as temporary:
        contiguous = {key: tensor.detach().contiguous() for key, tensor in tensors.items()}
        # Not save_file: it makes a file that only its owner may read.
        temporary.write_bytes(save(contiguous, metadata={"note": note} if note is not None else None))


def load_weights(
    folder: Path,
    expected: Mapping[str, tuple[torch.dtype, tuple[int, ...]]] | None = None,
    name: str = WEIGHTS,
) -> dict[str, Tensor]:
    """Read named tensors.

    Args:
        folder: the run folder.
        expected: the type and shape each tensor must have; None takes what is there.
        name: the file's name.

    Raises:
        RunError: the file is missing, cut short or damaged, or a tensor is missing or of another shape.
    """
    path = folder / name
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        reason = "it is missing" if not path.exists() else f"it is damaged ({error})"
        raise RunError(
            f"cannot read {path}: {reason}; train the model again or copy the whole folder"
        ) from error
    for key, (dtype, shape) in (expected or {}).items():
        if key not in tensors:
            raise RunError(f"{path} lacks {key!r} of shape {shape}; it was written for another kind of model")
        found = tensors[key]
        if tuple(found.shape) != shape or found.dtype != dtype:
            raise RunError(
                f"{path}: {key!r} is {found.dtype} of shape {tuple(found.shape)}, "
                f"but recipe and vocabulary ask for {dtype} of shape {shape}"
            )
    return tensors
