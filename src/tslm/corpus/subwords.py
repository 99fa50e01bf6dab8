"""Subwords learnt from the text: pieces of words, down to single bytes, so that nothing is unknown."""

from __future__ import annotations

import json
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from tslm.corpus.rule import Writer
from tslm.corpus.tokenized import TokenizedRule, write_tokenizer

USUAL_SIZE = 8000
"""How large a vocabulary is unless a recipe says otherwise."""

SMALLEST_SIZE = 258
"""All bytes, ``<eos>``, and one piece that was learnt."""

SPACE = "Ġ"
"""Stands for the space before a word."""

_MOST_CHUNKS = 1 << 22
_BLOCK_CHUNKS = 1 << 12


@dataclass(frozen=True)
class Subwords(TokenizedRule):
    """Byte-level pair encoding (Sennrich, Haddow and Birch, 2016) with the alphabet and the cuts of GPT-2.

    A word's first piece begins with ``Ġ``, which stands for the space before it. Text is brought to Unicode's form
    NFC; apart from that and from white space, joining gives back what was split.
    """

    kind = "bpe"

    @classmethod
    def learn(
        cls, counts: Iterable[tuple[str, int]], *, lower: bool, min_count: int, max_vocabulary: int | None
    ) -> Subwords:
        """Learn subwords from the chunks of a text.

        Args:
            counts: how often each chunk, lower-cased where ``lower`` says so, stands in the training text.
            lower: whether other text is to be lower-cased before it is cut.
            min_count: two pieces that follow each other less often are not joined.
            max_vocabulary: the number of pieces, the 256 bytes and ``<eos>`` among them; there are fewer where the
                text has no more to join.
        """
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        nfc = normalizers.NFC()
        tokenizer.normalizer = normalizers.Sequence([nfc, normalizers.Lowercase()]) if lower else nfc
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=(max_vocabulary or USUAL_SIZE) - 1,
            min_frequency=min_count,
            show_progress=False,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        )
        tokenizer.train_from_iterator(_repeat(list(counts)), trainer=trainer)
        return cls(lower=lower, tokenizer=write_tokenizer(json.loads(tokenizer.to_str())))

    def all_words(self) -> Sequence[str]:
        """Return all pieces, the 256 bytes too."""
        return list(self.machine.get_vocab())

    def forms(self, text: str) -> list[tuple[str, ...]]:
        """Return the pieces of a text with a space before it, and without."""
        spaced = super().forms(text)
        if not spaced or not spaced[0][0].startswith(SPACE):
            return spaced
        first, *rest = spaced[0]
        close = (first.removeprefix(SPACE), *rest) if first != SPACE else tuple(rest)
        return [*spaced, close]

    def cut(self, chunk: str) -> Sequence[str]:
        """Return the pieces of a chunk."""
        return self.machine.encode(chunk, add_special_tokens=False).tokens

    def _begin(self) -> BytesWriter:
        return BytesWriter()


class BytesWriter(Writer):
    """Spells the bytes that pieces stand for; a character is written when its last byte has come."""

    def __init__(self) -> None:
        super().__init__()
        self._held = b""

    def begin_line(self) -> None:
        """Begin a new line; the bytes of a character that was not finished are dropped."""
        super().begin_line()
        self._held = b""

    def add_word(self, word: str) -> str:
        """Return what is now sure to be written; bytes that are no text show as ``�``."""
        # A new decoder each time, so that a copy of the writer goes its own way.
        decoder = getincrementaldecoder("utf-8")(errors="replace")
        alphabet = _alphabet()
        text = decoder.decode(self._held + bytes(alphabet[letter] for letter in word))
        self._held = decoder.getstate()[0]
        return text.removeprefix(" ") if self.at_start else text

    def end(self) -> str:
        """Return ``�`` where a character was not finished."""
        return self._held.decode("utf-8", errors="replace")


@cache
def _alphabet() -> dict[str, int]:
    """Return the byte that each letter of GPT-2's alphabet stands for: itself, or the next free letter from Ā on."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + place): byte for place, byte in enumerate(others)}


def _repeat(counts: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Yield each chunk as often as it comes, with a space before it; the trainer can only be given text.

    Counts of a long text are all made smaller by the same factor, so that learning takes seconds, not minutes.
    """
    factor = max(1.0, sum(count for _, count in counts) / _MOST_CHUNKS)
    for chunk, count in counts:
        left = round(count / factor)
        while left > 0:
            yield f" {chunk}" * min(left, _BLOCK_CHUNKS)
            left -= _BLOCK_CHUNKS
