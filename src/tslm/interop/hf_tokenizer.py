"""A model's text rule and vocabulary as a tokenizer of Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from tslm.corpus.rule import RULE_FILE, TextRule, load_rule
from tslm.corpus.vocabulary import EOS, UNK, Vocabulary, unknown_word
from tslm.errors import UnsupportedError
from tslm.interop.hf_rules import TOKENIZER_FILE
from tslm.runs.folder import VOCABULARY

try:
    from transformers.tokenization_python import PreTrainedTokenizer
    from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast
except ImportError as error:
    raise UnsupportedError(
        "Hugging Face needs transformers 5; install it with: pip install 'tslm[hf]'"
    ) from error

_FILES = {"vocab_file": VOCABULARY, "rule_file": RULE_FILE}
_BEFORE: ContextVar[Sequence[str]] = ContextVar("before", default=())


class WritesByRule:
    """Writes words as people do: what both tokenizers share.

    Ids that begin with ``<eos>`` are written as a text from its beginning, any others as what goes on behind one: with
    the space before the first word. With ``skip_special_tokens`` the line ends before and behind a text are left out,
    and so is what pads it; those in it stay, and ``<unk>`` is a word like any other.
    """

    vocabulary: Vocabulary
    rule: TextRule

    @contextmanager
    def behind(self, ids: Sequence[int]) -> Generator[None]:
        """Write whatever is decoded within as what goes on behind a text that is known."""
        token = _BEFORE.set(self.vocabulary.decode(ids))
        try:
            yield
        finally:
            _BEFORE.reset(token)

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Return words as people write them, a new line for ``<eos>``."""
        before = _BEFORE.get()
        writer = self.rule.writer(before)
        if not before:
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


class TslmTokenizer(WritesByRule, PreTrainedTokenizer):
    """Cuts a text into a model's own words by the rule itself, whatever it is.

    A text begins with an ``<eos>``, as our models have it, and each new line in it is one; ``add_special_tokens=False``
    leaves the first out.
    """

    vocab_files_names = _FILES
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012 - as transformers declares it

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


class TslmFastTokenizer(WritesByRule, PreTrainedTokenizerFast):  # pyright: ignore[reportIncompatibleMethodOverride]
    """The same ids from the library ``tokenizers``: fast, and with the place of each token in the text.

    The rules that can be written so are in ``tslm.interop.hf_rules``; ``tokenizer.json`` holds them.
    """

    vocab_files_names = _FILES | {"tokenizer_file": TOKENIZER_FILE}
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(self, vocab_file: str, rule_file: str, **kwargs: Any) -> None:
        self.vocabulary = Vocabulary.load(Path(vocab_file))
        self.rule = load_rule(Path(rule_file))
        # Normalised: a newline is one, too. <unk> is left to the model; as a mark it would part the words around it.
        marks = dict.fromkeys(
            ("bos_token", "eos_token", "pad_token"), AddedToken(EOS, normalized=True, special=True)
        )
        super().__init__(vocab_file=vocab_file, **{"padding_side": "left", **kwargs, **marks})

    @classmethod
    def convert_to_native_format(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the files as they are: ``tokenizer.json`` holds all that the library needs."""
        return kwargs

    # The library calls the added token by what it looks for in a text, a newline; everywhere else it is <eos>.

    def convert_ids_to_tokens(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, ids: int | list[int], skip_special_tokens: bool = False
    ) -> str | list[str]:
        """Return the words of ids."""
        if isinstance(ids, int):
            return self.vocabulary.decode([ids])[0]
        words = self.vocabulary.decode([int(number) for number in ids])
        return [word for word in words if not (skip_special_tokens and word == EOS)]

    def tokenize(self, *args: Any, **kwargs: Any) -> list[str]:
        """Return the words of a text by the model's rule alone, ``<eos>`` for each newline."""
        return [EOS if word == "\n" else word for word in super().tokenize(*args, **kwargs)]

    def _save_pretrained(
        self, save_directory: Any, file_names: tuple[str, ...], *args: Any, **kwargs: Any
    ) -> tuple[str, ...]:
        """Write ``tokenizer.json``, and vocabulary and rule beside it, which decoding needs."""
        written = super()._save_pretrained(save_directory, file_names, *args, **kwargs)
        return written + self.save_vocabulary(str(save_directory), kwargs.get("filename_prefix"))
