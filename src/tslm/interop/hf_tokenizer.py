"""A model's text rule and vocabulary as a tokenizer of Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tslm.corpus.rule import RULE_FILE, TextRule, load_rule
from tslm.corpus.vocabulary import EOS, UNK, Vocabulary, unknown_word
from tslm.errors import UnsupportedError
from tslm.runs.folder import VOCABULARY

try:
    from transformers.tokenization_python import PreTrainedTokenizer
except ImportError as error:
    raise UnsupportedError(
        "Hugging Face needs transformers 5; install it with: pip install 'tslm[hf]'"
    ) from error


class TslmTokenizer(PreTrainedTokenizer):
    """Cuts a text into a model's own words, and writes words as people do.

    A text begins with an ``<eos>``, as our models have it, and each new line in it is one; ``add_special_tokens=False``
    leaves the first out. Ids that begin with it are written as a text from its beginning, any others as what goes on
    behind one: with the space before the first word. With ``skip_special_tokens`` the line ends before and behind a
    text are left out, and so is what pads it; those in it stay, and ``<unk>`` is a word like any other.
    """

    vocab_files_names = {  # noqa: RUF012 - as transformers declares it
        "vocab_file": VOCABULARY,
        "rule_file": RULE_FILE,
    }
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(self, vocab_file: str, rule_file: str, **kwargs: Any) -> None:
        self.vocabulary = Vocabulary.load(Path(vocab_file))
        self.rule: TextRule = load_rule(Path(rule_file))
        marks = {"bos_token": EOS, "eos_token": EOS, "pad_token": EOS}
        if self.vocabulary.unk_id is not None:
            marks["unk_token"] = UNK
        # Left: what is generated goes on behind the text, not behind its padding.
        super().__init__(**{"padding_side": "left", "special_tokens_pattern": "bos", **marks, **kwargs})

    @property
    def vocab_size(self) -> int:
        """The number of words."""
        return len(self.vocabulary)

    def get_vocab(self) -> dict[str, int]:
        """Return the id of each word."""
        return dict(self.vocabulary.ids)

    def tokenize(self, text: str, **kwargs: Any) -> list[str]:
        """Return the words of a text by the model's rule alone, ``<eos>`` for each newline."""
        return self.rule.split_lines(text)

    def _convert_token_to_id(self, token: str) -> int:
        found = self.vocabulary.ids.get(token, self.vocabulary.unk_id)
        if found is None:
            raise unknown_word(token)
        return found

    def _convert_id_to_token(self, index: int) -> str:
        return self.vocabulary.decode([index])[0]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Return words as people write them, a new line for ``<eos>``."""
        writer = self.rule.writer()
        writer.at_start = bool(tokens) and tokens[0] == EOS
        return "".join(map(writer.add, tokens)) + writer.end()

    def _decode(
        self,
        token_ids: int | list[int],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **kwargs: Any,
    ) -> str:
        words = self.vocabulary.decode([token_ids] if isinstance(token_ids, int) else token_ids)
        text = self.convert_tokens_to_string(words)
        if skip_special_tokens:
            return text.strip("\n")
        shown = text.replace("\n", f" {EOS} ").replace("  ", " ").rstrip(" ")
        return shown.lstrip(" ") if words[:1] == [EOS] else shown

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Write vocabulary and rule as a run folder has them."""
        before = f"{filename_prefix}-" if filename_prefix else ""
        words, rule = (Path(save_directory) / f"{before}{name}" for name in (VOCABULARY, RULE_FILE))
        self.vocabulary.save(words)
        self.rule.save(rule)
        return str(words), str(rule)
