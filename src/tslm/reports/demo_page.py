"""The page of the demonstration: what two models make of the same sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import tomli_w

from tslm.drawing.heatmap import heat_svg
from tslm.reports.curves import draw_curves
from tslm.runs.recipe import recipe_tables
from tslm.runs.summary import Summary
from tslm.tables import html_table, show_duration

DEEPEST = 12.0
"""Nats of surprise at which a word has the deepest colour."""

MIXED = " In the mix the probabilities of both are added, with weights tuned on valid."

STYLE = """<style>
.words { line-height: 2; margin: .2rem 0 .8rem; }
.words span { border-radius: .3rem; padding: .1rem .25rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 0 2rem; }
.heat svg { max-width: 36rem; border-radius: .4rem; }
.next dt { overflow-wrap: anywhere; margin-top: .6rem; }
.next dd { margin: 0 0 0 1rem; opacity: .8; }
blockquote { margin: .4rem 0; padding-left: .8rem; border-left: 3px solid #8886; }
</style>"""


def make_demo(
    found: Mapping[str, Any],
    summaries: Mapping[str, Summary],
    entries: Mapping[str, Sequence[Mapping[str, Any]]],
) -> str:
    """Return the body of the page.

    Args:
        found: what ``run_demo`` found.
        summaries: the summary of each model.
        entries: the lines of each model's ``metrics.jsonl``; a counted model has none.
    """
    corpus, learnt = found["corpus"], "learnt" if found["quick"] else "just learnt"
    return "\n".join(
        [
            STYLE,
            f"<p>Both models have {learnt} from the same {corpus['train']:,} words of the American Standard "
            f"Version, and choose each next word among the same {corpus['vocabulary']:,}. One has counted word "
            "sequences (KN-5, an n-gram model); the other was trained (TSLM, a tensor space language model).</p>",
            _perplexities(found),
            "<h2>What surprises them</h2>",
            "<p>Three sentences; the deeper a word’s colour, the less the model expected it. The number is the "
            "sentence’s perplexity.</p>",
            _sentences(found),
            _effects(found),
            "<h2>What they write</h2>",
            _generated(found),
            f"<h2>“{escape(found['pattern'])}”, filled</h2>",
            "<p>The counted model sums over every pair of words exactly. These are the most probable fillings of "
            "both blanks together.</p>",
            html_table(
                ["text", "probability"],
                [[entry["text"], f"{entry['probability']:.2%}"] for entry in found["filled"]],
            ),
            "<h2>What to try next</h2>",
            _next(found),
            "<h2>How they learnt</h2>",
            *(_details(name, summary, entries[name]) for name, summary in summaries.items()),
        ]
    )


def _perplexities(found: Mapping[str, Any]) -> str:
    rows = [
        [
            name,
            *(f"{splits[split]:.2f}" for split in ("valid", "test")),
            f"{model['parameters']:,}",
            "" if model["seconds"] is None else show_duration(model["seconds"]),
        ]
        for name, model in found["models"].items()
        for splits in [found["perplexity"][name]]
    ]
    return "\n".join(
        [
            html_table(["model", "valid", "test", "parameters", "learnt in"], rows),
            "<p><small>Perplexity on chapters that neither has seen: the model is as unsure as if it had to guess "
            "among so many equally likely words. Lower is better."
            f"{MIXED if 'both, mixed' in found['models'] else ''}</small></p>",
        ]
    )


def _sentences(found: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for name, sentences in found["scored"].items():
        lines = [
            f"<p class='words'><b>{entry['perplexity']:,.1f}</b> "
            + " ".join(map(_word, entry["words"][:-1], entry["nats"]))
            + "</p>"
            for entry in sentences
        ]
        parts.append(f"<div><h3>{escape(name)}</h3>{''.join(lines)}</div>")
    return f"<div class='pair'>{''.join(parts)}</div>"


def _word(word: str, nats: float) -> str:
    """Return a word on a ground that is deeper the more surprising it is."""
    share = min(1.0, nats / DEEPEST)
    ground = f"background: rgba(194, 65, 12, {0.75 * share:.2f})"
    return f'<span style="{ground}" title="{nats:.2f} nats">{escape(word)}</span>'


def _effects(found: Mapping[str, Any]) -> str:
    effects = found.get("effects")
    if effects is None:
        return ""
    picture = heat_svg(effects["words"], np.array(effects["matrix"]), "")
    return "\n".join(
        [
            "<h2>Which word made which likely</h2>",
            "<p>The TSLM reads a sentence as a chain of tensors, so one can take a word out and see what changes. "
            "Orange: the word on the left makes the word above likelier; blue: less likely (nats).</p>",
            f"<div class='heat'>{picture}</div>",
            f"<p><small>{escape(effects['method'])}</small></p>",
        ]
    )


def _generated(found: Mapping[str, Any]) -> str:
    parts = [
        f"<div><h3>{escape(name)}</h3>{''.join(f'<blockquote>{escape(text)}</blockquote>' for text in texts)}</div>"
        for name, texts in found["generated"].items()
    ]
    return f"<div class='pair'>{''.join(parts)}</div>"


def _next(found: Mapping[str, Any]) -> str:
    entries = (
        f"<dt><code>{escape(entry['command'])}</code></dt><dd>{escape(entry['why'])}</dd>"
        for entry in found["next"]
    )
    return f"<dl class='next'>{''.join(entries)}</dl>"


def _details(name: str, summary: Summary, entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the curves of a trained model, and every model's recipe, folded."""
    recipe = escape(tomli_w.dumps(recipe_tables(summary.recipe)))
    return "\n".join(
        [
            f"<h3>{escape(name)}</h3>",
            draw_curves(entries) if entries else "<p>Counted: one pass over the text.</p>",
            f"<details><summary>Recipe</summary><pre>{recipe}</pre></details>",
        ]
    )
