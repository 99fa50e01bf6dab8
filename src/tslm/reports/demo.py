"""The demonstration: the main job on the embedded corpus, from text to a page."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from tslm.corpus.sources import open_corpus
from tslm.corpus.vocabulary import UNK
from tslm.files import write_text
from tslm.inference.generate import Sampling, generate
from tslm.inference.score import ScoredSentence, score_lines
from tslm.models.ngram.blanks import FillsBlanks, parse_pattern
from tslm.reports.page import make_page, make_run, make_table
from tslm.runs.run import load
from tslm.runs.summary import Summary
from tslm.runs.train import train
from tslm.training.metrics import read_metrics
from tslm.training.watcher import Watcher

CORPUS = "asv"
RECIPES = {"KN-5": "kn5", "TSLM": "tslm"}
QUICK = (
    "model.rank=32",
    "model.embedding=32",
    "train.epochs=1",
    "train.batch=200",
    "train.learning_rate=0.02",
)
SENTENCES = (
    "in the beginning god created the heavens and the earth .",
    "in the beginning god created the earth and the heavens .",
    "beginning the in god heavens the created earth the and .",
)
PROMPT = "and the king said"
PATTERN = "the ? of the ? ."
NEXT = (
    'tslm fill demo/kn5 "he went up to the ? of the lord ."',
    'tslm explain demo/tslm "the lord is my shepherd"',
    "tslm train ptb/tslm            # the paper's model on Penn Treebank",
    "tslm train asv/kn5 --set corpus.path=your.txt --set corpus.name=mine --out runs/mine",
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
        What was found: ``corpus``, ``perplexity``, ``scored``, ``generated``, ``filled``, ``report``.
    """
    tell("preparing the embedded corpus (American Standard Version)")
    corpus = open_corpus(CORPUS)
    found: dict[str, Any] = {
        "corpus": {split: len(ids) for split, ids in corpus.splits.items()}
        | {"vocabulary": len(corpus.vocabulary)},
        "perplexity": {},
        "scored": {},
        "generated": {},
    }
    body: list[str] = []
    summaries: dict[str, Summary] = {}
    for name, recipe in RECIPES.items():
        tell(f"training {name}")
        run = folder / recipe
        overrides = QUICK if quick and recipe == "tslm" else ()
        summaries[name] = train(f"{CORPUS}/{recipe}", run, overrides=overrides, watcher=watcher)
        model = load(run)
        found["perplexity"][name] = {
            split: measured.perplexity for split, measured in summaries[name].splits.items()
        }
        found["scored"][name] = [_surprise(scored) for scored in score_lines(model, SENTENCES)]
        samples = generate(
            model, PROMPT, number=3, length=25, sampling=Sampling(temperature=0.8, exclude=(UNK,))
        )
        found["generated"][name] = [" ".join([PROMPT, *(draw.word for draw in sample)]) for sample in samples]
        if isinstance(model, FillsBlanks):
            filling = model.fill(parse_pattern(PATTERN, model.vocabulary))
            found["filled"] = [
                {"words": model.vocabulary.decode(joint.words), "probability": joint.probability}
                for joint in filling.best(5)
            ]
    body.append(_compare(found, summaries))
    body += [
        f"<h2>{escape(name)}</h2>{make_run(summaries[name], read_metrics(folder / RECIPES[name]))}"
        for name in RECIPES
    ]
    report = folder / "report.html"
    write_text(report, make_page("tslm: the demonstration", "\n".join(body)))
    return {**found, "report": str(report)}


def _surprise(scored: ScoredSentence) -> dict[str, Any]:
    return {
        "words": list(scored.words),
        "nats": (-scored.log_probabilities).tolist(),
        "perplexity": scored.perplexity,
    }


def _compare(found: dict[str, Any], summaries: dict[str, Summary]) -> str:
    rows = [
        [name, f"{summary.parameters:,}", f"{summary.seconds or 0:.1f} s"]
        + [f"{measured.perplexity:.2f}" for measured in summary.splits.values()]
        for name, summary in summaries.items()
    ]
    scored = [
        [
            " ".join(entry["words"]),
            *(f"{found['scored'][name][number]['perplexity']:.1f}" for name in RECIPES),
        ]
        for number, entry in enumerate(found["scored"]["KN-5"])
    ]
    generated = [[name, text] for name in RECIPES for text in found["generated"][name]]
    filled = [[" ".join(entry["words"]), f"{entry['probability']:.4f}"] for entry in found["filled"]]
    return "\n".join(
        [
            make_table(["model", "parameters", "training", "valid perplexity", "test perplexity"], rows),
            "<h2>Perplexity of sentences</h2>",
            make_table(["sentence", *RECIPES], scored),
            "<h2>Generated</h2>",
            make_table(["model", "text"], generated),
            f"<h2>“{escape(PATTERN)}”, filled exactly by KN-5</h2>",
            make_table(["words", "probability"], filled),
        ]
    )
