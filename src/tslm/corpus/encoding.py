"""Text → ids on disk: one pass over the text, then two cheap ones over numbers, in bounded memory.

The text is read once. Each new chunk between white space takes the next free number, and the numbers go to a raw file.
When all is read, the text rule cuts each different chunk into words, the words of train are counted, the vocabulary is
made, and the raw numbers are written anew as ids. Memory holds the table of chunks and one block of text or numbers,
whatever the size of the corpus.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.chunks import EOS_NUMBER, Cuts, Numbers, RawText, cut_chunks, write_chunks
from tslm.corpus.rule import RULE_FILE, TextRule, find_rule
from tslm.corpus.text import TextSize
from tslm.corpus.vocabulary import EOS, Vocabulary, unknown_word
from tslm.errors import CorpusError

SPLITS = ("train", "valid", "test")
ALL = "all"
"""Stands for a text that is yet to be split into train, valid and test."""

FORMAT = 2
"""The number of the layout on disk, part of the cache's key."""

_BLOCK_LINES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How a text becomes ids; the options of a corpus that change its tokens."""

    tokeniser: str = TextRule.kind
    lower: bool = False
    min_count: int = 1
    max_vocabulary: int | None = None
    valid_fraction: float = 0.05
    test_fraction: float = 0.05
    split_seed: int = 0


def encode_text(texts: Mapping[str, Iterable[str]], folder: Path, encoding: Encoding) -> None:
    """Write the vocabulary, the text rule and the ids of a text into ``folder``.

    Args:
        texts: pieces of text, cut at white space, for train, valid and test, or for ``all`` of them together.
        folder: an empty folder; holds ``vocabulary.txt``, ``text.json``, ``train.npy``, … and ``corpus.json``
            afterwards.
        encoding: the options.

    Raises:
        CorpusError: too few lines to split, or a word outside the vocabulary where there is no ``<unk>``.
    """
    chunks = Numbers()
    raw = {
        split: write_chunks(pieces, chunks, folder / split, encoding.lower) for split, pieces in texts.items()
    }
    if ALL in raw:
        _check_split(raw[ALL].lines, encoding)
    counts = {split: np.zeros(len(chunks), np.int64) for split in SPLITS}
    for split, block in _portions(raw, encoding):
        counts[split] += np.bincount(block, minlength=len(chunks))
    sizes = _measure(raw, counts, encoding)
    rule = _make_rule(chunks, counts["train"], encoding)
    cuts = cut_chunks(rule, chunks)
    counts = {split: cuts.count(of_chunks) for split, of_chunks in counts.items()}
    vocabulary = _choose_words(rule, cuts.words, counts["train"], encoding)
    ids = _id_of_number(cuts.words, vocabulary)
    if vocabulary.unk_id is None:
        _refuse_unknown(cuts.words, ids, counts)
    digests = _write_ids(_portions(raw, encoding), cuts, ids, counts, folder)
    for text in raw.values():
        text.remove()
    vocabulary.save(folder / "vocabulary.txt")
    rule.save(folder / RULE_FILE)
    tokens = {split: int(counts[split].sum()) for split in SPLITS}
    description = {
        "fingerprint": join_digests(vocabulary, tokens, digests),
        "tokens": tokens,
        "text": {split: asdict(size) for split, size in sizes.items()},
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


def _portions(raw: Mapping[str, RawText], encoding: Encoding) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """Yield the numbers of all splits block by block, each with the name of its split."""
    for name, text in raw.items():
        line = 0
        for block in text.numbers():
            if name != ALL:
                yield name, block
                continue
            ends = np.flatnonzero(block == EOS_NUMBER) + 1
            last = line + len(ends) + (block[-1] != EOS_NUMBER)  # a line may go on in the next block
            labels = label_lines(line, int(last), text.lines, encoding)
            lengths = np.diff(ends, prepend=0, append=len(block))[: len(labels)]
            label_of_token = np.repeat(labels, lengths)
            for label, split in enumerate(SPLITS):
                yield split, block[label_of_token == label]
            line += len(ends)


def _measure(
    raw: Mapping[str, RawText], counts: Mapping[str, NDArray[np.int64]], encoding: Encoding
) -> dict[str, TextSize]:
    """Return the size of each split as text, given how often each chunk stands in it."""
    sizes: dict[str, int] = dict.fromkeys(SPLITS, 0)
    for name, text in raw.items():
        line = 0
        for block in text.bytes_of_lines():
            if name == ALL:
                labels = label_lines(line, line + len(block), text.lines, encoding)
                for label, split in enumerate(SPLITS):
                    sizes[split] += int(block[labels == label].sum())
            else:
                sizes[name] += int(block.sum())
            line += len(block)
    lines = {split: int(of_chunks[EOS_NUMBER]) for split, of_chunks in counts.items()}
    return {
        split: TextSize(size, int(counts[split].sum()) - lines[split], lines[split])
        for split, size in sizes.items()
    }


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
            f"a text of {lines} line{'s' if lines > 1 else ''} leaves none for train after {valid} for valid and "
            f"{test} for test; give more lines, one sentence on each, or smaller fractions"
        )


def _share(fraction: float, lines: int) -> int:
    # Rounded up, so that the smallest split has a line; the small number undoes float noise such as 0.1 × 30.
    return math.ceil(fraction * lines - 1e-9)


def _make_rule(chunks: Numbers, counts: NDArray[np.int64], encoding: Encoding) -> TextRule:
    """Return the rule that the options ask for, learnt from the chunks of train where it is to be learnt."""
    pairs = zip(chunks, counts.tolist(), strict=True)
    return find_rule(encoding.tokeniser).learn(
        ((chunk, count) for chunk, count in pairs if count and chunk != EOS),
        lower=encoding.lower,
        min_count=encoding.min_count,
        max_vocabulary=encoding.max_vocabulary,
    )


def _choose_words(
    rule: TextRule, words: Numbers, counts: NDArray[np.int64], encoding: Encoding
) -> Vocabulary:
    """Return the vocabulary of the words that stand in train, or of all that the rule can make."""
    table = {word: count for word, count in zip(words, counts.tolist(), strict=True) if count}
    if (possible := rule.all_words()) is not None:
        return Vocabulary.from_counts(dict.fromkeys(possible, 0) | table, min_count=0)
    return Vocabulary.from_counts(table, encoding.min_count, encoding.max_vocabulary)


def _id_of_number(words: Numbers, vocabulary: Vocabulary) -> NDArray[np.int32]:
    """Return the id of each number: that of the word, else that of ``<unk>``, else -1."""
    unknown = -1 if vocabulary.unk_id is None else vocabulary.unk_id
    return np.fromiter(map(vocabulary.ids.get, words, repeat(unknown)), np.int32, len(words))


def _refuse_unknown(words: Numbers, ids: NDArray[np.int32], counts: Mapping[str, NDArray[np.int64]]) -> None:
    """Raise an error if a split has a word that the vocabulary lacks; for a vocabulary without ``<unk>``."""
    for split in SPLITS:
        outside = np.flatnonzero((ids < 0) & (counts[split] > 0))
        if len(outside):
            word = next(word for word, number in words.items() if number == outside[0])
            raise CorpusError(f"{split}: {unknown_word(word)}")


def _write_ids(
    portions: Iterator[tuple[str, NDArray[np.int32]]],
    cuts: Cuts,
    ids: NDArray[np.int32],
    counts: Mapping[str, NDArray[np.int64]],
    folder: Path,
) -> dict[str, str]:
    """Write the ids of each split as ``.npy``; return the SHA-256 over each."""
    digests = {split: hashlib.sha256() for split in SPLITS}
    ids_of_flat = ids[cuts.flat].astype("<i4", copy=False)
    with ExitStack() as stack:
        handles = {split: stack.enter_context((folder / f"{split}.npy").open("wb")) for split in SPLITS}
        for split, handle in handles.items():
            header = {"descr": "<i4", "fortran_order": False, "shape": (int(counts[split].sum()),)}
            np.lib.format.write_array_header_1_0(handle, header)
        for split, block in portions:
            data = cuts.expand(block, ids_of_flat).data
            digests[split].update(data)
            handles[split].write(data)
    return {split: digest.hexdigest() for split, digest in digests.items()}
