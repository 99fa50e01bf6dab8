"""The raw lines of a split, as they stood in the text before any rule made words of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tslm.corpus import embedded
from tslm.corpus.encoding import ALL, Encoding, label_lines
from tslm.corpus.files import STANDARD_INPUT, find_own_files, is_pipe, read_files
from tslm.corpus.named import NAMED, check_data_dir, download_corpus, find_files
from tslm.corpus.sources import SPLITS, CorpusConfig, open_corpus
from tslm.corpus.vocabulary import EOS
from tslm.errors import CorpusError, nearest

_BLOCK_LINES = 1 << 16


def read_split(config: CorpusConfig, split: str, data_dir: Path | str | None = None) -> Iterator[str]:
    """Yield the lines of a split as they stand in its files, without their newlines.

    Which lines those are does not depend on the tokeniser, so models that cut the same text into other words can be
    compared on the same lines.

    Args:
        config: the corpus.
        split: ``train``, ``valid`` or ``test``.
        data_dir: where to look for the files of named corpora first.

    Raises:
        CorpusError: the text is not here any more, or there is no such split.
    """
    if split not in SPLITS:
        raise CorpusError(f"there is no split {split!r}: {nearest(split, SPLITS)}")
    if not config.path and config.name == embedded.NAME:
        yield from join_pieces(embedded.read_embedded(split))
    elif not config.path:
        named = NAMED[open_corpus(config, data_dir).name]
        files = find_files(named, check_data_dir(data_dir)) or download_corpus(named)
        yield from join_pieces(read_files([files[split]]))
    elif any(path == STANDARD_INPUT or is_pipe(path) for path in config.path):
        raise CorpusError("the text came through a pipe and is gone; give a file with the text")
    else:
        files = find_own_files(config.path)
        if split in files:
            yield from join_pieces(read_files(files[split]))
        else:
            yield from _choose_lines(config, split, join_pieces(read_files(files[ALL])))


def find_example(config: CorpusConfig, words: tuple[int, int] = (6, 14)) -> str | None:
    """Return the first line of middling length of a corpus, from its test split where it has one in a file.

    Returns:
        None where the text is not here; nothing is downloaded for it.
    """
    least, most = words
    try:
        if not config.path and config.name == embedded.NAME:
            lines = join_pieces(embedded.read_embedded("test"))
        elif not config.path:
            files = find_files(NAMED[config.name], None) if config.name in NAMED else None
            lines = join_pieces(read_files([files["test"]])) if files else iter(())
        elif any(path == STANDARD_INPUT or is_pipe(path) for path in config.path):
            return None
        else:
            own = find_own_files(config.path)
            lines = join_pieces(read_files(own.get("test") or own[ALL]))
        return next((line.strip() for line in lines if least <= len(line.split()) <= most), None)
    except CorpusError:
        return None


def join_pieces(pieces: Iterable[str]) -> Iterator[str]:
    """Yield whole lines of a text that comes in pieces cut anywhere; every line of it ends in a newline."""
    held: list[str] = []
    for piece in pieces:
        first, *rest = piece.split("\n")
        held.append(first)
        if rest:
            yield "".join(held)
            yield from rest[:-1]
            held = [rest[-1]]


def _choose_lines(config: CorpusConfig, split: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text that were drawn for a split; a marker ``<eos>`` within a line ends one too."""
    total = sum(size.lines for size in open_corpus(config).sizes.values())
    encoding = Encoding(
        valid_fraction=config.valid_fraction,
        test_fraction=config.test_fraction,
        split_seed=config.split_seed,
    )
    marker = re.compile(rf"(?<!\S){EOS}(?!\S)", re.IGNORECASE if config.lower else re.NOFLAG)
    wanted = SPLITS.index(split)
    labels: list[int] = []
    parts = (part for line in lines for part in marker.split(line))
    for number, line in enumerate(parts):
        if number % _BLOCK_LINES == 0:
            labels = label_lines(number, min(number + _BLOCK_LINES, total), total, encoding).tolist()
        if labels[number % _BLOCK_LINES] == wanted:
            yield line
