"""A trained model, trained on with a user's own text: new words learnt, the old text not forgotten."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from tslm.corpus.encoding import fingerprint
from tslm.corpus.rule import TextRule
from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import EOS, UNK, Vocabulary
from tslm.errors import CorpusError, NumberError, RunError, UnsupportedError
from tslm.evaluation.perplexity import evaluate
from tslm.files import to_json, write_text
from tslm.inference.inputs import ModelLike, TextLike, as_run, lines_of, name_text, read_choice, read_count
from tslm.inference.interpolate import tune_mix
from tslm.models.ngram.smoothed import NgramConfig, NgramModel
from tslm.models.parts import Part
from tslm.models.recurrent.extension import Start, extend_model
from tslm.models.recurrent.model import RecurrentModel
from tslm.runs.folder import locked_run, prepare_folder
from tslm.runs.made import save_model
from tslm.runs.pretrained import name_run
from tslm.runs.recipe import Recipe
from tslm.runs.run import load, open_run
from tslm.runs.summary import Source, summarise, write_summary
from tslm.runs.train import describe_training, measure
from tslm.tables import html_table, show_count, show_number, text_table
from tslm.training.config import ObjectiveConfig, TrainConfig
from tslm.training.distributed import Group
from tslm.training.trainer import Trainer
from tslm.training.watcher import Watcher

REPORT = "adaptation.json"

FEWEST_LINES = 20
EVERY = 10
"""Of every so many lines of the text, one says when to stop and one is measured at the end."""

STEP_WORDS = 2000
"""There is a column of the batch for every so many words: a short text is read in more steps."""

COUNTS = NgramConfig(order=5, discount_fallback=(0.5, 1.0, 1.5))
"""How the new lines are counted; a short text has no discounts of its own."""


@dataclass(frozen=True, kw_only=True)
class Adapted:
    """Perplexities of a model before it was adapted and afterwards."""

    before: float
    """Of the model as it was; to it new words are ``<unk>``, which is easier to predict than the word itself."""

    start: float
    """Of the model that has rows for the new words and has learnt nothing yet: what ``after`` is to be held against."""

    after: float

    counted: float
    """Of the counts of the new lines alone, Kneser–Ney of order 5 over the same words."""

    mixed: float
    """Of the adapted model mixed with these counts; the lines that say when to stop say how much they weigh."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Adaptation:
    """What came of adapting a model to a text; ``adaptation.json`` holds it."""

    folder: Path
    source: str
    """The run that was adapted."""
    text: str
    settings: Mapping[str, Any]
    """How it was adapted: ``min_count``, ``start``, ``old``, ``epochs`` and ``rate``."""
    new: Adapted
    """On the part of the new text that is kept for this."""
    old: Adapted
    """On the valid split of the old corpus."""
    words: int
    """New words that it has learnt."""
    new_tokens: int
    old_tokens: int
    """Words of the new and of the old text that it was trained on, each counted once."""
    epochs: int
    best_epoch: int
    """The one with the lowest perplexity on held-out lines of the new text, which is the one that was kept."""
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {**asdict(self), "folder": str(self.folder)}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of a table."""
        header = ["perplexity", "before", "with new words", "adapted", "KN-5 of the new lines", "both mixed"]
        return header, [
            [name, *(show_number(value) for value in asdict(found).values())]
            for name, found in (("new text", self.new), ("old text", self.old))
        ]

    def __repr__(self) -> str:
        facts = (
            f"{show_count(self.words, 'new word')}; trained on {self.new_tokens:,} words of {self.text} and "
            f"{self.old_tokens:,} of the old text, best after epoch {self.best_epoch} of {self.epochs}; "
            f"{self.folder} holds the model"
        )
        return f"{text_table(*self.table(), left=(0,))}\n{facts}"

    def _repr_html_(self) -> str:
        """Return the table, for a notebook."""
        return html_table(*self.table())


def adapt(
    run: ModelLike,
    text: TextLike,
    out: str | Path,
    *,
    min_count: int = 2,
    start: Start = "unknown",
    old: float = 4.0,
    epochs: int = 6,
    rate: float = 0.5,
    mix: str | Path | None = None,
    data_dir: str | Path | None = None,
    watcher: Watcher | None = None,
) -> Adaptation:
    """Train a recurrent model on with a text of one's own, and save it as a run folder of its own.

    Of every ten lines of the text, eight are learnt from, one says when to stop, and one is measured at the end. Old
    text is read beside the new, other words of it in each epoch, so that it is not forgotten. The same call goes on
    with what was broken off.

    Args:
        run: the run folder of a recurrent model; its corpus must be at hand.
        text: a string, a list or column of strings (a line each), or a ``Path``.
        out: the folder to write.
        min_count: words that the model does not know become words of its own where they occur this often.
        start: where their vectors start: as ``<unk>``, or as the mean of ``rare`` words.
        old: how many words of the old text are read for each of the new; 0 leaves the old text to its fate.
        epochs: the most; it stops earlier after two without a gain.
        rate: the learning rate, as a share of that of the run's recipe.
        mix: also keep the adapted model mixed with counts of the new text, as a run folder of its own.
        data_dir: where to look for named corpora first.
        watcher: is told of every step and epoch.

    Raises:
        TslmError: the model is not recurrent, or the text, the corpus or the folder is wrong.
    """
    opened, watcher, folder = as_run(run), watcher or Watcher(), Path(out)
    model = opened.model
    if not isinstance(model, RecurrentModel):
        raise UnsupportedError(
            f"only recurrent models are adapted, and this is of kind {model.kind!r}; train one from both texts with "
            "tslm train, or mix two with tslm compare --mix linear"
        )
    read_choice(start, get_args(Start), "start")
    min_count, epochs = read_count(min_count, "min_count"), read_count(epochs, "epochs")
    if min_count < 1 or epochs < 1 or old < 0 or not 0 < rate <= 10:
        raise NumberError(
            f"min_count = {min_count}, epochs = {epochs}, old = {old}, rate = {rate}; expected 1 or more, 1 or more, "
            "0 or more, above 0 and at most 10"
        )
    if folder.resolve() == opened.folder.resolve():
        raise RunError(f"{folder} is the run itself; choose another folder with --out")
    if mix is not None and Path(mix).resolve() in (folder.resolve(), opened.folder.resolve()):
        raise RunError(f"{mix} holds a run of its own; choose another folder with --mix")
    known, began = opened.open_corpus(data_dir), time.perf_counter()
    lines = _cut(model.rule, text)
    vocabulary, shares = choose_words(model.vocabulary, model.rule, lines["train"], min_count)
    splits = {
        split: vocabulary.encode([word for line in part for word in line]) for split, part in lines.items()
    }
    texts = _Texts(splits["train"], known.splits["train"], round(old * len(splits["train"])), epochs)
    splits["train"] = np.concatenate([texts.new, texts.old])
    name = f"{known.name} + {name_text(text)}"
    corpus = Corpus(name, vocabulary, splits, fingerprint(vocabulary, splits), model.rule)
    recipe = _change_recipe(opened.recipe, len(texts(0)), epochs, rate)
    wider = extend_model(model, vocabulary, shares, start=start)
    assert recipe.train is not None and recipe.objective is not None  # noqa: S101, PT018
    with locked_run(folder):
        prepare_folder(folder, recipe, vocabulary, model.rule)
        watcher.tell("measuring both texts before")
        unknown = model.vocabulary.encode([word for line in lines["test"] for word in line])
        before = [_measure(model, unknown), _measure(model, known.splits["valid"])]
        begun = [_measure(wider, splits["test"]), _measure(wider, known.splits["valid"])]
        if recipe.train.threads:
            torch.set_num_threads(recipe.train.threads)
        trainer = Trainer(wider, recipe.train, recipe.objective, corpus, folder, Group(), watcher, texts)
        position = trainer.run()
        adapted = load(folder)
        watcher.tell("measuring both texts afterwards")
        # The summary of a run is of the corpus that its recipe names, and that is the old one.
        measured = measure(adapted, known, recipe, ("valid", "test") if recipe.train.test else ("valid",))
        after = [_measure(adapted, splits["test"]), measured["valid"].perplexity]
        counts = NgramModel.fit(COUNTS, replace(corpus, splits={"train": texts.new}))
        mixed = tune_mix("linear", [Part(adapted, recipe.model), Part(counts, COUNTS)], splits["valid"])
        counted, both = (
            [_measure(one, ids) for ids in (splits["test"], known.splits["valid"])] for one in (counts, mixed)
        )
        new, of_old = (
            Adapted(before=row[0], start=row[1], after=row[2], counted=row[3], mixed=row[4])
            for row in zip(before, begun, after, counted, both, strict=True)
        )
        report = Adaptation(
            folder=folder,
            source=name_run(opened.folder),
            text=name_text(text),
            settings={"min_count": min_count, "start": start, "old": old, "epochs": epochs, "rate": rate},
            new=new,
            old=of_old,
            words=len(shares),
            new_tokens=len(texts.new),
            old_tokens=len(texts.old),
            epochs=position.epoch,
            best_epoch=position.best_epoch,
            seconds=time.perf_counter() - began,
        )
        write_text(folder / REPORT, to_json(report.as_json(), indent=2) + "\n")
        training = describe_training(position, replace(corpus, splits={"train": texts(0)}))
        source, seconds = Source.of(corpus), position.seconds
        write_summary(
            folder, summarise(recipe, adapted, source, measured, seconds=seconds, training=training)
        )
    if mix is not None:
        kinds = [part.model.kind for part in mixed.parts]
        save_model(mixed, Path(mix), open_run(folder), known, parts=kinds)
    return report


def _cut(rule: TextRule, text: TextLike) -> dict[str, list[list[str]]]:
    """Return the lines of a text as words, ``<eos>`` after each: most to learn from, some held out."""
    lines = [[*words, EOS] for words in map(rule.split, lines_of(text)) if words]
    if len(lines) < FEWEST_LINES:
        raise CorpusError(
            f"the text has {len(lines)} lines with words; give {FEWEST_LINES} or more, one sentence on each"
        )
    parts: dict[str, list[list[str]]] = {"train": [], "valid": [], "test": []}
    for number, line in enumerate(lines):
        split = {EVERY // 2 - 1: "valid", EVERY - 1: "test"}.get(number % EVERY, "train")
        parts[split].append(line)
    return parts


def choose_words(
    known: Vocabulary, rule: TextRule, lines: Sequence[Sequence[str]], min_count: int
) -> tuple[Vocabulary, NDArray[np.float64]]:
    """Return the vocabulary with the new words of a text after the old ones, and each one's share of the unknown.

    A rule that spells everything has no new words. A vocabulary without ``<unk>`` gets it, for the words that are too
    rare to be learnt.
    """
    if rule.all_words() is not None:
        return known, np.empty(0)
    counts = Counter(word for line in lines for word in line if word not in known)
    new = sorted(
        (word for word in counts if counts[word] >= min_count), key=lambda word: (-counts[word], word)
    )
    total = sum(counts.values())
    shares = [counts[word] / total for word in new]
    if known.unk_id is None and UNK not in new:
        left = max(1, total - sum(counts[word] for word in new))
        new, shares = [*new, UNK], [*shares, left / max(total, 1)]
    return Vocabulary((*known.words, *new)), np.array(shares)


class _Texts:
    """What is read in each epoch: the new text, and beside it other words of the old text than in the epoch before."""

    def __init__(self, new: NDArray[np.int32], old: NDArray[np.int32], beside: int, epochs: int) -> None:
        self.new, self.beside = new, min(beside, len(old))
        read = min(epochs * self.beside, len(old))
        begin = (len(old) - read) // 2
        self.old = np.asarray(old[begin : begin + read])
        """All that is read of the old text, from its middle."""

    def __call__(self, epoch: int) -> NDArray[np.int32]:
        """Return the text of an epoch; where the old text comes to its end, it begins anew."""
        if not self.beside:
            return self.new
        places = np.arange(epoch * self.beside, (epoch + 1) * self.beside) % len(self.old)
        return np.concatenate([self.new, self.old[places]])


def _change_recipe(recipe: Recipe, tokens: int, epochs: int, rate: float) -> Recipe:
    """Return the recipe of training on: gently, in smaller steps for a short text, until it no longer helps."""
    train = recipe.train or TrainConfig()
    batch = max(1, min(train.batch, tokens // STEP_WORDS))
    changed = replace(
        train, epochs=epochs, batch=batch, learning_rate=rate * train.learning_rate, patience=2, average=0.0
    )
    # A sample of the words would be of those that were frequent in the old text.
    return replace(recipe, train=changed, objective=ObjectiveConfig())


def _measure(model: RecurrentModel | Any, ids: NDArray[np.int32]) -> float:
    return evaluate(model, ids, reset=False).perplexity
