"""A finished run, opened again: recipe, vocabulary, model and summary of a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tslm.corpus.rule import RULE_FILE, TextRule, load_rule
from tslm.corpus.sources import Corpus, open_corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.devices import place_model
from tslm.errors import CorpusError, RunError, TslmError
from tslm.files import read_path
from tslm.models.base import LanguageModel
from tslm.models.registry import model_class
from tslm.runs.folder import RECIPE, VOCABULARY, check_small
from tslm.runs.pretrained import find_pretrained, pretrained_names
from tslm.runs.recipe import Recipe, read_recipe
from tslm.runs.summary import Summary, read_summary


@dataclass(frozen=True)
class Run:
    """What a run folder holds. Model and summary are read when they are first asked for.

    Example:
        >>> run = open_run("runs/asv-kn5")
        >>> run.recipe.corpus.name, run.summary.test.perplexity, run.model.order
        ('asv', 39.359, 5)
    """

    folder: Path
    recipe: Recipe
    vocabulary: Vocabulary
    """The words of the run's corpus; its model may know ``<unk>`` besides."""
    rule: TextRule
    """How its text became words."""

    @cached_property
    def model(self) -> LanguageModel[Any]:
        """The model. Nothing in the folder is executed."""
        model = model_class(self.recipe.kind).load(self.folder, self.recipe.model, self.vocabulary)
        model.rule = self.rule
        return model

    @cached_property
    def summary(self) -> Summary | None:
        """What came of the run; None where it is not finished."""
        return read_summary(self.folder)

    def open_corpus(self, data_dir: str | Path | None = None) -> Corpus:
        """Open the corpus that the run has learnt from.

        Raises:
            RunError: it is not here, or is another than the run has learnt from.
        """
        try:
            corpus = open_corpus(self.recipe.corpus, data_dir=data_dir)
        except CorpusError as error:
            raise RunError(
                f"the corpus of {self.folder} is not here ({error}); or give a text of your own"
            ) from error
        # A mix of n-gram models may know <unk> besides, and an adapted model the new words of another text.
        if self.vocabulary.words[: len(corpus.vocabulary)] != corpus.vocabulary.words:
            raise RunError(
                f"the corpus {corpus.name!r} found here has another vocabulary than {self.folder} was trained with; "
                "use the same files and options"
            )
        return corpus


def open_run(folder: str | Path) -> Run:
    """Open a run folder, or a model that comes with the package.

    Args:
        folder: the run folder; where there is none, the name of a model that comes with the package (``asv/gated``).

    Raises:
        RunError: the folder is missing, or is no run folder, or is damaged.
    """
    folder = read_path(folder, "run folder")
    if not _is_folder(folder):
        found = find_pretrained(folder)
        if found is None and _is_file(folder):
            raise RunError(f"{folder} is a file, not a run folder; give the folder that tslm train wrote")
        if found is None:
            raise RunError(
                f"no run folder at {folder}; train one with: tslm train RECIPE --out {folder}, or name a model that "
                f"comes with tslm: {', '.join(pretrained_names())}"
            )
        folder = found
    if not (folder / RECIPE).exists():
        raise RunError(
            f"{folder} is no run folder: it has no {RECIPE}; give the folder that tslm train wrote"
        )
    try:
        check_small(folder)
        recipe, path = read_recipe(folder / RECIPE), folder / RULE_FILE
        # Runs of older versions have no file of their rule, and none that is learnt.
        rule = load_rule(path) if path.exists() else recipe.corpus.fixed_rule()
        return Run(folder, recipe, Vocabulary.load(folder / VOCABULARY), rule)
    except TslmError as error:
        raise RunError(f"the run folder {folder} is damaged: {error}") from error


def load(folder: str | Path, device: str = "cpu") -> LanguageModel[Any]:
    """Open the model of a run folder, whatever its kind. Nothing in the folder is executed.

    Args:
        folder: the run folder; where there is none, the name of a model that comes with the package (``asv/gated``).
        device: where it is to compute: ``cpu``, ``cuda``, ``mps``, or ``auto`` for an accelerator where there is one.
            Models that are counted compute on the CPU in any case.

    Raises:
        UnsupportedError: there is no such device on this machine.
        RunError: the folder is missing, damaged, or no run folder.
    """
    return place_model(open_run(folder).model, device)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name too long for a file, a folder that may not be read
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False
