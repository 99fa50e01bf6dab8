"""Subwords: equal to a slow twin of byte-pair encoding, and nothing is lost or unknown."""

from __future__ import annotations

import random
import subprocess
import sys
import unicodedata
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tslm.corpus import subwords as subwords_module
from tslm.corpus.subwords import Subwords

TEXT = "the cat sat on the mat the cats sat and the naïve cat’s mats are flat that is that " * 5
COUNTS = Counter(TEXT.split())
RULE = Subwords.learn(COUNTS.items(), lower=False, min_count=2, max_vocabulary=300)


@given(text=st.text())
def test_everything_but_white_space_comes_back(text: str):
    expected = " ".join(unicodedata.normalize("NFC", chunk) for chunk in text.split())
    assert RULE.join(RULE.split(text.replace("<eos>", ""))) == expected.replace("<eos>", "")


@given(text=st.text())
def test_nothing_is_unknown(text: str):
    known = set(RULE.all_words())
    assert set(RULE.split(text.replace("<eos>", ""))) <= known


def test_there_are_as_many_pieces_as_asked_for_where_the_text_has_them():
    fewer = Subwords.learn(COUNTS.items(), lower=False, min_count=2, max_vocabulary=270)
    assert len(fewer.all_words()) + 1 == 270  # and <eos>
    assert 270 < len(RULE.all_words()) + 1 < 300  # every word is whole before there are so many
    assert len(set(RULE.all_words())) == len(RULE.all_words())
    assert RULE.split("the flat cats") == ["Ġthe", "Ġflat", "Ġcats"]
    assert RULE.split("bat") == ["Ġ", "b", "at"]


def merge_slowly(counts: dict[str, int], merges: int) -> list[set[tuple[str, str]]]:
    """The slow twin: Algorithm 1 of Sennrich, Haddow and Birch (2016), as far as there is one most frequent pair."""
    words = {tuple(word): count for word, count in counts.items()}
    found: list[set[tuple[str, str]]] = []
    for _ in range(merges):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        best = max(pairs.values())
        found.append({pair for pair, count in pairs.items() if count == best})
        if len(found[-1]) > 1:
            return found
        pair = next(iter(found[-1]))
        words = Counter({join_pair(word, pair): count for word, count in words.items()})
    return found


def join_pair(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    joined: list[str] = []
    for symbol in word:
        if joined and (joined[-1], symbol) == pair:
            joined[-1] += symbol
        else:
            joined.append(symbol)
    return tuple(joined)


@pytest.mark.parametrize("seed", range(5))
def test_merges_are_those_of_the_slow_twin(seed: int):
    generator = random.Random(seed)
    counts = {
        "".join(generator.choices("abcd", k=generator.randint(2, 9))): generator.randint(1, 10**6)
        for _ in range(40)
    }
    rule = Subwords.learn(counts.items(), lower=False, min_count=1, max_vocabulary=400)
    merges = [tuple(pair) for pair in rule.describe()["tokenizer"]["model"]["merges"]]
    expected = merge_slowly({f"Ġ{word}": count for word, count in counts.items()}, 30)
    assert len(expected) > 5
    for given_pair, possible in zip(merges, expected, strict=False):
        assert given_pair in possible


def test_a_character_is_written_when_its_last_byte_has_come():
    pieces = RULE.split("a☃b")  # a snowman of three bytes
    assert [RULE.join(pieces[:count]) for count in range(len(pieces) + 1)] == [
        "",
        "a",
        "a�",
        "a�",
        "a☃",
        "a☃b",
    ][: len(pieces) + 1]
    writer = RULE.writer()
    assert [writer.add(piece) for piece in pieces] == ["a", "", "", "☃", "b"]
    assert RULE.join(["Ġ", "Ģ", "Ġ", "b"]) == "� b"


def test_the_alphabet_is_that_of_the_library():
    from tokenizers import pre_tokenizers

    assert sorted(subwords_module._alphabet()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(subwords_module._alphabet().values()) == list(range(256))


@given(text=st.text())
def test_the_library_joins_alike(text: str):
    words = [word for word in RULE.split(text) if word != "<eos>"]
    assert RULE.machine.decoder.decode(words).removeprefix(" ") == RULE.join(words)


def test_counts_of_a_long_text_are_made_smaller_alike(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subwords_module, "_MOST_CHUNKS", 100)
    monkeypatch.setattr(subwords_module, "_BLOCK_CHUNKS", 7)
    text = "".join(subwords_module._repeat([("a", 500), ("b", 300), ("c", 200), ("d", 1)]))
    assert Counter(text.split()) == {"a": 50, "b": 30, "c": 20}


def test_learning_twice_gives_the_same_pieces():
    code = (
        "from tslm.corpus.subwords import Subwords; import hashlib;"
        f"rule = Subwords.learn({list(COUNTS.items())!r}, lower=False, min_count=2, max_vocabulary=300);"
        "print(rule.tokenizer)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found.strip() == RULE.tokenizer
