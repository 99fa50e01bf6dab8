"""Corpora: the named ones and the user's own files, as flat arrays of word ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.cache import hash_file
from tslm.config import check
from tslm.corpus import embedded
from tslm.corpus.encoding import FORMAT, SPLITS, Encoding, encode_text
from tslm.corpus.files import STANDARD_INPUT, find_own_files, is_pipe, read_files, spooled
from tslm.corpus.named import NAMED, NamedCorpus, check_data_dir, download_corpus, find_files
from tslm.corpus.store import prepare_corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError, nearest

DEFAULT = embedded.NAME
NAMES = (embedded.NAME, *NAMED)
"""The corpora known by name."""


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Which text a model learns, and how the text becomes words."""

    name: str = DEFAULT
    """A named corpus (``tslm data list``); with ``path``, a name of your own that reports show."""

    path: tuple[str, ...] = ()
    """The user's own text: files, or one folder with train, valid and test, or ``-`` for standard input."""

    lower: bool = False
    """Lower-case the text (own text only)."""

    min_count: int = 2
    """Words seen less often in train become ``<unk>``; 1 keeps every word (own text only)."""

    max_vocabulary: int | None = None
    """The largest number of words kept, ``<eos>`` and ``<unk>`` among them (own text only)."""

    valid_fraction: float = 0.05
    """The share of lines for valid, where the files do not say it (own text only)."""

    test_fraction: float = 0.05
    """The share of lines for test, where the files do not say it (own text only)."""

    split_seed: int = 0
    """Which lines go where, where the files do not say it (own text only)."""

    def __post_init__(self) -> None:
        check(bool(self.name), "corpus.name is empty; give a name that reports can show")
        check(self.min_count >= 1, f"corpus.min_count = {self.min_count} must be 1 or more")
        check(
            self.max_vocabulary is None or self.max_vocabulary >= 3,
            f"corpus.max_vocabulary = {self.max_vocabulary} must be 3 or more, or left out",
        )
        check(self.split_seed >= 0, f"corpus.split_seed = {self.split_seed} must be 0 or more")
        for key, value in (("valid_fraction", self.valid_fraction), ("test_fraction", self.test_fraction)):
            check(0 < value < 1, f"corpus.{key} = {value} must lie between 0 and 1")
        check(
            self.valid_fraction + self.test_fraction < 1,
            f"corpus.valid_fraction + corpus.test_fraction = {self.valid_fraction + self.test_fraction:g} "
            "leaves no line for train; make them smaller",
        )

    def prepare_text(self, text: str) -> str:
        """Return other text as this corpus was read, for its words to be looked up; lines stay lines.

        Example:
            >>> CorpusConfig(name="asv").prepare_text("And God said, Let there be light.")
            'and god said , let there be light .'
        """
        if not self.path and self.name == embedded.NAME:
            return "\n".join(" ".join(embedded.tokenise(line)) for line in text.split("\n"))
        return text.lower() if self.lower else text


@dataclass(frozen=True, repr=False, eq=False)
class Corpus:
    """A text as word ids, split into train, valid and test.

    Example:
        >>> corpus = open_corpus("ptb")
        >>> corpus.splits["train"].size, len(corpus.vocabulary)
        (929589, 10000)
    """

    name: str
    """What reports call it."""

    vocabulary: Vocabulary
    """The words of the training split."""

    splits: Mapping[str, NDArray[np.int32]]
    """Flat ids of ``train``, ``valid`` and ``test``, with one ``<eos>`` after each line."""

    fingerprint: str
    """SHA-256 over the vocabulary and all ids: two corpora with the same one are the same to a model."""

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(ids):,}" for split, ids in self.splits.items())
        return f"Corpus({self.name!r}, {sizes} tokens, vocabulary {len(self.vocabulary):,})"


def open_corpus(config: CorpusConfig | str, data_dir: Path | str | None = None) -> Corpus:
    """Open a corpus by name, or the user's own text; the first time it is prepared, afterwards only mapped.

    Args:
        config: a name, the path of a file or folder, or a config.
        data_dir: where to look for the files of named corpora first; then in ``TSLM_DATA``, then in the user
            cache, and at last in their public homes.

    Raises:
        CorpusError: the corpus is unknown, missing or damaged, ``data_dir`` is no folder, or the cache cannot
            be written.
    """
    config = read_name(config) if isinstance(config, str) else config
    data_dir = check_data_dir(data_dir)
    if config.path:
        return _open_own(config)
    _refuse_options(config)
    if config.name == embedded.NAME:
        return _open_embedded()
    if config.name in NAMED:
        return _open_named(NAMED[config.name], data_dir)
    raise CorpusError(f"unknown corpus {config.name!r}: {nearest(config.name, NAMES)}")


