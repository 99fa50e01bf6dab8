from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tslm.automata import anything, contains, of_length, without
from tslm.errors import CorpusError
from tslm.inference.patterns import read_words_pattern

WORDS = {"a": 1, "b": 2, "c": 3}
TEXTS = [text for length in range(5) for text in itertools.product((0, 1, 2, 3), repeat=length)]


def encode(text: str) -> list[int]:
    return [WORDS[word] for word in text.split()]


def as_expression(pattern: str) -> re.Pattern[str]:
    """The same pattern as a regular expression over one digit per word."""
    text = pattern.replace("...", "@").replace("?", "[0-3]").replace("@", "[0-3]*").replace(" ", "")
    return re.compile("(" + re.sub("[abc]", lambda found: str(WORDS[found.group()]), text) + ")")


PATTERNS = st.recursive(
    st.sampled_from(["a", "b", "c", "?", "..."]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(" ".join),
        st.tuples(inner, inner, st.sampled_from(["", "*", "+"])).map(lambda p: f"({p[0]} | {p[1]}){p[2]}"),
    ),
    max_leaves=6,
)


@given(PATTERNS)
def test_a_pattern_accepts_what_a_regular_expression_does(pattern: str) -> None:
    automaton, expression = read_words_pattern(pattern, encode), as_expression(pattern)
    for text in TEXTS:
        assert automaton.accepts(text) == bool(expression.fullmatch("".join(map(str, text)))), (pattern, text)


@pytest.mark.parametrize("phrase", [(1,), (1, 1), (1, 2, 1), (1, 1, 2)])
def test_contains(phrase: tuple[int, ...]) -> None:
    automaton = contains(phrase)
    for text in TEXTS:
        expected = any(text[place : place + len(phrase)] == phrase for place in range(len(text)))
        assert automaton.accepts(text) == expected


def test_products_without_and_lengths() -> None:
    automaton = contains((1,)) & without((2,)) & of_length(2) & of_length(0, 3)
    for text in TEXTS:
        assert automaton.accepts(text) == (1 in text and 2 not in text and 2 <= len(text) <= 3)
    assert all(anything().accepts(text) for text in TEXTS)


def test_nothing_is_left_of_what_cannot_match() -> None:
    automaton = without((1,)) & contains((1,))
    assert len(automaton.accepting_Q) == 1
    assert not any(automaton.accepts(text) for text in TEXTS)
    assert automaton.read([1, 2]) == -1


@pytest.mark.parametrize("pattern", ["a (b", "a) b", "((a)"])
def test_brackets_must_close(pattern: str) -> None:
    with pytest.raises(CorpusError, match="bracket"):
        read_words_pattern(pattern, encode)


def test_signs_may_be_words() -> None:
    seen: list[str] = []
    read_words_pattern(r"\? \( a.b \...", lambda text: seen.append(text) or [1])
    assert seen == ["?", "(", "a.b", "..."] or seen == ["?", "(", "a.b", ".", ".."]
