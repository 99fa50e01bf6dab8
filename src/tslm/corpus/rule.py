"""The text rule: how a raw line becomes the words a model knows, and how words become a line again.

Every rule cuts a text at white space first; a *chunk* is what stands between. What a chunk becomes depends on nothing
beside it, so a text needs each of its different chunks cut only once, however often they come.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

from tslm.corpus.vocabulary import EOS, LARGEST_FILE
from tslm.errors import CorpusError, nearest
from tslm.files import read_regular, write_text

Tokeniser = Literal["spaces", "words", "bpe"]
"""The rules that own text can choose from."""

RULE_FILE = "text.json"
"""The name of the file in a run folder that holds the model's rule."""

_REMEMBERED_CHUNKS = 1 << 18


class Writer:
    r"""Writes words one by one as people do: what it has written is never taken back.

    Example:
        >>> writer = TextRule().writer(before=["a", "cat"])
        >>> writer.add("sat"), writer.add("<eos>"), writer.add("a")
        (' sat', '\n', 'a')
    """

    def __init__(self) -> None:
        self.at_start = True

    def add(self, word: str) -> str:
        """Return what to write for the next word: mostly itself with a space before it."""
        if word == EOS:
            self.begin_line()
            return "\n"
        text = self.add_word(word)
        self.at_start = self.at_start and not text
        return text

    def show(self, word: str) -> str:
        """Return what would be written for a word if it came next."""
        return copy(self).add(word)

    def begin_line(self) -> None:
        """Begin a new line."""
        self.at_start = True

    def add_word(self, word: str) -> str:
        """Return what to write for a word of a line."""
        return word if self.at_start else f" {word}"

    def end(self) -> str:
        """Return what is yet to be written when no word follows."""
        return ""


