"""Text → ids on disk: one pass over the text, then two cheap ones over numbers, in bounded memory.

The text is read once. Each new word takes the next free number, and the numbers go to a raw file. When all
is read, the words of train are counted, the vocabulary is made, and the raw numbers are written anew as ids.
Memory holds the table of words and one block of text or numbers, whatever the size of the corpus.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.vocabulary import EOS, Vocabulary, unknown_word
from tslm.errors import CorpusError

SPLITS = ("train", "valid", "test")
ALL = "all"
"""Stands for a text that is yet to be split into train, valid and test."""

FORMAT = 1
"""The number of the layout on disk, part of the cache's key."""

_BLOCK_TOKENS = 1 << 20
_BLOCK_LINES = 1 << 16
_EOS_NUMBER = 0


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How a text becomes ids; the options of a corpus that change its tokens."""

    lower: bool = False
    min_count: int = 1
    max_vocabulary: int | None = None
    valid_fraction: float = 0.05
    test_fraction: float = 0.05
    split_seed: int = 0


class _Numbers(dict[str, int]):
    """Words in the order of their first appearance; a new word takes the next number."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


def encode_text(texts: Mapping[str, Iterable[str]], folder: Path, encoding: Encoding) -> None:
    """Write the vocabulary and the ids of a text into ``folder``.

    Args:
        texts: pieces of text, cut between words, for train, valid and test, or for ``all`` of them together.
        folder: an empty folder; holds ``vocabulary.txt``, ``train.npy``, … and ``corpus.json`` afterwards.
        encoding: the options.

    Raises:
        CorpusError: too few lines to split, or a word outside the vocabulary where there is no ``<unk>``.
    """
    numbers = _Numbers({EOS: _EOS_NUMBER})
    raw = {split: folder / f"{split}.raw" for split in texts}
    lines = {
        split: _write_raw(pieces, numbers, raw[split], encoding.lower) for split, pieces in texts.items()
    }
    if ALL in lines:
        _check_split(lines[ALL], encoding)
    counts = {split: np.zeros(len(numbers), np.int64) for split in SPLITS}
    for split, block in _portions(raw, lines, encoding):
        counts[split] += np.bincount(block, minlength=len(numbers))
    vocabulary = _choose_words(numbers, counts["train"], encoding)
    ids = _id_of_number(numbers, vocabulary)
    if vocabulary.unk_id is None:
        _refuse_unknown(numbers, ids, counts)
    digests = _write_ids(_portions(raw, lines, encoding), ids, counts, folder)
    for path in raw.values():
        path.unlink()
    vocabulary.save(folder / "vocabulary.txt")
    tokens = {split: int(counts[split].sum()) for split in SPLITS}
    description = {
        "fingerprint": join_digests(vocabulary, tokens, digests),
        "tokens": tokens,
        "bytes": {path.name: path.stat().st_size for path in sorted(folder.iterdir())},
    }
    (folder / "corpus.json").write_text(json.dumps(description, indent=1), encoding="utf-8")


def join_digests(vocabulary: Vocabulary, tokens: Mapping[str, int], digests: Mapping[str, str]) -> str:
    """Return the SHA-256 over the words and all ids of a corpus, given that over the ids of each split."""
    digest = hashlib.sha256("\n".join(vocabulary.words).encode())
    for split in SPLITS:
        digest.update(f"\n{split} {tokens[split]} {digests[split]}".encode())
    return digest.hexdigest()


def fingerprint(vocabulary: Vocabulary, splits: Mapping[str, NDArray[np.int32]]) -> str:
    """Return the fingerprint of a corpus in memory."""
    digests = {
        split: hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest() for split, ids in splits.items()
    }
    return join_digests(vocabulary, {split: len(ids) for split, ids in splits.items()}, digests)


def _write_raw(pieces: Iterable[str], numbers: _Numbers, path: Path, lower: bool) -> int:
    """Write the numbers of all words of a text; return how many lines it has."""
    lines = 0
    number_of = numbers.__getitem__
    with path.open("wb") as handle:
        for piece in pieces:
            words = (piece.lower() if lower else piece).replace("\n", f" {EOS} ").split()
            block = np.fromiter(map(number_of, words), np.int32, len(words))
            lines += int(np.count_nonzero(block == _EOS_NUMBER))
            handle.write(block.data)
    return lines


