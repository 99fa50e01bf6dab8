"""The user's own text: several files, a folder with train, valid and test, or standard input."""

from __future__ import annotations

import re
import stat
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tslm.cache import cache_dir, writing_cache
from tslm.corpus.encoding import ALL
from tslm.corpus.text import read_text
from tslm.errors import CorpusError
from tslm.progress import track_bytes

STANDARD_INPUT = "-"

_WORDS_OF_SPLIT = {
    "train": {"train", "training"},
    "valid": {"valid", "validation", "val", "dev"},
    "test": {"test", "testing"},
}
_NOT_TEXT = {".json", ".jsonl", ".md", ".npy", ".py", ".toml", ".yaml", ".yml", ".zip"}


def find_own_files(paths: Sequence[str]) -> dict[str, list[Path]]:
    """Return the files of each split, or all of them under ``all`` where they are yet to be split.

    Raises:
        CorpusError: a path is missing, or a folder is not one with exactly one train, valid and test file.
    """
    given: list[Path] = []
    for path in map(Path, paths):
        try:
            given.append(path.expanduser())
            given[-1].stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CorpusError(f"no such file or folder: {path}; check the path") from error
        except (OSError, ValueError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise CorpusError(f"cannot read {path}: {reason}; check the path and its permissions") from error
    folders = [path for path in given if path.is_dir()]
    if not folders:
        return {ALL: given}
    if len(given) > 1:
        raise CorpusError(
            f"{folders[0]} is a folder among {len(given)} paths; give files, or one folder alone"
        )
    return _find_splits(folders[0])


def read_files(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the text of several files one after the other, with a progress bar when it takes long."""
    shown = paths[0].name if len(paths) == 1 else f"{len(paths)} files"
    with track_bytes(f"reading {shown}", sum(path.stat().st_size for path in paths)) as advance:
        for path in paths:
            yield from read_text(path, advance)


def is_pipe(path: str) -> bool:
    """Say whether a path is that of a pipe, such as the shell's ``<(zcat parts/*.gz)``."""
    try:
        return stat.S_ISFIFO(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


@contextmanager
def spooled(paths: Sequence[str]) -> Generator[list[str], None, None]:
    """Yield the paths with a temporary file for standard input and for each pipe.

    A text is read twice, for its hash and for itself, and what comes through a pipe comes once.

    Raises:
        CorpusError: standard input is one of several paths, or a temporary file cannot be written.
    """
    if STANDARD_INPUT in paths and len(paths) > 1:
        raise CorpusError(f"{STANDARD_INPUT} (standard input) stands among {len(paths)} paths; give it alone")
    if not any(path == STANDARD_INPUT or is_pipe(path) for path in paths):
        yield list(paths)
        return
    with writing_cache():
        cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".stdin.") as folder:
            found: list[str] = []
            for number, path in enumerate(paths, start=1):
                if path == STANDARD_INPUT:
                    found.append(_spool(sys.stdin.buffer.read, Path(folder) / "standard input"))
                elif is_pipe(path):
                    with Path(path).open("rb") as pipe:
                        found.append(_spool(pipe.read, Path(folder) / f"pipe {number}"))
                else:
                    found.append(path)
            yield found


def _spool(read: Callable[[int], bytes], path: Path) -> str:
    """Write all that comes through a stream to a file; return the file's path."""
    with path.open("wb") as handle, track_bytes(f"reading {path.name}", total=None) as advance:
        while block := read(1 << 20):
            handle.write(block)
            advance(len(block))
    return str(path)


def _find_splits(folder: Path) -> dict[str, list[Path]]:
    """Return the file of each split of a folder; ``ptb.train.txt`` or ``train.txt.gz`` is one for train."""
    files = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".") and path.suffix not in _NOT_TEXT
    )
    found: dict[str, list[Path]] = {}
    for split, words in _WORDS_OF_SPLIT.items():
        matching = [path for path in files if words & set(re.split(r"[._-]", path.name.lower()))]
        if not matching:
            raise CorpusError(
                f"the folder {folder} has no {split} split; add a file {split}.txt, "
                "or give a single file to have it split by lines"
            )
        if len(matching) > 1:
            names = ", ".join(path.name for path in matching)
            raise CorpusError(f"the folder {folder} has several {split} files ({names}); keep one of them")
        found[split] = matching
    return found
