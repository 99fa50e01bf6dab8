"""Text rules: what every rule promises, on all kinds of text; and how a rule goes to disk and back."""

from __future__ import annotations

import copy
import json
import pickle
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tslm.corpus import rule as rule_module
from tslm.corpus.embedded import Verses, read_embedded
from tslm.corpus.rule import TextRule, load_rule
from tslm.corpus.subwords import Subwords
from tslm.corpus.vocabulary import EOS, UNK
from tslm.corpus.words import Words
from tslm.errors import CorpusError

COUNTS = [("the", 50), ("cat,", 20), ("God’s", 9), ("naïve", 5), ("3.14", 4), ("people", 9), ("ﬂag", 3)]
RULES: list[TextRule] = [
    TextRule(),
    TextRule(lower=True),
    Verses(),
    Words.make(),
    Words.make(lower=True),
    *(Subwords.learn(COUNTS, lower=lower, min_count=2, max_vocabulary=300) for lower in (False, True)),
]
rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.kind}-{rule.lower}")
any_text = st.text() | st.lists(
    st.sampled_from(
        ["the", "God’s", "don't", "3.14", "(", '"', ",", " ", "\t", "\r\n", "\u00a0", UNK, EOS, "é", "👩‍💻"]
    )
).map("".join)


@rules
@given(text=any_text)
@example(text="A\u00adB \u200b c")
@example(text="<EOS> <eos>")
@example(text="ΟΔΟΣ ΟΔΟΣ\u00a0İ")
def test_words_are_the_words_of_the_chunks_and_fit_into_a_vocabulary(rule: TextRule, text: str):
    words = rule.split(text)
    assert all(word and word.split() == [word] for word in words)
    one_by_one = [word for chunk in text.split() for word in rule.split(chunk)]
    assert words == one_by_one
    assert rule.split_many([text, text]) == [words, words]
    assert rule.split_lines(f"{text}\n") == [*rule.split(text.replace("\n", f" {EOS} ")), EOS]


@rules
@given(text=any_text)
def test_joined_words_split_into_the_same_text(rule: TextRule, text: str):
    joined = rule.join(rule.split(text.replace(EOS, "")))
    assert "".join(rule.join(rule.split(joined)).split()) == "".join(joined.split())


@rules
@given(text=any_text, cut=st.integers(0, 20))
def test_words_written_one_by_one_are_the_words_joined(rule: TextRule, text: str, cut: int):
    words = rule.split(text)
    writer = rule.writer()
    parts = [writer.add(word) for word in words]
    assert "".join(parts) + writer.end() == rule.join(words)
    going_on = rule.writer(before=words[:cut])
    rest = [(going_on.show(word), going_on.add(word)) for word in words[cut:]]
    assert rest == [(part, part) for part in parts[cut:]]


@rules
def test_carriage_returns_and_empty_lines_make_no_words(rule: TextRule):
    assert rule.split("\r\n") == rule.split("") == []
    assert rule.split_lines("the people\r\n\r\n\n") == [*rule.split("the people"), EOS, EOS, EOS]
    assert rule.join([*rule.split("the people"), EOS, EOS, *rule.split("people")]) == "the people\n\npeople"


@rules
def test_the_marker_of_an_end_ends_a_line_in_every_rule(rule: TextRule):
    assert rule.split(f"the {EOS} people") == [*rule.split("the"), EOS, *rule.split("people")]


@pytest.mark.parametrize("rule", RULES[:5], ids=lambda rule: f"{rule.kind}-{rule.lower}")
def test_the_marker_of_the_unknown_stays_whole(rule: TextRule):
    assert rule.split(f"the {UNK} people") == ["the", UNK, "people"]


@rules
def test_a_rule_goes_to_disk_and_back_and_can_be_copied(rule: TextRule, tmp_path: Path):
    text = "The people’s naïve (3.14) “cat”, GOD’S own…"
    words = rule.split(text)
    rule.save(tmp_path / "text.json")
    assert json.loads((tmp_path / "text.json").read_text())["kind"] == rule.kind
    for other in (load_rule(tmp_path / "text.json"), copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))):  # noqa: S301
        assert other == rule
        assert hash(other) == hash(rule)
        assert other.split(text) == words
        assert other.join(words) == rule.join(words)


def test_rules_that_cut_otherwise_are_not_equal():
    assert len(set(RULES)) == len(RULES)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "is no text rule"),
        ("[]", "is no text rule"),
        ("{}", "is no text rule"),
        ('{"kind": "word"}', r"no text rule 'word': did you mean 'words'"),
        ('{"kind": "spaces", "upper": true}', "is no text rule"),
        ('{"kind": "words", "lower": true}', "is no text rule"),
        ('{"kind": "bpe", "lower": true, "tokenizer": {"model": 1}}', "the tokenizer cannot be read"),
    ],
)
def test_a_damaged_rule_is_named(content: str, expected: str, tmp_path: Path):
    (tmp_path / "text.json").write_text(content)
    with pytest.raises(CorpusError, match=expected) as raised:
        load_rule(tmp_path / "text.json")
    assert str(tmp_path / "text.json") in str(raised.value)


def test_a_missing_rule_is_named(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"cannot read the text rule .*text\.json"):
        load_rule(tmp_path / "text.json")


def test_what_a_rule_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rule_module, "_REMEMBERED_CHUNKS", 3)
    rule = Words.make()
    text = " ".join(f"word{number}," for number in range(20))
    assert rule.split(text) == [word for number in range(20) for word in (f"word{number}", ",")]
    assert len(rule._known) <= 3


def test_lower_casing_is_python_s_for_every_rule():
    for rule in RULES:
        if rule.lower:
            assert rule.split("ÉTÉ The ΟΔΟΣ") == rule.split("été the οδος")


def test_composed_and_decomposed_letters_are_the_same_word():
    for rule in RULES[3:]:
        assert rule.split(unicodedata.normalize("NFD", "naïve été")) == rule.split("naïve été")
    assert TextRule().split("e\u0301") == ["e\u0301"]  # old runs stay as they are


def test_the_embedded_corpus_joined_and_split_again_is_itself():
    rule = Verses()
    for line in list(read_embedded("test"))[:500]:
        words = rule.split(line)
        assert rule.split(" ".join(words)) == rule.split(rule.join(words)) == words