def read_name(name: str, **options: Any) -> CorpusConfig:
    """Return the config of what a user calls a corpus: a name, or a path to own text, or ``-``."""
    if name in NAMES:
        return CorpusConfig(name=name, **options)
    if name == STANDARD_INPUT or "/" in name or "." in name or _exists(name):
        return CorpusConfig(path=(name,), **options)
    raise CorpusError(f"unknown corpus {name!r}, and no such file: {nearest(name, NAMES)}")


def _exists(name: str) -> bool:
    """Say whether there is a file of that name; one that is too long for any file is that of none."""
    try:
        return Path(name).exists()
    except OSError:
        return False


def _refuse_options(config: CorpusConfig) -> None:
    """Raise an error for an option that a named corpus would pass over in silence."""
    for field in fields(config):
        if field.name not in ("name", "path") and getattr(config, field.name) != field.default:
            raise CorpusError(
                f"corpus.{field.name} is for own text, and {config.name!r} is read as it is; leave it out, or "
                "give the text as corpus.path"
            )


def _open_embedded() -> Corpus:
    encoding = Encoding(max_vocabulary=embedded.VOCABULARY_SIZE)
    key = {"text": embedded.describe(), **_describe(encoding)}

    def write(folder: Path) -> None:
        encode_text({split: embedded.read_embedded(split) for split in SPLITS}, folder, encoding)

    return _map(embedded.NAME, prepare_corpus(key, write))


def _open_named(named: NamedCorpus, data_dir: Path | None) -> Corpus:
    paths = find_files(named, data_dir) or download_corpus(named)
    corpus = _open_files(named.name, {split: [path] for split, path in paths.items()}, Encoding())
    for split, file in named.files.items():
        found = len(corpus.splits[split])
        if found != file.tokens:
            raise CorpusError(f"{paths[split]} has {found:,} tokens, not the {file.tokens:,} of the original")
    if len(corpus.vocabulary) != named.vocabulary:
        raise CorpusError(
            f"{paths['train']} has {len(corpus.vocabulary):,} different words, "
            f"not the {named.vocabulary:,} of the original"
        )
    return corpus


def _open_own(config: CorpusConfig) -> Corpus:
    options = asdict(config)
    encoding = Encoding(**{key: options[key] for key in Encoding.__dataclass_fields__})
    with spooled(config.path) as paths:
        files = find_own_files(paths)
        # A recipe's `name = "ptb"` with another path must not pass for Penn Treebank in reports.
        name = _name_of_path(config.path[0]) if config.name in NAMES else config.name
        return _open_files(name, files, encoding)


def _name_of_path(path: str) -> str:
    if path == STANDARD_INPUT:
        return "standard input"
    return "pipe" if is_pipe(path) else Path(path).resolve().name.split(".")[0] or "own text"


def _open_files(name: str, files: Mapping[str, list[Path]], encoding: Encoding) -> Corpus:
    hashes = {split: [hash_file(path) for path in paths] for split, paths in files.items()}
    key = {"text": hashes, **_describe(encoding)}

    def write(folder: Path) -> None:
        encode_text({split: read_files(paths) for split, paths in files.items()}, folder, encoding)
        if {split: [hash_file(path) for path in paths] for split, paths in files.items()} != hashes:
            raise CorpusError(f"the files of {name} changed while they were read; try again")

    return _map(name, prepare_corpus(key, write))


def _describe(encoding: Encoding) -> dict[str, Any]:
    return {"encoding": asdict(encoding), "format": FORMAT}


def _map(name: str, folder: Path) -> Corpus:
    """Open a prepared folder; the ids stay on disk until they are read."""
    description = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    splits = {split: np.load(folder / f"{split}.npy", mmap_mode="r", allow_pickle=False) for split in SPLITS}
    vocabulary = Vocabulary.load(folder / "vocabulary.txt")
    return Corpus(name, vocabulary, MappingProxyType(splits), description["fingerprint"])
