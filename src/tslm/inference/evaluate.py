"""The perplexity of a run's model on a text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tslm.corpus.reading import encode_file
from tslm.evaluation.perplexity import Perplexity, Tick, evaluate
from tslm.runs.run import open_run


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A perplexity, and what was measured."""

    run: str
    corpus: str
    """The corpus, or the file of another text."""
    fingerprint: str
    split: str
    """The split of the corpus; ``text`` for another text."""
    measured: Perplexity

    def as_json(self) -> dict[str, Any]:
        """Return all of it as one flat table of plain values."""
        facts = {key: getattr(self, key) for key in ("run", "corpus", "fingerprint", "split")}
        return facts | asdict(self.measured)


def evaluate_run(
    folder: str | Path,
    *,
    split: str = "test",
    text: str | None = None,
    data_dir: str | Path | None = None,
    tick: Tick | None = None,
) -> Evaluation:
    """Measure a run's model on a split of its own corpus, or on another text encoded with its vocabulary.

    Raises:
        TslmError: the folder is no run folder, or its corpus or the text is not here.
    """
    run = open_run(folder)
    if text is None:
        corpus = run.open_corpus(data_dir)
        ids, name, fingerprint = corpus.splits[split], corpus.name, corpus.fingerprint
    else:
        read = encode_file(text, run.model.vocabulary, run.recipe.corpus.fixed_rule())
        ids, fingerprint = read.ids, read.fingerprint
        name, split = text, "text"
    measured = evaluate(run.model, ids, tick=tick)
    return Evaluation(run=str(folder), corpus=name, fingerprint=fingerprint, split=split, measured=measured)
