"""The tokenizers of the library ``tokenizers`` cut every text as our rules do."""

from __future__ import annotations

import unicodedata
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tslm.corpus.embedded import Verses
from tslm.corpus.rule import TextRule
from tslm.corpus.subwords import Subwords
from tslm.corpus.vocabulary import EOS, UNK, Vocabulary
from tslm.corpus.words import Words
from tslm.interop.hf_rules import write_fast_tokenizer

KINDS = ["spaces", "spaces lower", "words", "words lower", "bpe", "bpe lower", "asv"]
BITS = [
    *("<eos>", "<EOS>", "<unk>", "<e", "os>", "a", "B", "Σ", "ΟΔΟΣ", "’s", "'s", "don't", "-", "1,000.5"),
    *(
        "\n",
        "\r\n",
        " ",
        "\u00a0",
        "\x1c",
        "\x85",
        "\u2028",
        "\u3000",
        "\u200b",
        "\u00ad",
        "\u0301",
        "É",
        "é",
        "İ",
        "K",
    ),
    *(
        "日本",
        "🦓",
        "👩\u200d👩",
        "½",
        "Ⅷ",
        "٣",
        "_",
        "…",
        '…"',
        "http://x.org/a?b",
        "U.S.",
        "ʰ",
        "ﬁ",
        "\0",
        "\ufffd",
    ),
]


def unicode_text() -> st.SearchStrategy[str]:
    # What this Python's Unicode has not assigned may be a letter in the library's, which is newer.
    characters = st.characters(exclude_categories=("Cs", "Cn", "Co"))
    return st.lists(st.sampled_from(BITS) | characters | st.text(characters, max_size=4), max_size=12).map(
        "".join
    )


@cache
def rule_of(kind: str) -> TextRule:
    name, _, lower = kind.partition(" ")
    text = "the cat sat on the mat don't <eos> naïve οδος 日本語 " * 3
    if name == "bpe":
        counts = [(chunk, text.count(chunk)) for chunk in set(text.split())]
        return Subwords.learn(counts, lower=bool(lower), min_count=1, max_vocabulary=300)
    return {"spaces": TextRule(bool(lower)), "words": Words.make(bool(lower)), "asv": Verses()}[name]


def check_equal(rule: TextRule, text: str) -> None:
    words = rule.split_lines(text)
    # Every second word is known, so that unknown ones are there too.
    vocabulary = Vocabulary(tuple(dict.fromkeys([EOS, UNK, *words[::2], *(rule.all_words() or [])])))
    written = write_fast_tokenizer(rule, vocabulary)
    assert written is not None
    theirs = Tokenizer.from_str(written).encode(text, add_special_tokens=False)
    assert theirs.ids == vocabulary.encode(words).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_with_all_that_is_difficult(kind) -> None:
    check_equal(rule_of(kind), "".join(BITS))
    check_equal(rule_of(kind), " ".join(BITS))


@pytest.mark.parametrize("kind", KINDS)
@given(text=unicode_text())
def test_any_text(kind, text) -> None:
    check_equal(rule_of(kind), text)


@pytest.mark.parametrize("kind", KINDS)
def test_every_letter_there_is(kind) -> None:
    letters = [
        chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cs", "Cn", "Co")
    ]
    if kind.startswith(("words", "bpe")):  # the same library cuts both; only lower-casing is ours
        letters = [letter for letter in letters if letter.lower() != letter or letter.isspace()]
    check_equal(rule_of(kind), " ".join(letters))
    check_equal(
        rule_of(kind), " ".join(f"’s{letter}b-{letter}" for letter in letters if not letter.isspace())
    )
