"""The rule ``words``: what it takes for a word, and text that comes back as people write it."""

from __future__ import annotations

import time

import pytest

from tslm.corpus.embedded import read_embedded
from tslm.corpus.words import Words

RULE = Words.make()

CUTS = {
    "don't": "don't",
    "John's": "John 's",
    "it’s": "it ’s",
    "WE'LL": "WE 'LL",
    "can't've": "can't 've",
    "o'clock": "o'clock",
    "dogs'": "dogs '",
    "'tis": "'tis",
    "'90s": "'90s",
    "'s": "'s",
    "3.14": "3.14",
    "1,000.": "1,000 .",
    "10:30,": "10:30 ,",
    "-5": "-5",
    "$1,000.50": "$ 1,000.50",
    "50%": "50 %",
    "3rd.": "3rd .",
    "10–20": "10–20",
    "so – yes": "so – yes",
    "1990-95": "1990-95",
    "U.S.": "U.S.",
    "e.g.,": "e.g. ,",
    "Mr.": "Mr .",
    "README.md.": "README.md .",
    "end.Next": "end . Next",
    "<https://x.org/>,": "< https://x.org/ > ,",
    "https://x.org/a?b=c.": "https://x.org/a?b=c .",
    "(www.example.com)": "( www.example.com )",
    "me@x.org,": "me@x.org ,",
    "well-known": "well-known",
    "word—word": "word — word",
    "word--word": "word -- word",
    "and/or": "and / or",
    "AT&T": "AT&T",
    "“Hello,”": "“ Hello , ”",
    '"Hi!"': '" Hi ! "',
    "«oui»": "« oui »",
    "?!": "?!",
    "...": "...",
    "<unk>,": "<unk> ,",
    "a<eos>b": "a < eos > b",
    "👩‍💻!": "👩‍💻 !",
    "co\u00adoperate": "cooperate",
    "می\u200cخواهم": "می\u200cخواهم",
    "@name": "@name",
    "#tag": "#tag",
    "snake_case": "snake_case",
    "_so_": "_ so _",
    "**bold**": "** bold **",
    "": "",
    "\ufeff": "",
}

TEXTS = [
    "“And God said, ‘Let there be light’; and there was light.”",
    'He said: "Don’t pay $1,000.50 for Abel’s well-known dog!" (She did.)',
    "The dogs' bones — no: the dogs’ bones.",
    "In 1990–95, 50% of the U.S. (e.g., Ohio) paid £3.14 at 10:30... Why?!",
    "See https://example.org/a?b=c, or write to me@example.org.",
    "'Tis the '90s, isn't it? They'd've known; we'll see.",
    "„Gut“, sagte er. ¿Qué? ¡Sí! «Oui», dit-elle.",
    "and/or [sic] {x} *very* _so_ 20°",
    'A "quoted" word and "another one".',
    "-5 and +3.2, #1 @home; AT&T's R&D",
    "* see example.com <https://example.com>, or ``code`` and `more` and ``other``",
]


@pytest.mark.parametrize(("chunk", "expected"), CUTS.items())
def test_a_chunk_is_cut_into_words(chunk: str, expected: str):
    assert RULE.split(chunk) == expected.split()


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_as_it_was_written(text: str):
    text = text.replace(" — ", "—")
    assert RULE.join(RULE.split(text)) == text


def test_penn_treebank_s_endings_and_quotes_are_joined():
    line = "`` I do n't , '' he said , `` it 's"
    assert RULE.join(line.split()) == "``I don't,'' he said, ``it's"


def test_nearly_every_verse_comes_back_as_it_was_written():
    lines = [" ".join(line.split()) for line in read_embedded("test")]
    same = [RULE.join(RULE.split(line)) == line for line in lines]
    assert sum(same) / len(same) > 0.985  # the others have a space after a bracket, or none before one


@pytest.mark.parametrize(
    "part",
    ["a.", "'s", "a", "@", "http://", "a-", "a@", "!", "-5", "1,", "a'", "\u0301", "\u200d", "a.b@", "é-"],
)
def test_a_long_chunk_takes_time_in_proportion_to_its_length(part: str):
    started = time.process_time()
    words = RULE.split(part * (200_000 // len(part)))
    assert "".join(words) == part * (200_000 // len(part))
    assert time.process_time() - started < 5
