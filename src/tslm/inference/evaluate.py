"""The perplexity of a model, or of a run's, on a text in any form."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.reading import EncodedText, encode_file, measure_text
from tslm.corpus.sources import Corpus
from tslm.errors import CorpusError, InputError
from tslm.evaluation.perplexity import Perplexity
from tslm.evaluation.perplexity import evaluate as evaluate_ids
from tslm.evaluation.scoring import Tick
from tslm.inference.inputs import ModelLike, TextLike, as_run, lines_of, name_model, name_text, open_model
from tslm.models.base import LanguageModel
from tslm.tables import html_table, show_count, show_number


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation(Perplexity):
    """A perplexity, and what was measured.

    Example:
        >>> evaluation = tslm.evaluate("runs/asv-kn5")
        >>> evaluation.perplexity, evaluation.split
        (39.359, 'test')
    """

    run: str
    """The run folder, or the kind of a model that was given itself."""

    corpus: str
    """The corpus, or the file of another text."""

    fingerprint: str
    """SHA-256 over the corpus, or over the ids of another text."""

    split: str
    """The split of the corpus; ``text`` for another text."""

    def as_json(self) -> dict[str, Any]:
        """Return all of it as one flat table of plain values, without what was not measured."""
        facts = {key: getattr(self, key) for key in ("run", "corpus", "fingerprint", "split")}
        return facts | {key: value for key, value in asdict(self).items() if value is not None}

    def rows(self) -> list[tuple[str, str]]:
        """Return what there is to say of it, each with its name."""
        rows = [("perplexity", show_number(self.perplexity, 4))]
        if self.perplexity_reset is not None:
            rows.append(("reset per line", show_number(self.perplexity_reset, 4)))
        rows.append(("bits per word", show_number(self.bits_per_word, 4)))
        if self.bits_per_byte is not None:
            rows.append(("bits per byte", show_number(self.bits_per_byte, 4)))
            rows.append(("per word between spaces", show_number(self.perplexity_per_word, 4)))
        return [
            *rows,
            ("tokens", f"{self.tokens:,} in {show_count(self.lines, 'line')}"),
            ("vocabulary", f"{self.vocabulary:,} words, {self.unk_share:.2%} of the tokens <unk>"),
            ("fingerprint", self.fingerprint[:16]),
            ("protocol", self.protocol),
        ]

    def __repr__(self) -> str:
        return "\n".join(
            [
                f"{self.run} on {self.corpus} {self.split}",
                *(f"  {name:<24}{value}" for name, value in self.rows()),
            ]
        )

    def _repr_html_(self) -> str:
        """Return the figures as a table, for a notebook."""
        return html_table([f"{self.run} on {self.corpus} {self.split}", ""], self.rows())


def evaluate(
    model: ModelLike,
    text: TextLike | NDArray[np.integer[Any]] | Corpus | None = None,
    *,
    split: str = "test",
    reset: bool = True,
    data_dir: str | Path | None = None,
    tick: Tick | None = None,
) -> Evaluation:
    """Measure a model's perplexity.

    Args:
        model: a model, or its run folder.
        text: a string, a list or column of strings (a line each), a ``Path``, an opened corpus, or ids that are encoded
            already, one ``<eos>`` after each line. Left out, it is a split of the run's own corpus.
        split: which split of a corpus.
        reset: also measure with the state started anew at every line (twice the work).
        data_dir: where to look for named corpora first.
        tick: told how many more tokens have been read.

    Raises:
        TslmError: the model, its corpus or the text cannot be read, or is none.
    """
    opened = open_model(model)
    if text is None:
        run = as_run(model)
        corpus = run.open_corpus(data_dir)
        read, name = _read_split(corpus, split, own=bool(run.recipe.corpus.path)), corpus.name
    elif isinstance(text, Corpus):
        if text.vocabulary.words != opened.vocabulary.words[: len(text.vocabulary)]:
            raise CorpusError(
                f"the corpus {text.name!r} has another vocabulary than the model; give its text, to be encoded anew"
            )
        read, name = _read_split(text, split, own=False), text.name
    else:
        read, name, split = encode(opened, text), name_text(text), "text"
    measured = evaluate_ids(opened, read.ids, reset=reset, size=read.size, tick=tick)
    facts: dict[str, Any] = {"run": name_model(model), "corpus": name, "split": split}
    return Evaluation(**asdict(measured), **facts, fingerprint=read.fingerprint)


def encode(model: LanguageModel[Any], text: object) -> EncodedText:
    """Return a text, however it is given, as a model's ids.

    Raises:
        InputError: it is no text.
        CorpusError: it is empty, or has a word for which there is neither id nor ``<unk>``.
    """
    if isinstance(text, os.PathLike) or (isinstance(text, str) and text == "-"):
        return encode_file(cast(Path, text), model.vocabulary, model.rule)
    if isinstance(text, np.ndarray) and text.dtype.kind in "iu":
        given = cast(NDArray[np.integer[Any]], text)
        if given.ndim != 1:
            raise InputError(f"ids of shape {given.shape}; give one row of ids, one <eos> after each line")
        ids = given.astype(np.int32, copy=False)
        return EncodedText(ids, sha256(ids.astype("<i4").tobytes()).hexdigest(), None)
    lines = list(lines_of(text))
    if not any(map(str.split, lines)):
        raise CorpusError("the text has no word; give at least one")
    whole = "".join(f"{line.replace(chr(10), ' ')}\n" for line in lines)
    ids = model.vocabulary.encode(model.rule.split_lines(whole))
    return EncodedText(ids, sha256(ids.astype("<i4").tobytes()).hexdigest(), measure_text(whole, model.rule))


def _read_split(corpus: Corpus, split: str, *, own: bool) -> EncodedText:
    if split not in corpus.splits:
        raise CorpusError(f"no split {split!r}; {corpus.name} has {', '.join(corpus.splits)}")
    # The words of a named corpus are given: what depends on none is measured for own text.
    size = corpus.sizes.get(split) if own else None
    return EncodedText(corpus.splits[split], corpus.fingerprint, size)
