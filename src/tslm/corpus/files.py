"""The user's own text: several files, a folder with train, valid and test, or standard input."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tslm.corpus.cache import cache_dir, writing_cache
from tslm.corpus.encoding import ALL
from tslm.corpus.progress import show_bytes
from tslm.corpus.text import read_text
from tslm.errors import CorpusError

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
    given = [Path(path).expanduser() for path in paths]
    for path in given:
        if not path.exists():
            raise CorpusError(f"no such file or folder: {path}; check the path")
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
    with show_bytes(f"reading {shown}", sum(path.stat().st_size for path in paths)) as advance:
        for path in paths:
            yield from read_text(path, advance)


@contextmanager
def standard_input(paths: Sequence[str]) -> Generator[Path, None, None]:
    """Yield a temporary file with all of standard input, since a text is read twice: for its hash and for itself."""
    if len(paths) > 1:
        raise CorpusError(f"{STANDARD_INPUT} (standard input) stands among {len(paths)} paths; give it alone")
    with writing_cache():
        cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".stdin.") as folder:
            path = Path(folder) / "standard input"
            with path.open("wb") as handle:
                shutil.copyfileobj(sys.stdin.buffer, handle)
            yield path


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
