"""The demonstration: the main job on the embedded corpus, from text to a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tslm.corpus.rule import TextRule
from tslm.corpus.sources import open_corpus
from tslm.corpus.vocabulary import UNK, Vocabulary
from tslm.files import write_text
from tslm.inference.explain import explain
from tslm.inference.generate import Generation, Sampling
from tslm.inference.score import ScoredSentence, score_lines
from tslm.models.base import LanguageModel
from tslm.models.ngram.blanks import FillsBlanks
from tslm.reports.demo_page import make_demo
from tslm.reports.page import make_page
from tslm.runs.run import load
from tslm.runs.summary import Summary
from tslm.runs.train import train
from tslm.training.metrics import read_metrics
from tslm.training.watcher import Watcher

CORPUS = "asv"
TRAINED = "tslm"
"""The recipe of the trained model; the counted one is ``kn5``."""
RECIPES = {"KN-5": "kn5", "TSLM": TRAINED}
QUICK = (
    "model.rank=32",
    "model.embedding=32",
    "train.epochs=1",
    "train.batch=200",
    "train.learning_rate=0.02",
)
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
        'tslm fill {folder}/kn5 "He went up to the ? of Jehovah."',
        "blanks filled exactly, both sides known",
    ),
    (
        'tslm explain {folder}/{trained} "The king of Israel went out."',
        "which word made which likely",
    ),
    (
        'tslm generate {folder}/{trained} --prompt "In those days"',
        "text, word by word",
    ),
    (
        "tslm compare {folder}/kn5 {folder}/{trained} --mix linear --out {folder}/mix",
        "both as one model, usually better than either",
    ),
    (
        "tslm train asv/kn5 --set corpus.path=your.txt --set corpus.name=yours --out runs/yours",
        "a model of your own text",
    ),
)


def run_demo(
    folder: Path, tell: Callable[[str], None], watcher: Watcher, *, quick: bool = False
) -> dict[str, Any]:
    """Train both models, put them to use, and write ``report.html``.

    Args:
        folder: where the runs and the report go; what is there already is not trained again.
        tell: is told what happens next, in one line.
        watcher: is told how the training goes.
        quick: train a smaller TSLM for one epoch only.

    Returns:
        What was found: ``corpus``, ``models`` and for each of them ``perplexity``, ``scored`` and ``generated``;
        ``filled``, ``effects``, ``next`` and ``report``.
    """
    tell("preparing the embedded corpus (American Standard Version)")
    corpus = open_corpus(CORPUS)
    found: dict[str, Any] = {
        "corpus": {split: len(ids) for split, ids in corpus.splits.items()}
        | {"vocabulary": len(corpus.vocabulary)},
        "models": {},
        "perplexity": {},
        "scored": {},
        "generated": {},
        "pattern": PATTERN,
    }
    summaries: dict[str, Summary] = {}
    for name, recipe in RECIPES.items():
        tell(f"training {name} ({CORPUS}/{recipe})")
        run = folder / recipe
        overrides = QUICK if quick and recipe == TRAINED else ()
        summary = train(f"{CORPUS}/{recipe}", run, overrides=overrides, watcher=watcher)
        tell(f"using {name}")
        model = load(run)
        summaries[name] = summary
        found["models"][name] = {"parameters": summary.parameters, "seconds": summary.seconds}
        found["perplexity"][name] = {split: measured.perplexity for split, measured in summary.splits.items()}
        found["scored"][name] = [
            _surprise(scored, corpus.rule)
            for scored in score_lines(model, [" ".join(corpus.rule.split(line)) for line in SENTENCES])
        ]
        found["generated"][name] = _generate(model, corpus.rule)
        if isinstance(model, FillsBlanks):
            found["filled"] = _fill(model, model.vocabulary, corpus.rule)
        if recipe == TRAINED:
            found["effects"] = _explain(model, corpus.rule)
    found["next"] = [
        {"command": command.format(folder=folder, trained=TRAINED), "why": why} for command, why in NEXT
    ]
    entries = {name: read_metrics(folder / recipe) for name, recipe in RECIPES.items()}
    report = folder / "report.html"
    write_text(report, make_page("Two models of one book", make_demo(found, summaries, entries)))
    return {**found, "report": str(report)}


def _surprise(scored: ScoredSentence, rule: TextRule) -> dict[str, Any]:
    return {
        "text": rule.join(scored.words).rstrip("\n"),
        "words": list(scored.words),
        "nats": (-scored.log_probabilities).tolist(),
        "perplexity": scored.perplexity,
    }


def _generate(model: LanguageModel[Any], rule: TextRule) -> list[str]:
    """Return three samples, the prompt in front of each."""
    prompt = rule.split(PROMPT)
    samples = [list(prompt) for _ in range(3)]
    sampling = Sampling(temperature=0.8, exclude=(UNK,))
    for draws in Generation(model, " ".join(prompt), number=3, length=25, sampling=sampling):
        for draw in draws:
            samples[draw.sample].append(draw.word)
    return [rule.join(sample).rstrip("\n") for sample in samples]


def _fill(filler: FillsBlanks, vocabulary: Vocabulary, rule: TextRule) -> list[dict[str, Any]]:
    """Return the five best fillings of the pattern."""
    pattern = [None if word == "?" else word for word in rule.split(PATTERN)]
    ids = iter(vocabulary.encode([word for word in pattern if word is not None]).tolist())
    filling = filler.fill([None if word is None else next(ids) for word in pattern])
    found: list[dict[str, Any]] = []
    for joint in filling.best(5):
        words = vocabulary.decode(joint.words)
        rest = iter(words)
        text = rule.join([next(rest) if word is None else word for word in pattern])
        found.append({"words": words, "text": text, "probability": joint.probability})
    return found


def _explain(model: LanguageModel[Any], rule: TextRule) -> dict[str, Any] | None:
    """Return how much each word changes each word behind it."""
    words = rule.split(EXPLAINED)
    effects = explain(model, " ".join(words), cuts=False).effects
    if effects is None:
        return None
    # Without the end of the sentence: the picture is about its words.
    matrix = effects.matrix[: len(words), : len(words)]
    return {"words": words, "matrix": matrix.tolist(), "exact": effects.exact, "method": effects.method}
