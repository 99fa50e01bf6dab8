"""The demonstration: the main job on the embedded corpus, from text to a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tslm.corpus.sources import open_corpus
from tslm.files import write_text
from tslm.inference.explain import explain
from tslm.inference.fill import fill
from tslm.inference.interpolate import mix
from tslm.inference.samples import generate
from tslm.inference.score import score
from tslm.inference.scores import ScoredSentence
from tslm.models.base import LanguageModel
from tslm.models.ngram.blanks import FillsBlanks
from tslm.reports.demo_page import make_demo
from tslm.reports.page import make_page
from tslm.runs.run import Run, open_run
from tslm.runs.summary import Summary, read_summary
from tslm.runs.train import train
from tslm.training.metrics import read_metrics
from tslm.training.watcher import Watcher

CORPUS = "asv"
TRAINED = "gated"
"""The recipe of the trained model; the counted one is ``kn5``."""
RECIPES = {"KN-5": "kn5", "TSLM": TRAINED}
MIX = "mix"
"""The folder of both as one model."""
SENTENCES = (
    "In the beginning God created the heavens and the earth.",
    "In the beginning God created the earth and the heavens.",
    "Beginning the in God heavens the created earth the and.",
)
EXPLAINED = "Jehovah is my shepherd; I shall not want."
PROMPT = "And the king said"
PATTERN = "The ? of the ?."
NEXT = (
    (
        'tslm fill {models}/kn5 "He went up to the ? of Jehovah."',
        "blanks filled exactly, both sides known",
    ),
    (
        'tslm explain {models}/gated "The king of Israel went out."',
        "which word made which likely",
    ),
    (
        'tslm generate {models}/gated --prompt "In those days"',
        "text, word by word",
    ),
    (
        "tslm compare {models}/kn5 {models}/gated --mix linear",
        "where they differ, whether by chance, and what both together know",
    ),
    (
        "tslm train asv/kn5 --set corpus.path=your.txt --set corpus.name=yours --set corpus.tokeniser=words "
        "--out runs/yours",
        "a model of your own text",
    ),
)


def run_demo(
    folder: Path,
    tell: Callable[[str], None],
    watcher: Watcher,
    *,
    quick: bool = False,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """Train both models, put them to use, mix them, and write ``report.html``.

    Args:
        folder: where the runs and the report go; what is there already is not trained again.
        tell: is told what happens next, in one line.
        watcher: is told how the training goes.
        quick: take the models that come with the package, and do not mix them, which takes both over valid and test.
        overrides: changes to the recipe of the trained model, as ``tslm train`` takes them.

    Returns:
        What was found: ``corpus``, ``quick``, ``models`` and for each of them ``perplexity``, ``scored`` and
        ``generated``; ``filled``, ``effects``, ``next`` and ``report``.
    """
    tell("preparing the embedded corpus (American Standard Version)")
    corpus = open_corpus(CORPUS)
    found: dict[str, Any] = {
        "corpus": {split: len(ids) for split, ids in corpus.splits.items()}
        | {"vocabulary": len(corpus.vocabulary)},
        "quick": quick,
        "models": {},
        "perplexity": {},
        "scored": {},
        "generated": {},
        "pattern": PATTERN,
    }
    runs: dict[str, Run] = {}
    summaries: dict[str, Summary] = {}
    for name, recipe in RECIPES.items():
        named = f"{CORPUS}/{recipe}"
        if quick:
            run = open_run(named)
            tell(f"using {name} ({named}, which comes trained)")
        else:
            tell(f"training {name} ({named})")
            changes = overrides if recipe == TRAINED else ()
            train(named, folder / recipe, overrides=changes, watcher=watcher)
            run = open_run(folder / recipe)
            tell(f"using {name}")
        model, summary = run.model, run.summary
        assert summary is not None  # noqa: S101 - both are finished
        runs[name], summaries[name] = run, summary
        found["models"][name] = {"parameters": summary.parameters, "seconds": summary.seconds}
        found["perplexity"][name] = _perplexities(summary)
        found["scored"][name] = [_surprise(scored) for scored in score(model, SENTENCES)]
        samples = generate(model, PROMPT, number=3, length=25, temperature=0.8, unk=False)
        found["generated"][name] = [sample.text for sample in samples]
        if isinstance(model, FillsBlanks):
            found["filled"] = fill(model, PATTERN, top=5).as_json()["fillings"]
        if recipe == TRAINED:
            found["effects"] = _explain(model)
    if not quick:
        tell("mixing both into one model")
        mixed = read_summary(folder / MIX)
        if mixed is None:
            mix(list(runs.values()), folder / MIX)
            mixed = read_summary(folder / MIX)
            assert mixed is not None  # noqa: S101
        found["models"]["both, mixed"] = {"parameters": mixed.parameters, "seconds": mixed.seconds}
        found["perplexity"]["both, mixed"] = _perplexities(mixed)
    found["next"] = [
        {"command": command.format(models=CORPUS if quick else folder), "why": why} for command, why in NEXT
    ]
    entries = {name: read_metrics(run.folder) for name, run in runs.items()}
    report = folder / "report.html"
    write_text(report, make_page("Two models of one book", make_demo(found, summaries, entries)))
    return {**found, "report": str(report)}


def _perplexities(summary: Summary) -> dict[str, float]:
    return {split: measured.perplexity for split, measured in summary.splits.items()}


def _surprise(scored: ScoredSentence) -> dict[str, Any]:
    return {
        "text": scored.text,
        "words": list(scored.words),
        "nats": (-scored.log_probabilities).tolist(),
        "perplexity": scored.perplexity,
    }


def _explain(model: LanguageModel[Any]) -> dict[str, Any] | None:
    """Return how much each word changes each word behind it."""
    explanation = explain(model, EXPLAINED, cuts=False)
    effects = explanation.effects
    if effects is None:
        return None
    # Without the end of the sentence: the picture is about its words.
    words = [word.word for word in explanation.words[:-1]]
    matrix = effects.matrix[: len(words), : len(words)]
    return {"words": words, "matrix": matrix.tolist(), "exact": effects.exact, "method": effects.method}
