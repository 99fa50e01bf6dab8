"""An optional accelerator: the recurrence, and a training step's softmax and optimiser, compiled when asked for.

Nothing is compiled unless :func:`accelerate` is called or ``TSLM_KERNEL=1`` is set. Without it they are PyTorch
operations, and neither results nor files depend on which of the two ran (but for rounding).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tslm.cache import CACHE_VARIABLE, cache_dir
from tslm.errors import TslmError
from tslm.files import whole

KERNEL_VARIABLE = "TSLM_KERNEL"
"""The environment variable that turns the accelerator on: 1, or 0 (the default) for the loop of PyTorch operations."""

_SOURCES = tuple(Path(__file__).with_name(name) for name in ("kernel.cpp", "softmax.cpp", "rows.cpp"))
_HEADER = Path(__file__).with_name("elementary.hpp")
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC")
_NAMES = {torch.float32: "float", torch.float64: "double"}
_LOGITS = {**_NAMES, torch.bfloat16: "bfloat16"}
_POINTERS = {
    "forward": 6,
    "backward": 8,
    "affine_forward": 8,
    "affine_backward": 12,
    "gates_forward": 5,
    "gates_backward": 6,
    "row_moments": 8,
    "row_move": 8,
}
"""The functions of ``kernel.cpp`` and ``rows.cpp``, and how many arrays each takes."""
_SOFTMAX_POINTERS = {"partition": 5, "spread": 6}
"""Those of ``softmax.cpp``, whose first array may be in bfloat16."""

_chosen: Kernel | bool | None = False
"""The kernel in use, None for the loop, False before anybody has chosen."""


class Kernel:
    """The functions that were compiled."""

    def __init__(self, library: Path) -> None:
        functions = ctypes.CDLL(str(library))
        # Three sizes; threads; then pointers, as the sources name them.
        leading = [ctypes.c_long] * 3 + [ctypes.c_int]
        self._functions: dict[tuple[str, torch.dtype], Any] = {}
        for names, kinds in ((_NAMES, _POINTERS), (_LOGITS, _SOFTMAX_POINTERS)):
            for (dtype, name), (kind, pointers) in product(names.items(), kinds.items()):
                function = functions[f"{kind}_{name}"]
                function.argtypes, function.restype = leading + [ctypes.c_void_p] * pointers, None
                self._functions[kind, dtype] = function

    @staticmethod
    def takes(first: Tensor, *others: Tensor | None) -> bool:
        """Return whether all tensors are of one precision and on the CPU."""
        return first.dtype in _NAMES and all(
            tensor is None or (tensor.dtype == first.dtype and tensor.device.type == "cpu")
            for tensor in (first, *others)
        )

    def run(self, kind: str, sizes: tuple[int, ...], first: Tensor, *others: Tensor | None) -> None:
        """Call a function with its sizes (T, B, R or 1, rows, C or M) and contiguous tensors, as it names them."""
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in (first, *others)]
        threads = max(1, min(torch.get_num_threads(), sizes[1]))
        self._functions[kind, first.dtype](*sizes, threads, *pointers)


def accelerate(wanted: bool = True) -> None:
    """Use what is compiled from now on (or, with False, PyTorch operations).

    The first call on a machine compiles for some seconds; the result is kept in the cache folder.

    Raises:
        TslmError: there is no C++ compiler, or it cannot compile the kernel.
    """
    global _chosen
    _chosen = _open() if wanted else None


def active() -> Kernel | None:
    """Return the kernel in use, if any; the first question is answered by ``TSLM_KERNEL``."""
    if isinstance(_chosen, bool):
        accelerate(os.environ.get(KERNEL_VARIABLE, "0") not in ("", "0"))
    assert not isinstance(_chosen, bool)  # noqa: S101
    return _chosen


def _open() -> Kernel:
    library = _compile()
    try:
        return Kernel(library)
    except (OSError, AttributeError):
        # A damaged file in the cache: compile it once more.
        library.unlink(missing_ok=True)
        return Kernel(_compile())


def _compile() -> Path:
    """Return the compiled kernel, made anew when source, compiler or processor have changed."""
    # CXX may hold more than a name: "ccache g++".
    compiler = shlex.split(os.environ.get("CXX", "g++")) or ["g++"]
    if shutil.which(compiler[0]) is None:
        raise TslmError(
            f"no C++ compiler for the accelerator: {compiler[0]} is not "
            f"installed; install g++, name a compiler in CXX, or unset {KERNEL_VARIABLE} (slower, same results)"
        )
    # What the compiler defines tells its version and what this processor can do.
    known = _call(compiler, "-march=native", "-dM", "-E", "-x", "c++", os.devnull)
    key = hashlib.sha256(
        repr(([path.read_bytes() for path in (*_SOURCES, _HEADER)], _FLAGS, known)).encode()
    ).hexdigest()[:16]
    library = cache_dir() / "kernels" / f"{key}.so"
    library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(library.parent)
    if not library.exists():
        with whole(library) as temporary:
            _call(compiler, *_FLAGS, *map(str, _SOURCES), "-o", str(temporary))
            temporary.chmod(0o700)
    _check_owner(library)
    return library


def _check_owner(path: Path) -> None:
    """Refuse a file that is going to be executed, or its folder, if anybody else could have put it there.

    Raises:
        TslmError: it is another user's, or others may write it.
    """
    if not hasattr(os, "geteuid"):
        return  # on Windows the user's cache folder is the user's own
    found = path.stat()
    others = stat.S_IWGRP | stat.S_IWOTH
    trouble = (
        f"belongs to user {found.st_uid}, not to you ({os.geteuid()})"
        if found.st_uid != os.geteuid()
        else "can be written by others"
        if found.st_mode & others
        else None
    )
    if trouble is not None:
        raise TslmError(
            f"{path} {trouble}, so the accelerator in it is not run; delete it, set "
            f"{CACHE_VARIABLE} to a folder of your own, or unset {KERNEL_VARIABLE} (slower, same results)"
        )


def _call(compiler: list[str], *arguments: str) -> str:
    done = subprocess.run([*compiler, *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise TslmError(
            f"{compiler[0]} cannot compile the accelerator: {reason}; take another compiler "
            f"by CXX, or unset {KERNEL_VARIABLE} (slower, same results)"
        )
    return done.stdout
