"""``report.html``: a run on one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import tomli_w

from tslm.errors import RunError
from tslm.files import write_text
from tslm.runs.recipe import recipe_tables
from tslm.runs.summary import Summary, read_summary
from tslm.tables import html_table, show_number
from tslm.training.metrics import read_metrics

REPORT = "report.html"

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; max-width: 100%; overflow-x: auto; }
td { overflow-wrap: anywhere; }
th, td { padding: .3rem .8rem; text-align: left; border-bottom: 1px solid #8886; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { width: 100%; height: auto; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: .5rem; }
pre { overflow-x: auto; padding: .8rem; border: 1px solid #8886; border-radius: .4rem; }
summary { cursor: pointer; }
small { opacity: .75; }
@media (max-width: 40rem) { th, td { padding: .3rem .35rem; font-size: .85rem; } }
"""


def write_run_page(folder: Path) -> Path:
    """Write the page of a finished run into its folder and return its path."""
    summary = read_summary(folder)
    if summary is None:
        raise RunError(f"{folder} holds no finished run; finish it with tslm train")
    path = folder / REPORT
    title = f"{summary.kind} on {summary.corpus.name}"
    write_text(path, make_page(title, make_run(summary, read_metrics(folder))))
    return path


def make_page(title: str, body: str) -> str:
    """Return a whole HTML page; ``body`` is already HTML, ``title`` is not."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def make_run(summary: Summary, entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the body of a run's page: perplexities, curves, recipe."""
    rows = [
        [
            split,
            f"{found.tokens:,}",
            show_number(found.perplexity),
            show_number(found.perplexity_reset),
            show_number(found.bits_per_word, 3),
        ]
        for split, found in summary.splits.items()
    ]
    facts = [["parameters", f"{summary.parameters:,}"]]
    if summary.seconds is not None:
        facts.append(["training time", f"{summary.seconds:.1f} s"])
    if summary.training is not None:
        training = summary.training
        facts.append(["epochs", f"{training.epochs}, the best was {training.best_epoch}"])
        facts.append(["speed", f"{training.tokens_per_second:,.0f} tokens/s on {training.threads} threads"])
    if summary.parts:
        how = "added up from" if summary.recipe.kind == "recurrent" else "mixed from"
        facts.append([how, ", ".join(summary.parts)])
    facts += [
        ["vocabulary", f"{summary.corpus.vocabulary:,} words"],
        ["corpus fingerprint", summary.corpus.fingerprint[:16]],
        ["versions", ", ".join(f"{name} {number}" for name, number in summary.versions.items())],
    ]
    measured = html_table(["split", "tokens", "perplexity", "reset per line", "bits per word"], rows)
    protocols = dict.fromkeys(found.protocol for found in summary.splits.values())
    parts = [
        measured if rows else "<p>Not measured: the text it was made from is not known.</p>",
        *(f"<p><small>{escape(protocol)}</small></p>" for protocol in protocols),
        _draw(entries) if entries else "",
        html_table(["", ""], facts),
        f"<details><summary>Recipe</summary><pre>{escape(tomli_w.dumps(recipe_tables(summary.recipe)))}</pre></details>",
    ]
    return "\n".join(parts)


def _draw(entries: Sequence[Mapping[str, Any]]) -> str:
    # What is counted has no curves, and need not wait for Matplotlib.
    from tslm.reports.curves import draw_curves

    return draw_curves(entries)
