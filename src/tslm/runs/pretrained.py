"""Models that come with the package, by the name of their recipe: ``asv/kn5``, ``asv/gated``.

Their weights are packed, and unpacked into the cache folder when a model is first asked for: an n-gram model is mapped
into memory, which cannot be done with a packed file.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import zstandard

from tslm.cache import cache_dir, waiting_lock, writing_cache
from tslm.errors import RunError
from tslm.files import whole
from tslm.models.arrays import WEIGHTS
from tslm.seals import SUMS

PRETRAINED = Path(__file__).parents[1] / "pretrained"
PACKED = f"{WEIGHTS}.zst"
_LEVEL = 19


def pretrained_names() -> list[str]:
    """Return the names of the models that come with the package."""
    return sorted(path.parent.relative_to(PRETRAINED).as_posix() for path in PRETRAINED.glob(f"*/*/{PACKED}"))


def find_pretrained(name: str | Path) -> Path | None:
    """Return the run folder of a model that comes with the package; None where there is none of that name.

    Raises:
        TslmError: the cache folder cannot be written.
    """
    name = Path(name).as_posix()
    if name not in pretrained_names():
        return None
    source = PRETRAINED / name
    # The list of checksums names every byte of the model, so another version of it has another folder.
    version = hashlib.sha256((source / SUMS).read_bytes()).hexdigest()[:16]
    folder = cache_dir() / "models" / version / name
    with writing_cache(), waiting_lock(folder.parent / f".{folder.name}.lock"):
        if not (folder / WEIGHTS).exists():
            _unpack(source, folder)
    return folder


def name_run(folder: Path) -> str:
    """Return the name under which a model comes with the package, or else its run folder."""
    home = cache_dir() / "models"
    return "/".join(folder.relative_to(home).parts[1:]) if folder.is_relative_to(home) else str(folder)


def pack(run: Path, folder: Path, more: tuple[str, ...] = ()) -> None:
    """Write a finished run as a model of the package.

    Args:
        run: the run folder.
        folder: where to write it, which is emptied.
        more: files of it to take along besides what opens it.

    Raises:
        RunError: a file is missing.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("recipe.toml", "vocabulary.txt", "text.json", "summary.json", SUMS, *more):
        if not (run / name).is_file():
            raise RunError(f"{run} has no {name}; finish it with tslm train")
        shutil.copyfile(run / name, folder / name)
    packed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(
        (run / WEIGHTS).read_bytes()
    )
    (folder / PACKED).write_bytes(packed)


def _unpack(source: Path, folder: Path) -> None:
    """Write the run folder, its weights last: where they are, all is there."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.name != PACKED:
            shutil.copyfile(path, folder / path.name)
    with (
        whole(folder / WEIGHTS) as temporary,
        (source / PACKED).open("rb") as packed,
        temporary.open("wb") as out,
    ):
        zstandard.ZstdDecompressor().copy_stream(packed, out)
