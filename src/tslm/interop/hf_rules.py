r"""A model's text rule and vocabulary as the JSON of the library ``tokenizers``, which cuts any text into the same ids.

``<eos>`` is found first. The rule's normaliser turns it, where the rule takes it for a word, into a newline, and a
newline is what an ``<eos>`` is everywhere; the added token ``<eos>`` is normalised as any text is, and so it is looked
for as a newline. What stands between is cut at white space, as every rule does, and then by the rule itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from tslm.corpus.embedded import Verses
from tslm.corpus.rule import TextRule
from tslm.corpus.subwords import Subwords
from tslm.corpus.tokenized import TokenizedRule
from tslm.corpus.vocabulary import EOS, UNK, Vocabulary
from tslm.corpus.words import Words

TOKENIZER_FILE = "tokenizer.json"

# What Python's str.split parts words at; \s of the library's expressions is not the same.
_SPACE = "".join(f"\\x{{{code:X}}}" for code in range(sys.maxunicode + 1) if chr(code).isspace())
_EOS_ALONE = rf"(?<![^{_SPACE}]){EOS}(?![^{_SPACE}])"

# str.lower, as Unicode has it, writes a Σ at the end of a word as ς; the library lowers letter by letter.
_CASED, _IGNORED = r"[\p{Cased}&&\P{Case_Ignorable}]", r"\p{Case_Ignorable}*"
_LAST_SIGMA = rf"(?<={_CASED}{_IGNORED})Σ(?!{_IGNORED}{_CASED})"

# The expression of ``Verses``, whose [^\W\d_] are letters and those numbers that are no digits.
_LETTER = r"[\p{L}\p{Nl}\p{No}]"
_VERSES = rf"{UNK}|{_LETTER}+(?:-{_LETTER}+)*|’s(?![\p{{L}}\p{{N}}_])|[^{_SPACE}]"


def write_fast_tokenizer(rule: TextRule, vocabulary: Vocabulary) -> str | None:
    """Return the JSON of a tokenizer that gives the ids of a rule and a vocabulary for every text.

    Returns:
        None where there is none: for a rule that this module does not know; where a word outside the vocabulary is
        an error, which the library could not explain; and for subwords that are not all in the vocabulary.
    """
    ids = dict(vocabulary.ids)
    if type(rule) not in (TextRule, Verses, Words, Subwords):
        return None
    own: dict[str, Any] = json.loads(rule.tokenizer) if isinstance(rule, TokenizedRule) else {}
    if isinstance(rule, Subwords):
        if not set(rule.all_words()) <= ids.keys():
            return None
        model = own["model"] | {"vocab": ids}
    elif vocabulary.unk_id is None:
        return None
    else:
        model = {"type": "WordLevel", "vocab": ids, "unk_token": UNK}
    steps: list[Mapping[str, Any]] = []
    if rule.lower:
        steps += [_replace(_LAST_SIGMA, "ς"), {"type": "Lowercase"}]
    steps.append(_replace(EOS if isinstance(rule, Verses) else _EOS_ALONE, "\n"))
    if own.get("normalizer"):
        steps.append(own["normalizer"])
    cuts: list[Mapping[str, Any]] = [_split(f"[{_SPACE}]", "Removed")]
    if isinstance(rule, Verses):
        cuts.append(_split(_VERSES, "Isolated"))
    if own.get("pre_tokenizer"):
        cuts.append(own["pre_tokenizer"])
    eos = {"SpecialToken": {"id": EOS, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": vocabulary.eos_id,
                "content": EOS,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": True,
                "special": True,
            }
        ],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [eos, first],
            "pair": [eos, first, eos, second],
            "special_tokens": {EOS: {"id": EOS, "ids": [vocabulary.eos_id], "tokens": [EOS]}},
        },
        "decoder": own.get("decoder"),
        "model": model,
    }
    return json.dumps(tokenizer, ensure_ascii=False, indent=1) + "\n"


def _replace(expression: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": expression}, "content": content}


def _split(expression: str, behaviour: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": behaviour, "invert": False}
