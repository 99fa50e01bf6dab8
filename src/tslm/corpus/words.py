"""The rule that most files need: punctuation is split off the words, and put back where people put it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from tslm.corpus.rule import Writer
from tslm.corpus.tokenized import TokenizedRule, write_tokenizer
from tslm.corpus.vocabulary import UNK

# A character of a word: letter, accent, digit, or one of the two invisible joiners that Persian and Hindi write.
_PART = r"[\p{L}\p{M}\p{N}\x{200C}\x{200D}]"
_ENDING = rf"(?i:s|d|m|ll|re|ve)(?!{_PART})"
_IN_NUMBER = r"(?<=\p{N})[.,:–](?=\p{N})"

# The first that matches is taken. Lengths are bounded where a search could go far and come back with nothing.
_WORDS = (
    UNK,
    r"(?:https?://|www\.)[^\s<>\"“”]{0,2000}[\p{L}\p{N}/]",
    r"[\p{L}\p{N}._%+-]{1,64}@[\p{L}\p{N}-]{1,63}(?:\.[\p{L}\p{N}-]{1,63}){1,8}",
    rf"(?<!{_PART})(?:\p{{L}}\.){{2,}}",  # U.S., e.g.
    rf"['’]{_ENDING}",  # John 's, we 'll
    rf"(?<!{_PART})['’](?:(?i:tis|twas|em|til|cause)|\p{{N}}{{2}}s?)(?!{_PART})",  # 'tis, '90s
    rf"(?<!{_PART})[-+−](?=\p{{N}}){_PART}+(?:{_IN_NUMBER}{_PART}+)*",  # -5, +3.2
    # don't, well-known, AT&T, 3.14, 1,000, 10:30, 1990–95, read.me, @name; an ending such as 's is left for its own
    # word, and so is what follows a full stop without a space if it begins with a capital
    rf"[@#]?{_PART}+(?:(?:['’](?!{_ENDING})|[-‐‑_&]|\.(?=\p{{Ll}})|{_IN_NUMBER}){_PART}+)*",
    r"\.{2,}|[!?]{2,}|-{2,}|``|''|[*_=~#+]{2,}",
    r"\X",  # any other sign as people see it, such as an emoji of several code points
)
_INVISIBLE = (
    "[\u00ad\u200b\u2060\ufeff]"  # soft hyphen, zero-width space and the like: nobody means them as letters
)


@dataclass(frozen=True)
class Words(TokenizedRule):
    """Words, numbers, punctuation marks and endings such as ``'s`` are words of their own.

    Text is brought to Unicode's form NFC, and invisible characters such as soft hyphens are dropped.

    Example:
        >>> rule = Words.make()
        >>> rule.split('He said: "Don’t pay $1,000.50 for Abel’s well-known dog!"')
        ['He', 'said', ':', '"', 'Don’t', 'pay', '$', '1,000.50', 'for', 'Abel', '’s', 'well-known', 'dog', '!', '"']
        >>> rule.join(rule.split('He said: "Don’t pay $1,000.50 for Abel’s well-known dog!"'))
        'He said: "Don’t pay $1,000.50 for Abel’s well-known dog!"'
    """

    kind = "words"
    splits_marks = True

    @classmethod
    def make(cls, lower: bool = False) -> Words:
        """Return the rule as this version makes it."""
        return cls(lower=lower, tokenizer=_write_rule(lower))

    @classmethod
    def learn(
        cls, counts: Iterable[tuple[str, int]], *, lower: bool, min_count: int, max_vocabulary: int | None
    ) -> Words:
        """Return the rule as this version makes it, whatever the text."""
        return cls.make(lower)

    def cut(self, chunk: str) -> Sequence[str]:
        """Return the words of a chunk."""
        if chunk.isascii() and chunk.isalpha():  # most of a text; the expression would find the same
            return (chunk,)
        pre_tokenizer = self.machine.pre_tokenizer
        assert pre_tokenizer is not None  # noqa: S101
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(self.normalise(chunk))]

    def _begin(self) -> WordsWriter:
        return WordsWriter()


@cache
def _write_rule(lower: bool) -> str:
    """Return the JSON of the tokenizer."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(unk_token=UNK))
    steps = [normalizers.NFC(), normalizers.Replace(Regex(_INVISIBLE), "")]
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Lowercase()] if lower else steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(_WORDS)), "isolated")
    return write_tokenizer(json.loads(tokenizer.to_str()))


_CLINGS_LEFT = re.compile(r"[,.;:!?…)\]}>”’»›%‰°′″™®©]|[.!?]{2,}|''|(?i:['’](?:s|d|m|ll|re|ve)|n['’]t)")
_CLINGS_RIGHT = re.compile(r"[(\[{<“‘„‚«‹¿¡]")
_CLINGS_BOTH = re.compile(r"[/—]|--+")
_MONEY = re.compile(r"[$€£¥₹]")
_PAIRED = re.compile(r"[\"'`_]|``|\*+|__+")
_LOW_QUOTES = {"“": "„", "‘": "‚"}
"""The marks that close in German what they open in English."""


class WordsWriter(Writer):
    r"""Puts punctuation marks where people put them.

    Where the spaces were is not recorded, so this goes by what is usual: no space before a comma or after an opening
    bracket, none around a slash or an em dash, and of straight quotation marks every second one closes.

    Example:
        >>> Words.make().join(["(", "the", "dogs", "'", "$", "10", "–", "and", "/", "or", '"', "more", '"', ")", "."])
        '(the dogs\' $10 – and/or "more").'
    """

    def __init__(self) -> None:
        super().__init__()
        self.begin_line()

    def begin_line(self) -> None:
        """Begin a new line, on which no bracket or quotation is open."""
        super().begin_line()
        self._before = ""
        self._clings = False  # whether the next word follows without a space
        self._open: frozenset[str] = frozenset()

    def add_word(self, word: str) -> str:
        """Return what to write for a word or a punctuation mark."""
        left, right = self._sides(word)
        follows_money = bool(_MONEY.fullmatch(self._before)) and word[0].isdigit()
        text = word if self.at_start or self._clings or left or follows_money else f" {word}"
        self._before, self._clings = word, right
        return text

    def _sides(self, word: str) -> tuple[bool, bool]:
        """Return whether a word clings to what stands left and right of it."""
        if _CLINGS_BOTH.fullmatch(word):
            return True, True
        if _LOW_QUOTES.get(word) in self._open:
            self._open -= {_LOW_QUOTES[word]}
            return True, False
        if word == "''":  # closes what `` has opened, where people write like that
            self._open -= {"``"}
        if _PAIRED.fullmatch(word) and not (word == "*" and self.at_start):  # which is a point of a list
            if word in self._open:
                self._open -= {word}
                return True, False
            if word == "'" and self._before[-1:] in ("s", "S"):  # the dogs' bones
                return True, False
            self._open |= {word}
            return False, True
        if word in _LOW_QUOTES.values():
            self._open |= {word}
        return bool(_CLINGS_LEFT.fullmatch(word)), bool(_CLINGS_RIGHT.fullmatch(word))
