"""Corpora: the named ones and the user's own files, as flat arrays of word ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
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
from tslm.corpus.rule import RULE_FILE, TextRule, Tokeniser, find_rule, load_rule
from tslm.corpus.store import prepare_corpus
from tslm.corpus.subwords import SMALLEST_SIZE, USUAL_SIZE, Subwords
from tslm.corpus.text import TextSize
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError, nearest
from tslm.files import read_path

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

    tokeniser: Tokeniser | None = None
    """What is a word: ``spaces`` (the default: what stands between white space), ``words`` (punctuation split off) or
    ``bpe`` (subwords learnt from the text, so that nothing is unknown) (own text only)."""

    lower: bool = False
    """Lower-case the text (own text only)."""

    min_count: int = 2
    """Words seen less often in train become ``<unk>``; 1 keeps every word; for ``bpe``, the number of times that two
    pieces must follow each other to be joined (own text only)."""

    max_vocabulary: int | None = None
    """The largest number of words kept, ``<eos>`` and ``<unk>`` among them; for ``bpe``, of subwords: 8000 when left
    out (own text only)."""

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
        check(
            self.tokeniser != Subwords.kind or (self.max_vocabulary or USUAL_SIZE) >= SMALLEST_SIZE,
            f"corpus.max_vocabulary = {self.max_vocabulary} must be {SMALLEST_SIZE} or more for subwords, which begin "
            "with the 256 bytes",
        )
        check(self.split_seed >= 0, f"corpus.split_seed = {self.split_seed} must be 0 or more")
        for key, value in (("valid_fraction", self.valid_fraction), ("test_fraction", self.test_fraction)):
            check(0 < value < 1, f"corpus.{key} = {value} must lie between 0 and 1")
        check(
            self.valid_fraction + self.test_fraction < 1,
            f"corpus.valid_fraction + corpus.test_fraction = {self.valid_fraction + self.test_fraction:g} "
            "leaves no line for train; make them smaller",
        )

    def fixed_rule(self) -> TextRule:
        """Return the text rule of a corpus whose rule is not learnt, for models saved without theirs.

        Example:
            >>> CorpusConfig(name="asv").fixed_rule().split("Let there be light.")
            ['let', 'there', 'be', 'light', '.']

        Raises:
            CorpusError: the rule is learnt from the text.
        """
        if not self.path and self.name == embedded.NAME:
            return embedded.Verses()
        if self.tokeniser == Subwords.kind:
            raise CorpusError(
                f"subwords are learnt from the text; the model needs the {RULE_FILE} of its run"
            )
        rule = find_rule(self.tokeniser or TextRule.kind)
        return rule.learn((), lower=self.lower, min_count=self.min_count, max_vocabulary=self.max_vocabulary)


@dataclass(frozen=True, repr=False, eq=False)
class Corpus:
    """A text as word ids, split into train, valid and test.

    Example:
        >>> corpus = open_corpus("asv")
        >>> corpus.splits["train"].size, len(corpus.vocabulary)
        (815268, 10000)
    """

    name: str
    """What reports call it."""

    vocabulary: Vocabulary
    """The words of the training split."""

    splits: Mapping[str, NDArray[np.int32]]
    """Flat ids of ``train``, ``valid`` and ``test``, with one ``<eos>`` after each line."""

    fingerprint: str
    """SHA-256 over the vocabulary and all ids: two corpora with the same one are the same to a model."""

    rule: TextRule = field(default_factory=TextRule)
    """How its text became words, and other text does."""

    sizes: Mapping[str, TextSize] = field(default_factory=dict[str, TextSize])
    """How large each split is as text; empty for a corpus that was made in memory."""

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(ids):,}" for split, ids in self.splits.items())
        return f"Corpus({self.name!r}, {sizes} tokens, vocabulary {len(self.vocabulary):,})"


def open_corpus(config: CorpusConfig | str | Path, data_dir: Path | str | None = None) -> Corpus:
    """Open a corpus by name, or the user's own text; the first time it is prepared, afterwards only mapped.

    Args:
        config: a name, the path of a file or folder, or a config.
        data_dir: where to look for the files of named corpora first; then in ``TSLM_DATA``, then in the user
            cache, and at last in their public homes.

    Raises:
        CorpusError: the corpus is unknown, missing or damaged, ``data_dir`` is no folder, or the cache cannot
            be written.
    """
    if isinstance(config, Path):
        config = CorpusConfig(path=(str(config),))
    elif not isinstance(config, CorpusConfig):
        config = read_name(str(read_path(config, "corpus")))
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
    for option in fields(config):
        if option.name not in ("name", "path") and getattr(config, option.name) != option.default:
            raise CorpusError(
                f"corpus.{option.name} is for own text, and {config.name!r} is read as it is; leave it out, or "
                "give the text as corpus.path"
            )


def _open_embedded() -> Corpus:
    encoding = Encoding(tokeniser=embedded.Verses.kind, lower=True, max_vocabulary=embedded.VOCABULARY_SIZE)
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
    options: dict[str, Any] = asdict(config) | {"tokeniser": config.tokeniser or TextRule.kind}
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
    return {
        "encoding": asdict(encoding),
        "rule": find_rule(encoding.tokeniser).number,
        "format": FORMAT,
    }


def _map(name: str, folder: Path) -> Corpus:
    """Open a prepared folder; the ids stay on disk until they are read."""
    description = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    splits = {split: np.load(folder / f"{split}.npy", mmap_mode="r", allow_pickle=False) for split in SPLITS}
    vocabulary = Vocabulary.load(folder / "vocabulary.txt")
    return Corpus(
        name,
        vocabulary,
        MappingProxyType(splits),
        description["fingerprint"],
        load_rule(folder / RULE_FILE),
        MappingProxyType({split: TextSize(**size) for split, size in description["text"].items()}),
    )