def _portions(
    raw: Mapping[str, Path], lines: Mapping[str, int], encoding: Encoding
) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """Yield the numbers of all splits block by block, each with the name of its split."""
    for name, path in raw.items():
        line = 0
        with path.open("rb") as handle:
            while len(block := np.fromfile(handle, np.int32, _BLOCK_TOKENS)):
                if name != ALL:
                    yield name, block
                    continue
                ends = np.flatnonzero(block == _EOS_NUMBER) + 1
                last = line + len(ends) + (block[-1] != _EOS_NUMBER)  # a line may go on in the next block
                labels = label_lines(line, int(last), lines[ALL], encoding)
                lengths = np.diff(ends, prepend=0, append=len(block))[: len(labels)]
                label_of_token = np.repeat(labels, lengths)
                for label, split in enumerate(SPLITS):
                    yield split, block[label_of_token == label]
                line += len(ends)


def label_lines(first: int, last: int, total: int, encoding: Encoding) -> NDArray[np.uint8]:
    """Return the split of each line from ``first`` to before ``last``: 0 for train, 1 for valid, 2 for test.

    Lines are drawn at random, block by block, so that each split has its share of every part of the text to
    within a line, at least one line in all, and a line's label does not depend on how the text is read.
    """
    labels: list[NDArray[np.uint8]] = []
    for block in range(first // _BLOCK_LINES, -(-last // _BLOCK_LINES)):
        start, stop = block * _BLOCK_LINES, min((block + 1) * _BLOCK_LINES, total)
        of_block = np.zeros(stop - start, np.uint8)
        valid, test = (
            _share(fraction, stop) - _share(fraction, start)
            for fraction in (encoding.valid_fraction, encoding.test_fraction)
        )
        order = np.random.default_rng([encoding.split_seed, block]).permutation(stop - start)
        of_block[order[:valid]] = 1
        of_block[order[valid : valid + test]] = 2
        labels.append(of_block[max(first - start, 0) : last - start])
    return np.concatenate(labels)


def _check_split(lines: int, encoding: Encoding) -> None:
    valid, test = _share(encoding.valid_fraction, lines), _share(encoding.test_fraction, lines)
    if valid + test >= lines:
        raise CorpusError(
            f"a text of {lines} lines leaves none for train after {valid} for valid and {test} for test; "
            "give more lines or smaller fractions"
        )


def _share(fraction: float, lines: int) -> int:
    # Rounded up, so that the smallest split has a line; the small number undoes float noise such as 0.1 × 30.
    return math.ceil(fraction * lines - 1e-9)


def _choose_words(numbers: _Numbers, counts: NDArray[np.int64], encoding: Encoding) -> Vocabulary:
    """Return the vocabulary of the words that stand in train."""
    table = {word: count for word, count in zip(numbers, counts.tolist(), strict=True) if count}
    return Vocabulary.from_counts(table, encoding.min_count, encoding.max_vocabulary)


def _id_of_number(numbers: _Numbers, vocabulary: Vocabulary) -> NDArray[np.int32]:
    """Return the id of each number: that of the word, else that of ``<unk>``, else -1."""
    unknown = -1 if vocabulary.unk_id is None else vocabulary.unk_id
    return np.fromiter(map(vocabulary.ids.get, numbers, repeat(unknown)), np.int32, len(numbers))


def _refuse_unknown(
    numbers: _Numbers, ids: NDArray[np.int32], counts: Mapping[str, NDArray[np.int64]]
) -> None:
    """Raise an error if a split has a word that the vocabulary lacks; for a vocabulary without ``<unk>``."""
    for split in SPLITS:
        outside = np.flatnonzero((ids < 0) & (counts[split] > 0))
        if len(outside):
            word = next(word for word, number in numbers.items() if number == outside[0])
            raise CorpusError(f"{split}: {unknown_word(word)}")


def _write_ids(
    portions: Iterator[tuple[str, NDArray[np.int32]]],
    ids: NDArray[np.int32],
    counts: Mapping[str, NDArray[np.int64]],
    folder: Path,
) -> dict[str, str]:
    """Write the ids of each split as ``.npy``; return the SHA-256 over each."""
    digests = {split: hashlib.sha256() for split in SPLITS}
    with ExitStack() as stack:
        handles = {split: stack.enter_context((folder / f"{split}.npy").open("wb")) for split in SPLITS}
        for split, handle in handles.items():
            header = {"descr": "<i4", "fortran_order": False, "shape": (int(counts[split].sum()),)}
            np.lib.format.write_array_header_1_0(handle, header)
        for split, block in portions:
            data = ids[block].astype("<i4", copy=False).data
            digests[split].update(data)
            handles[split].write(data)
    return {split: digest.hexdigest() for split, digest in digests.items()}
