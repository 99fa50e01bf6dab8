"""``model.safetensors``: a model's numbers on disk, without pickle, written whole and checked when read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from tslm.errors import RunError
from tslm.models.arrays import REMEDY, WEIGHTS, check_weights
from tslm.seals import sealed

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16} | {
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def save_weights(
    folder: Path, tensors: Mapping[str, Tensor], name: str = WEIGHTS, note: str | None = None
) -> None:
    """Write named tensors, whole or not at all, with an optional note in the file's header."""
    with sealed(folder / name) as temporary:
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
        RunError: the file is missing, cut short, damaged or changed, or a tensor is missing, of another shape or not
            finite.
    """
    path = folder / name
    check_weights(path)
    try:
        # The header first: nothing is allocated for a model that is not in the file.
        _check_header(path, expected or {})
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"cannot read {path}: it is damaged ({error}); {REMEDY}") from error
    for key, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise RunError(f"{path}: {key!r} holds what is no finite number; {REMEDY}")
    return tensors


def _check_header(path: Path, expected: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]) -> None:
    """Raise where the file does not hold the tensors that are expected, by its header alone."""
    with safe_open(path, framework="pt") as file:
        known = set(file.keys())
        for key, (dtype, shape) in expected.items():
            if key not in known:
                raise RunError(
                    f"{path} lacks {key!r} of shape {shape}; it was written for another kind of model"
                )
            entry = file.get_slice(key)
            found = tuple(entry.get_shape()), _TYPES.get(entry.get_dtype())
            if found != (shape, dtype):
                raise RunError(
                    f"{path}: {key!r} is {found[1]} of shape {found[0]}, "
                    f"but recipe and vocabulary ask for {dtype} of shape {shape}"
                )