@dataclass(frozen=True)
class TextRule:
    """Words are what stands between white space; the plainest rule, and what the other rules build on.

    The marker ``<eos>``, standing alone, ends a line in every rule. White space is not kept: words are joined by one
    space. Rules with the same values are equal, and cut every text alike.

    Example:
        >>> rule = TextRule(lower=True)
        >>> rule.split("In the  beginning, God")
        ['in', 'the', 'beginning,', 'god']
        >>> rule.join(["in", "the", "beginning,"])
        'in the beginning,'
    """

    kind: ClassVar[str] = "spaces"
    """What recipes and ``text.json`` call the rule."""

    splits_marks: ClassVar[bool] = False
    """Whether punctuation marks are words of their own."""

    number: ClassVar[int] = 1
    """Raised whenever the rule of this name cuts a text otherwise than before; part of the cache's key."""

    lower: bool = False
    """Lower-case the text first."""

    @classmethod
    def learn(
        cls, counts: Iterable[tuple[str, int]], *, lower: bool, min_count: int, max_vocabulary: int | None
    ) -> TextRule:
        """Return the rule for a corpus; most rules are what they are and learn nothing.

        Args:
            counts: how often each chunk, lower-cased where ``lower`` says so, stands in the training text.
            lower: whether the text is to be lower-cased.
            min_count: what comes less often is not worth a word.
            max_vocabulary: the largest number of words, ``<eos>`` among them.
        """
        return cls(lower=lower)

    def all_words(self) -> Sequence[str] | None:
        """Return every word that the rule can make; None where there is no end to them."""
        return None

    def cut(self, chunk: str) -> Sequence[str]:
        """Return the words of a chunk, which is in lower case already where the rule asks for it."""
        return (chunk,)

    def split(self, text: str) -> list[str]:
        r"""Return the words of a line; what else is white space in it, a newline too, only parts words.

        Example:
            >>> TextRule().split("a cat\r\n")
            ['a', 'cat']
        """
        chunks = (text.lower() if self.lower else text).split()
        if type(self).cut is TextRule.cut:
            return chunks
        return list(chain.from_iterable(map(self._known.__getitem__, chunks)))

    def split_chunks(self, text: str) -> list[Sequence[str]]:
        """Return the words of each chunk of a line."""
        return list(map(self._known.__getitem__, (text.lower() if self.lower else text).split()))

    def split_lines(self, text: str) -> list[str]:
        r"""Return the words of a text with ``<eos>`` for each newline.

        Example:
            >>> TextRule().split_lines("a cat\n\na dog\n")
            ['a', 'cat', '<eos>', '<eos>', 'a', 'dog', '<eos>']
        """
        return self.split(text.replace("\n", f" {EOS} "))

    def forms(self, text: str) -> list[tuple[str, ...]]:
        """Return the words that a text may be when it stands in the middle of a line; none for one without words."""
        words = tuple(self.split(text))
        return [words] if words else []

    def split_many(self, lines: Iterable[str]) -> list[list[str]]:
        """Return the words of each line."""
        return [self.split(line) for line in lines]

    def cut_many(self, chunks: Iterable[str]) -> list[Sequence[str]]:
        """Return the words of each chunk; ``<eos>`` stays what it is."""
        return [(EOS,) if chunk == EOS else self.cut(chunk) for chunk in chunks]

    def join(self, words: Iterable[str]) -> str:
        r"""Return words as people write them; an ``<eos>`` ends a line.

        Example:
            >>> TextRule().join(["a", "cat", "<eos>", "a", "dog"])
            'a cat\na dog'
        """
        writer = self.writer()
        return "".join(map(writer.add, words)) + writer.end()

    def writer(self, before: Iterable[str] = ()) -> Writer:
        """Return what writes words one by one, going on after those ``before``, which it leaves out."""
        writer = self._begin()
        for word in before:
            writer.add(word)
        return writer

    def _begin(self) -> Writer:
        """Return what writes a text from its beginning."""
        return Writer()

    def describe(self) -> dict[str, Any]:
        """Return all that the rule is, as plain values."""
        return {"kind": self.kind} | {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_description(cls, values: dict[str, Any]) -> TextRule:
        """Make the rule from what ``describe`` returned, without the kind."""
        return cls(**values)

    def save(self, path: Path) -> None:
        """Write the rule as JSON."""
        write_text(path, json.dumps(self.describe(), ensure_ascii=False, indent=1) + "\n")

    def __getstate__(self) -> dict[str, Any]:
        # What the rule remembers of chunks is not copied with it.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _known(self) -> _Known:
        return _Known(self)


class _Known(dict[str, Sequence[str]]):
    """The words of the chunks that came lately."""

    def __init__(self, rule: TextRule) -> None:
        super().__init__()
        self._rule = rule

    def __missing__(self, chunk: str) -> Sequence[str]:
        if len(self) >= _REMEMBERED_CHUNKS:
            self.clear()
        words = self[chunk] = self._rule.cut_many([chunk])[0]
        return words


def load_rule(path: Path) -> TextRule:
    """Read a rule that ``TextRule.save`` wrote.

    Raises:
        CorpusError: the file is missing or damaged, or is of a rule that this version does not know.
    """
    try:
        values = json.loads(read_regular(path, LARGEST_FILE))
        kind = values.pop("kind")
        return find_rule(kind).from_description(values)
    except OSError as error:
        raise CorpusError(f"cannot read the text rule {path}: {error.strerror}; check the path") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorpusError(
            f"{path} is no text rule ({error}); take it from the run that the model was trained in"
        ) from error
    except CorpusError as error:
        raise CorpusError(f"{path}: {error}") from error


def find_rule(kind: str) -> type[TextRule]:
    """Return the class of a rule by the name that recipes give it.

    Raises:
        CorpusError: there is no rule of that name.
    """
    # Imported here because each builds on this module, and because most commands need none of them.
    from tslm.corpus.embedded import Verses
    from tslm.corpus.subwords import Subwords
    from tslm.corpus.words import Words

    rules = {rule.kind: rule for rule in (TextRule, Words, Subwords, Verses)}
    if kind not in rules:
        raise CorpusError(f"there is no text rule {kind!r}: {nearest(str(kind), rules)}")
    return rules[kind]
