"""Rules that hold a tokenizer of Hugging Face's library ``tokenizers``, whose JSON says all about it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tslm.corpus.rule import TextRule

if TYPE_CHECKING:  # imported when a rule of this kind is used, which most commands do not
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class TokenizedRule(TextRule):
    """A rule that a tokenizer carries out; it is kept with the model, so a later version cuts text alike."""

    tokenizer: str = ""
    """The tokenizer as JSON, as ``tokenizers.Tokenizer.from_str`` reads it."""

    def __post_init__(self) -> None:
        _ = self.machine  # a damaged file is found when it is read, not when the first word comes

    @cached_property
    def machine(self) -> Tokenizer:
        """The tokenizer itself.

        Raises:
            ValueError: the JSON is not that of a tokenizer.
        """
        from tokenizers import Tokenizer

        try:
            return Tokenizer.from_str(self.tokenizer)
        except Exception as error:  # the library raises nothing more specific
            raise ValueError(f"the tokenizer cannot be read: {error}") from error

    def normalise(self, chunk: str) -> str:
        """Return a chunk in the one form of Unicode that the rule knows."""
        normaliser = self.machine.normalizer
        return chunk if normaliser is None or chunk.isascii() else normaliser.normalize_str(chunk)

    def describe(self) -> dict[str, Any]:
        """Return all that the rule is, the tokenizer as the values that its JSON stands for."""
        return super().describe() | {"tokenizer": json.loads(self.tokenizer)}

    @classmethod
    def from_description(cls, values: dict[str, Any]) -> TokenizedRule:
        """Make the rule from what ``describe`` returned, without the kind."""
        return cls(lower=values["lower"], tokenizer=write_tokenizer(values["tokenizer"]))


def write_tokenizer(values: dict[str, Any]) -> str:
    """Return the JSON of a tokenizer, always the same for the same one."""
    return json.dumps(values, ensure_ascii=False, sort_keys=True)
