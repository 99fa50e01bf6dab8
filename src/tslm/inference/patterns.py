r"""Patterns over words as people write them, turned into automata.

``?`` is any one word and ``...`` any number of words; ``( | )`` holds alternatives, and a ``*`` or ``+`` right behind
the bracket lets it stand any number of times, or at least once. Everything else is words, read with the model's text
rule; a backslash takes a sign for a word: ``\?``, ``\(``.

    the ? of the lord            one word is missing
    ... king (of|in) ...         "king of" or "king in" somewhere
    (very)* good                 good, very good, very very good …
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tslm.automata import Automaton, anything, build, contains, of_length, without
from tslm.errors import CorpusError, NumberError
from tslm.models.base import LanguageModel

SIGNS = re.compile(r"\\.|\.\.\.|\)[*+]?|[(|?]|(?:\\.|[^\s()|?\\])+|\s+")

Words = Callable[[str], Sequence[int]]
"""Turns text without signs into word ids."""


@dataclass
class _Graph:
    """A non-deterministic automaton in the making: arrows with a word, with any word (None), and with nothing."""

    arrows: list[list[tuple[int | None, int]]] = field(default_factory=list[list[tuple[int | None, int]]])
    silent: list[list[int]] = field(default_factory=list[list[int]])

    def node(self) -> int:
        self.arrows.append([])
        self.silent.append([])
        return len(self.arrows) - 1

    def closed(self, nodes: frozenset[int]) -> frozenset[int]:
        """Return all that can be reached without a word."""
        found, waiting = set(nodes), list(nodes)
        while waiting:
            for after in self.silent[waiting.pop()]:
                if after not in found:
                    found.add(after)
                    waiting.append(after)
        return frozenset(found)


def read_words_pattern(text: str, words: Words) -> Automaton:
    """Turn a pattern into an automaton.

    Args:
        text: the pattern.
        words: turns the words of it into ids.

    Raises:
        CorpusError: a bracket is left open or was never opened.
    """
    graph = _Graph()
    signs = [sign for sign in SIGNS.findall(text) if not sign.isspace()]
    end, rest = _alternatives(graph, start := graph.node(), signs, text, words, depth=0)
    if rest:
        raise CorpusError(
            f"the pattern {text!r} closes a bracket that was not opened; write \\) for the word ')'"
        )
    named = sorted({word for arrows in graph.arrows for word, _ in arrows if word is not None})

    def follow(nodes: frozenset[int], symbol: int) -> frozenset[int] | None:
        word = named[symbol - 1] if symbol else None
        after = {
            target
            for node in nodes
            for wanted, target in graph.arrows[node]
            if wanted is None or wanted == word
        }
        return graph.closed(frozenset(after)) if after else None

    return build(named, graph.closed(frozenset({start})), follow, lambda nodes: end in nodes)


def _alternatives(
    graph: _Graph, start: int, signs: list[str], text: str, words: Words, depth: int
) -> tuple[int, list[str]]:
    """Read alternatives up to the end or a closing bracket; return where they end and the signs that are left."""
    if depth > 100:
        raise CorpusError(f"the pattern {text[:40]!r}… has more than 100 brackets in each other")
    end, here = graph.node(), start
    while signs and not signs[0].startswith(")"):
        sign, *signs = signs
        if sign == "|":
            graph.silent[here].append(end)
            here = start
        elif sign == "(":
            inside = graph.node()
            graph.silent[here].append(inside)
            inner, signs = _alternatives(graph, inside, signs, text, words, depth + 1)
            if not signs:
                raise CorpusError(f"the pattern {text!r} leaves a bracket open; write \\( for the word '('")
            closing, *signs = signs
            if closing != ")":
                graph.silent[inner].append(inside)
            if closing == ")*":
                graph.silent[here].append(inner)
            # A node of its own: what follows must not be repeated with the bracket.
            here = graph.node()
            graph.silent[inner].append(here)
        elif sign == "?":
            here = _arrow(graph, here, None)
        elif sign == "...":
            loop = graph.node()
            graph.silent[here].append(loop)
            graph.arrows[loop].append((None, loop))
            here = loop
        else:
            for word in words(re.sub(r"\\(.)", r"\1", sign)):
                here = _arrow(graph, here, word)
    graph.silent[here].append(end)
    return end, signs


def _arrow(graph: _Graph, here: int, word: int | None) -> int:
    after = graph.node()
    graph.arrows[here].append((word, after))
    return after


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """What a sentence must be like; all of it together."""

    pattern: str = ""
    """The whole sentence as a pattern; empty for any."""
    contain: tuple[str, ...] = ()
    """Words or phrases that must stand somewhere in it."""
    avoid: tuple[str, ...] = ()
    """Words that may not."""
    shortest: int = 0
    """The least number of words."""
    longest: int = 60
    """The largest number of words; no sum goes on for ever."""

    def __post_init__(self) -> None:
        if not 0 <= self.shortest <= self.longest:
            raise NumberError(
                f"a sentence of {self.shortest} to {self.longest} words: give 0 ≤ shortest ≤ longest"
            )
        if not 1 <= self.longest <= 1000:
            raise NumberError(f"longest {self.longest} must be 1 to 1,000 words")

    def automaton(self, model: LanguageModel[Any]) -> Automaton:
        """Return the automaton of all of it (but for the largest length), for a model's words.

        Raises:
            CorpusError: a word is unknown, or the pattern cannot be read.
        """

        def encode(text: str) -> list[int]:
            found = model.rule.split(text)
            unknown = [word for word in found if word not in model.vocabulary]
            if unknown:
                raise CorpusError(
                    f"the model does not know the word {unknown[0]!r}; a pattern takes known words only"
                )
            return model.vocabulary.encode(found).tolist()

        result = read_words_pattern(self.pattern, encode) if self.pattern.strip() else anything()
        for phrase in self.contain:
            ids = encode(phrase)
            if not ids:
                raise CorpusError("an empty phrase is in every sentence; give words")
            result &= contains(ids)
        if self.avoid:
            result &= without(word for text in self.avoid for word in encode(text))
        return result & of_length(self.shortest) if self.shortest else result
