"""``model.safetensors`` as NumPy arrays, without PyTorch: written whole, mapped when read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]

from tslm.errors import RunError
from tslm.seals import check_seal, sealed

WEIGHTS = "model.safetensors"
"""The file of a model's numbers in its run folder."""

REMEDY = "train the model again or copy the whole folder"

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"} | {
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}


def save_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays, whole or not at all."""
    with sealed(folder / WEIGHTS) as temporary:
        # save_file streams large arrays, but makes a file that only its owner may read.
        temporary.touch()
        mode = temporary.stat().st_mode
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary)
        temporary.chmod(mode)


def create_arrays(path: Path, shapes: Mapping[str, tuple[np.dtype[Any], int]]) -> dict[str, NDArray[Any]]:
    """Make a safetensors file of zeros, and return its arrays mapped for writing.

    Args:
        path: the file, which is overwritten.
        shapes: the type and length of each array.
    """
    names = {np.dtype(kind): name for name, kind in _TYPES.items()}
    header: dict[str, Any] = {}
    end = 0
    # The longest numbers first, so that every array begins at a multiple of its numbers' length.
    for name, (dtype, length) in sorted(shapes.items(), key=lambda item: -item[1][0].itemsize):
        begin, end = end, end + length * dtype.itemsize
        header[name] = {"dtype": names[dtype], "shape": [length], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    data = np.memmap(path, np.uint8, mode="r+")
    return {
        name: data[8 + len(text) :][slice(*header[name]["data_offsets"])].view(dtype)
        for name, (dtype, _) in shapes.items()
    }


def map_arrays(
    folder: Path, expected: Mapping[str, tuple[str, tuple[int, ...]]] | None = None
) -> dict[str, NDArray[Any]]:
    """Map the named arrays that ``save_arrays`` wrote; memory is needed only for what is used of them.

    Args:
        folder: the run folder.
        expected: the type (``"float64"``) and shape each array must have; None takes what is there.

    Raises:
        RunError: the file is missing, cut short, damaged or changed, or an array is missing, of another shape, or
            holds what is no logarithm of a probability.
    """
    path = folder / WEIGHTS
    check_regular(path)
    check_seal(path, REMEDY)
    try:
        with safe_open(path, framework="numpy"):  # checks header, offsets and length
            pass
        arrays = _map(path)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise RunError(f"cannot read {path}: it is damaged ({error}); {REMEDY}") from error
    for name, array in arrays.items():
        # The largest is NaN where any is; minus infinity is the logarithm of zero.
        if array.dtype.kind == "f" and array.size and not array.max() < np.inf:
            raise RunError(f"{path}: {name!r} holds what is no finite number; {REMEDY}")
    for name, (dtype, shape) in (expected or {}).items():
        if name not in arrays:
            raise RunError(
                f"{path} lacks {name!r} of shape {shape}; it was written for another kind of model"
            )
        found = arrays[name]
        if found.shape != shape or found.dtype != dtype:
            raise RunError(
                f"{path}: {name!r} is {found.dtype} of shape {found.shape}, "
                f"but recipe and vocabulary ask for {dtype} of shape {shape}"
            )
    return arrays


def check_regular(path: Path) -> None:
    """Raise a RunError where a file of weights is missing, or is a pipe or a device, which need never end."""
    if not path.is_file():
        reason = "it is no regular file" if path.exists() else "it is missing"
        raise RunError(f"cannot read {path}: {reason}; {REMEDY}")


def _map(path: Path) -> dict[str, NDArray[Any]]:
    """Return views of one mapping of the file: its header is a length and JSON, the arrays follow."""
    data = np.memmap(path, np.uint8, mode="r")
    begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header: dict[str, Any] = json.loads(data[8:begin].tobytes())
    arrays: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            part = np.asarray(data[begin + first : begin + last])
            arrays[name] = part.view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays
