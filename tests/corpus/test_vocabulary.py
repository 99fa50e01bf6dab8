"""The vocabulary: order, size, both ways between words and ids, and files."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tslm.corpus.vocabulary import EOS, UNK, Vocabulary
from tslm.errors import CorpusError

COUNTS = {"the": 5, "cat": 3, "sat": 3, "mat": 1, "dog": 1, EOS: 4}
words = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=5).filter(
    lambda word: word.split() == [word]
)


def test_words_stand_by_frequency_and_equals_by_alphabet():
    assert Vocabulary.from_counts(COUNTS).words == ("the", EOS, "cat", "sat", "dog", "mat")


def test_rare_words_become_unk_which_is_placed_by_all_it_stands_for():
    vocabulary = Vocabulary.from_counts(COUNTS | {"rat": 1, "bat": 1}, min_count=2)
    assert vocabulary.words == ("the", EOS, UNK, "cat", "sat")  # four rare words: as often as <eos>
    assert vocabulary.unk_id == 2


def test_the_size_counts_eos_and_unk():
    vocabulary = Vocabulary.from_counts(COUNTS, max_size=4)
    assert vocabulary.words == (UNK, "the", EOS, "cat")  # 3 + 1 + 1 of <unk>, then 5 and 4
    assert len(Vocabulary.from_counts(COUNTS, max_size=100)) == len(COUNTS) + 1


def test_unk_is_there_only_where_words_may_be_left_out_or_the_text_has_it():
    assert Vocabulary.from_counts(COUNTS).unk_id is None
    assert Vocabulary.from_counts(COUNTS | {UNK: 2}).unk_id is not None
    assert Vocabulary.from_counts(COUNTS, min_count=2).unk_id is not None
    assert Vocabulary.from_counts(COUNTS, max_size=50).unk_id is not None


def test_eos_is_there_even_where_the_counts_have_none():
    assert EOS in Vocabulary.from_counts({"a": 1})


def test_encode_and_decode():
    vocabulary = Vocabulary.from_counts(COUNTS, min_count=2)
    ids = vocabulary.encode_line("  the dog\tsat ")
    assert ids.dtype == np.int32
    assert vocabulary.decode(ids) == ["the", UNK, "sat", EOS]
    assert vocabulary.encode([]).tolist() == []
    assert vocabulary.decode([]) == []


@given(st.lists(words, min_size=1))
def test_every_word_of_the_text_comes_back(text: list[str]):
    vocabulary = Vocabulary.from_counts(Counter(text))
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert [vocabulary.ids[word] for word in vocabulary.words] == list(range(len(vocabulary)))


@settings(max_examples=30)
@given(st.sets(words, min_size=1))
def test_a_saved_vocabulary_is_plain_text_and_loads_as_itself(tmp_path_factory, text: set[str]):
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    vocabulary = Vocabulary.from_counts(dict.fromkeys(text, 1))
    vocabulary.save(path)
    assert path.read_bytes().decode().split("\n")[:-1] == list(vocabulary.words)
    assert Vocabulary.load(path) == vocabulary


def test_a_word_outside_a_vocabulary_without_unk_is_named():
    with pytest.raises(CorpusError, match=r"'horse' is not in the vocabulary.*no <unk>.*min_count=2"):
        Vocabulary.from_counts(COUNTS).encode_line("the horse")


def test_a_copy_is_equal():
    vocabulary = Vocabulary.from_counts(COUNTS)
    copied = copy.deepcopy(vocabulary)
    assert copied == vocabulary
    assert copied.encode_line("the cat").tolist() == vocabulary.encode_line("the cat").tolist()


def test_it_is_immutable():
    vocabulary = Vocabulary.from_counts(COUNTS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        vocabulary.words = ()
    with pytest.raises(TypeError):
        vocabulary.ids["the"] = 7


@pytest.mark.parametrize("given", [[6], [-1], np.array([0, 99])])
def test_an_id_outside_is_refused(given):
    with pytest.raises(CorpusError, match="outside the vocabulary; give ids from 0 to 5"):
        Vocabulary.from_counts(COUNTS).decode(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("a", "b"), "lacks <eos>"),
        (("a", EOS, "a"), "'a' twice"),
        (("a b", EOS), "'a b'"),
        (("", EOS), "''"),
    ],
)
def test_a_list_that_is_no_vocabulary_is_refused(given: tuple[str, ...], expected: str):
    with pytest.raises(CorpusError, match=expected):
        Vocabulary(given)


def test_a_size_too_small_is_refused():
    with pytest.raises(CorpusError, match="too small; allow 3 or more"):
        Vocabulary.from_counts(COUNTS, max_size=2)


def test_a_missing_or_damaged_file_is_named(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"none\.txt: No such file"):
        Vocabulary.load(tmp_path / "none.txt")
    (tmp_path / "bad.txt").write_bytes(b"\xff\n")
    with pytest.raises(CorpusError, match=r"bad\.txt: not UTF-8"):
        Vocabulary.load(tmp_path / "bad.txt")
    (tmp_path / "list.txt").write_text("a\nb\n")
    with pytest.raises(CorpusError, match=r"list\.txt: .*lacks <eos>"):
        Vocabulary.load(tmp_path / "list.txt")
