"""Encoding: equal to a slow twin with plain loops; splits by lines are exact, seeded and complete."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tslm.corpus import chunks as chunks_module
from tslm.corpus import encoding as encoding_module
from tslm.corpus.embedded import Verses
from tslm.corpus.encoding import ALL, SPLITS, Encoding, encode_text, fingerprint, label_lines
from tslm.corpus.rule import TextRule, load_rule
from tslm.corpus.text import TextSize
from tslm.corpus.vocabulary import EOS, UNK, Vocabulary
from tslm.corpus.words import Words
from tslm.errors import CorpusError

chunks = ["a", "b", "c", "D", "E", UNK, "“a", "b,", "c.”", "d’s", "D-é", "a!"]
lines_of_words = st.lists(st.lists(st.sampled_from(chunks), max_size=5), min_size=1)


def join(lines: list[list[str]]) -> list[str]:
    return [" ".join(line) + "\n" for line in lines]


def read(folder: Path) -> tuple[Vocabulary, dict[str, np.ndarray]]:
    splits = {split: np.load(folder / f"{split}.npy", allow_pickle=False) for split in SPLITS}
    return Vocabulary.load(folder / "vocabulary.txt"), splits


def encode_slowly(
    texts: dict[str, list[list[str]]], options: Encoding, rule: TextRule
) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """The slow twin: word by word, straight from the rules."""
    tokens: dict[str, list[str]] = {}
    for split, lines in texts.items():
        tokens[split] = []
        for line in lines:
            for chunk in line:
                tokens[split] += rule.split(chunk)
            tokens[split].append(EOS)
    counts = Counter(tokens["train"])
    kept = {EOS: counts[EOS]}
    room = None if options.max_vocabulary is None else options.max_vocabulary - 2
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        if word in (EOS, UNK):
            continue
        if counts[word] >= options.min_count and (room is None or len(kept) <= room):
            kept[word] = counts[word]
    if UNK in counts or options.min_count > 1 or options.max_vocabulary is not None:
        kept[UNK] = sum(count for word, count in counts.items() if word not in kept)
    words = tuple(sorted(kept, key=lambda word: (-kept[word], word)))
    return words, {split: [word if word in kept else UNK for word in of] for split, of in tokens.items()}


@settings(max_examples=50)
@given(
    train=lines_of_words,
    valid=lines_of_words,
    test=lines_of_words,
    tokeniser=st.sampled_from(["spaces", "words", "asv"]),
    lower=st.booleans(),
    min_count=st.integers(2, 3),
    max_vocabulary=st.none() | st.integers(3, 8),
)
def test_ids_and_vocabulary_are_those_of_the_slow_twin(
    tmp_path_factory, train, valid, test, tokeniser, lower, min_count, max_vocabulary
):
    folder = tmp_path_factory.mktemp("encoded")
    lower = lower or tokeniser == "asv"
    options = Encoding(tokeniser=tokeniser, lower=lower, min_count=min_count, max_vocabulary=max_vocabulary)
    texts = {"train": train, "valid": valid, "test": test}
    encode_text({split: join(lines) for split, lines in texts.items()}, folder, options)
    vocabulary, splits = read(folder)
    rule = {"spaces": TextRule(lower), "words": Words.make(lower), "asv": Verses()}[tokeniser]
    words, tokens = encode_slowly(texts, options, rule)
    assert load_rule(folder / "text.json") == rule
    assert vocabulary.words == words
    for split in SPLITS:
        assert vocabulary.decode(splits[split]) == tokens[split]
    description = json.loads((folder / "corpus.json").read_text())
    assert description["fingerprint"] == fingerprint(vocabulary, splits)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*description["bytes"], "corpus.json"])


@given(
    total=st.integers(3, 500),
    valid=st.floats(0.01, 0.3),
    test=st.floats(0.01, 0.3),
    seed=st.integers(0, 5),
    block=st.integers(3, 100),
)
def test_every_line_goes_to_one_split_in_the_shares_asked_for(total, valid, test, seed, block):
    options = Encoding(valid_fraction=valid, test_fraction=test, split_seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding_module, "_BLOCK_LINES", block)
        labels = label_lines(0, total, total, options)
        middle = total // 2
        parts = [label_lines(0, middle, total, options), label_lines(middle, total, total, options)]
    assert np.concatenate(parts).tolist() == labels.tolist()  # however the lines are read
    counts = np.bincount(labels, minlength=3)
    assert counts.min() >= 1
    assert abs(counts[1] - valid * total) <= 1
    assert abs(counts[2] - test * total) <= 2  # one less where a last block of one line is wanted by both


def test_a_text_is_split_by_whole_lines_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chunks_module, "_BLOCK_NUMBERS", 7)  # blocks that cut lines
    lines = [[f"n{number}"] * (number % 4) for number in range(100)]
    options = Encoding(max_vocabulary=1000, valid_fraction=0.2, test_fraction=0.1, split_seed=3)
    encode_text({ALL: join(lines)}, tmp_path, options)
    vocabulary, splits = read(tmp_path)
    labels = label_lines(0, 100, 100, options)
    known = {word for line, label in zip(lines, labels, strict=True) if label == 0 for word in line}
    for label, split in enumerate(SPLITS):
        expected = [
            word
            for line, of_line in zip(lines, labels, strict=True)
            if of_line == label
            for word in (*(word if word in known else UNK for word in line), EOS)
        ]
        assert vocabulary.decode(splits[split]) == expected


def sizes_of(folder: Path) -> dict[str, TextSize]:
    description = json.loads((folder / "corpus.json").read_text())
    return {split: TextSize(**size) for split, size in description["text"].items()}


@pytest.mark.parametrize("tokeniser", ["spaces", "words", "bpe"])
@pytest.mark.parametrize("lower", [False, True])
def test_splits_are_measured_as_they_stand_in_the_file(
    tokeniser: str, lower: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(chunks_module, "_BLOCK_NUMBERS", 11)
    monkeypatch.setattr(encoding_module, "_BLOCK_LINES", 16)
    kinds = ["plain words", "  two  spaces ", "", "ÜBER İt, “gut”", "carriage\r", "tab\there", "\u00a0"]
    lines = [f"{kinds[number % 7]} {'x' * (number % 3)}" if number % 7 else "" for number in range(90)]
    text = "".join(f"{line}\n" for line in lines)
    pieces = re.findall(r"\S*\s", text)
    assert "".join(pieces) == text
    options = Encoding(
        tokeniser=tokeniser, lower=lower, max_vocabulary=300, valid_fraction=0.2, test_fraction=0.1
    )
    encode_text({ALL: pieces}, tmp_path, options)
    found = sizes_of(tmp_path)
    labels = label_lines(0, 90, 90, options)
    for label, split in enumerate(SPLITS):
        own = [line for line, of_line in zip(lines, labels, strict=True) if of_line == label]
        size = sum(len(line.encode()) + 1 for line in own)
        assert found[split] == TextSize(size, sum(len(line.split()) for line in own), len(own))


def test_a_marker_in_the_text_ends_a_line_that_is_measured(tmp_path: Path):
    text = "a b <eos> é c\n" * 10 + "<EOS> d\n" * 20
    options = Encoding(max_vocabulary=300, valid_fraction=0.1, test_fraction=0.1)
    for name, lower in (("plain", False), ("lower", True)):
        (tmp_path / name).mkdir()
        encode_text({ALL: [text]}, tmp_path / name, replace(options, lower=lower))
        sizes = sizes_of(tmp_path / name).values()
        assert sum(size.bytes for size in sizes) == len(text.encode())
        assert sum(size.lines for size in sizes) == 40 + 20 * lower
        assert sum(size.words for size in sizes) == 40 + 20 + 20 * (not lower)


def test_subwords_are_learnt_from_train_only(tmp_path: Path):
    texts = {"train": ["aa aa aa bb\n"] * 9, "valid": ["zzzz zzzz zzzz\n"] * 50, "test": ["a ü\n"]}
    encode_text(texts, tmp_path, Encoding(tokeniser="bpe", min_count=2, max_vocabulary=300))
    vocabulary, splits = read(tmp_path)
    assert vocabulary.words[0] == "Ġaa"
    assert vocabulary.decode(splits["valid"])[:6] == ["Ġ", "z", "z", "z", "z", "Ġ"]
    assert not [word for word in vocabulary.words if "zz" in word]
    rule = load_rule(tmp_path / "text.json")
    for split, pieces in texts.items():
        assert vocabulary.decode(splits[split]) == rule.split_lines("".join(pieces))


def test_another_seed_splits_otherwise():
    first, second = (label_lines(0, 1000, 1000, Encoding(split_seed=seed)) for seed in (0, 1))
    assert (first != second).any()


def test_two_lines_cannot_be_split(tmp_path: Path):
    with pytest.raises(CorpusError, match="a text of 2 lines leaves none for train"):
        encode_text({ALL: ["a\nb\n"]}, tmp_path, Encoding())
    with pytest.raises(CorpusError, match="a text of 1 line leaves none for train"):
        encode_text({ALL: ["a\n"]}, tmp_path, Encoding())


def test_a_word_that_only_valid_has_is_named_where_there_is_no_unk(tmp_path: Path):
    texts = {"train": ["a b\n"], "valid": ["a new b\n"], "test": ["a\n"]}
    with pytest.raises(CorpusError, match=r"valid: the word 'new' is not in the vocabulary.*no <unk>"):
        encode_text(texts, tmp_path, Encoding(min_count=1))
