"""The rule that most files need: punctuation is split off the words, and put back where people put it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from tslm.corpus.tokenized import TokenizedRule, write_tokenizer
from tslm.corpus.vocabulary import UNK

# A character of a word: letter, accent, digit, or one of the two invisible joiners that Persian and Hindi write.
_PART = r"[\p{L}\p{M}\p{N}\x{200C}\x{200D}]"
_ENDING = rf"(?i:s|d|m|ll|re|ve)(?!{_PART})"
_IN_NUMBER = r"(?<=\p{N})[.,:](?=\p{N})"

# The first that matches is taken. Lengths are bounded where a search could go far and come back with nothing.
_WORDS = (
    UNK,
    r"(?:https?://|www\.)[^\s<>\"“”]{0,2000}[\p{L}\p{N}/]",
    r"[\p{L}\p{N}._%+-]{1,64}@[\p{L}\p{N}-]{1,63}(?:\.[\p{L}\p{N}-]{1,63}){1,8}",
    rf"(?<!{_PART})(?:\p{{L}}\.){{2,}}",  # U.S., e.g.
    rf"['’]{_ENDING}",  # John 's, we 'll
    rf"(?<!{_PART})['’](?:(?i:tis|twas|em|til|cause)|\p{{N}}{{2}}s?)(?!{_PART})",  # 'tis, '90s
    rf"(?<!{_PART})[-+−](?=\p{{N}}){_PART}+(?:{_IN_NUMBER}{_PART}+)*",  # -5, +3.2
    # don't, well-known, AT&T, 3.14, 1,000, 10:30, @name; an ending such as 's is left for its own word
    rf"[@#]?{_PART}+(?:(?:['’](?!{_ENDING})|[-‐‑_&]|{_IN_NUMBER}){_PART}+)*",
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

    def join_line(self, words: Sequence[str]) -> str:
        """Return the words of one line as people write them."""
        return join_words(words)


@cache
def _write_rule(lower: bool) -> str:
    """Return the JSON of the tokenizer."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(unk_token=UNK))
    steps = [normalizers.NFC(), normalizers.Replace(Regex(_INVISIBLE), "")]
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Lowercase()] if lower else steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(_WORDS)), "isolated")
    return write_tokenizer(json.loads(tokenizer.to_str()))


_CLINGS_LEFT = re.compile(r"[,.;:!?…)\]}”’»›%‰°′″™®©]|[.!?]{2,}|''|(?i:['’](?:s|d|m|ll|re|ve)|n['’]t)")
_CLINGS_RIGHT = re.compile(r"[(\[{“‘„‚«‹¿¡]|``")
_CLINGS_BOTH = re.compile(r"[/—]|--+")
_MONEY = re.compile(r"[$€£¥₹]")
_PAIRED = re.compile(r"[\"'`_]|\*+|__+")
_LOW_QUOTES = {"“": "„", "‘": "‚"}
"""The marks that close in German what they open in English."""


def join_words(words: Sequence[str]) -> str:
    r"""Return words and punctuation marks as people write them.

    Where the spaces were is not recorded, so this goes by what is usual: no space before a comma or after an opening
    bracket, none around a slash or an em dash, and of straight quotation marks every second one closes.

    Example:
        >>> join_words(["(", "the", "dogs", "'", "10", "%", "–", "and/or", '"', "more", '"', ")", "."])
        '(the dogs\' 10% – and/or "more").'
    """
    parts: list[str] = []
    open_marks: set[str] = set()
    clings = True  # whether the next word follows without a space; so does the first
    before = ""
    for index, word in enumerate(words):
        left, right = bool(_CLINGS_LEFT.fullmatch(word)), bool(_CLINGS_RIGHT.fullmatch(word))
        after = words[index + 1] if index + 1 < len(words) else ""
        if _CLINGS_BOTH.fullmatch(word):
            left = right = True
        elif word == "–":
            left = right = before[-1:].isdigit() and after[:1].isdigit()
        elif _MONEY.fullmatch(word):
            right = after[:1].isdigit()
        elif _LOW_QUOTES.get(word) in open_marks:
            open_marks.discard(_LOW_QUOTES[word])
            left, right = True, False
        elif word in _LOW_QUOTES.values():
            open_marks.add(word)
        elif _PAIRED.fullmatch(word):
            if word in open_marks:
                open_marks.discard(word)
                left = True
            elif word == "'" and before[-1:] in ("s", "S"):  # the dogs' bones
                left = True
            else:
                open_marks.add(word)
                right = True
        if not (clings or left):
            parts.append(" ")
        parts.append(word)
        clings = right
        before = word
    return "".join(parts)
