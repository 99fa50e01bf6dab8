"""Tables of results: made from the ``summary.json`` files under ``results/``, put into the documents, never typed.

``python tools/results.py results .`` makes the tables of README, log and findings and the reports in
``docs/reproduced`` anew; run folders given after it are kept under ``results/`` first.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from tslm.errors import CorpusError, RunError
from tslm.files import write_text
from tslm.models.recurrent.flat import nest
from tslm.paper.document import write_report
from tslm.paper.findings import make_claims
from tslm.paper.numbers import TABLE_2
from tslm.paper.plan import expand
from tslm.paper.reproduce import report
from tslm.reports.page import read_metrics
from tslm.reports.tables import markdown_table, show_duration, show_number
from tslm.runs.folder import keep, read_summary

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def collect(folder: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """Return corpus, run name and summary of every finished run in ``folder/<corpus>/<run>/summary.json``."""
    found: list[tuple[str, str, dict[str, Any]]] = []
    for path in sorted(folder.glob("*/*/summary.json")):
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read {path}: {error}") from error
        found.append((path.parent.parent.name, path.parent.name, summary))
    return sorted(found, key=lambda row: (row[0], -(row[2]["test"]["perplexity"] or math.inf)))


def make_markdown(folder: Path) -> str:
    """Return the table of all runs as Markdown."""
    header = ["corpus", "model", "size", "parameters", "valid", "test", "paper's test", "training"]
    rows: list[list[str]] = []
    for corpus, run, summary in collect(folder):
        paper = TABLE_2.get(corpus, {}).get(run.split("-seed")[0])
        rows.append(
            [
                corpus,
                run,
                _size(summary["recipe"]["model"]),
                f"{summary['parameters']:,}",
                show_number(summary["valid"]["perplexity"]),
                f"**{show_number(summary['test']['perplexity'])}**",
                f"{paper.test}" if paper is not None and paper.test is not None else "–",
                show_duration(summary["seconds"]) if "seconds" in summary else "–",
            ]
        )
    return markdown_table(header, rows)


def make_trials(folder: Path) -> str:
    """Return the trials of ``folder/tuning/<corpus>/<trial>``, among which validation chose, as a Markdown table."""
    header = ["corpus", "cell", "trial", "size", "epochs", "learning rate", "objective"]
    header += ["train, with dropout", "valid"]
    rows: list[list[str]] = []
    for path in sorted(folder.glob("tuning/*/*/summary.json")):
        summary = read_summary(path.parent) or {}
        recipe = summary["recipe"]
        train, objective = recipe["train"], recipe["objective"]
        epochs = [entry for entry in read_metrics(path.parent) if "epoch" in entry]
        rows.append(
            [
                summary["corpus"]["name"],
                nest(recipe["model"])["cell"]["kind"],
                path.parent.name,
                _size(recipe["model"]),
                str(train["epochs"]),
                str(train["learning_rate"]),
                f"{objective['frequent']} + {objective['sampled']}",
                show_number(epochs[-1]["train_perplexity"]) if epochs else "–",
                show_number(summary["valid"]["perplexity"]),
            ]
        )
    return markdown_table(header, rows)


def update(document: Path, table: str) -> str:
    """Return a document's text with the table between its two markers made anew."""
    text = document.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise RunError(f"{document} must hold {BEGIN} and {END} once each")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def _size(model: dict[str, Any]) -> str:
    if model["kind"] == "recurrent":
        head = nest(model)["head"]
        mixture = f", K = {head['experts']}" if head["kind"] == "mixture" else ""
        return f"{model['rank']} × {model['layers']}{mixture}"
    if model["kind"] == "interpolation":
        return " + ".join(f"{weight:.2f}" for weight in model["weights"])
    return f"order {model['order']}" if "order" in model else "–"


def write_documents(results: Path, root: Path) -> None:
    """Make every table and report of the documents below ``root`` anew."""
    tables = {"README.md": make_markdown, "docs/log.md": make_trials, "docs/findings.md": make_claims}
    for document, make in tables.items():
        write_text(root / document, update(root / document, make(results)))
    for what, corpus in expand("all"):
        try:
            made = report(what, corpus, None, results)
        except CorpusError as error:
            print(f"{what} stays as it is: {error}", file=sys.stderr)
            continue
        write_report(made, root / "docs" / "reproduced", html=False)


if __name__ == "__main__":
    for folder in sys.argv[3:]:
        keep(Path(folder), Path(sys.argv[1]))
    write_documents(Path(sys.argv[1]), Path(sys.argv[2]))
