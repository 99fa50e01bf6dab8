"""Tables of results: made from the ``summary.json`` files under ``results/``, put into the documents, never typed.

``python tools/results.py results .`` makes the tables of README, results, trials and findings and the reports in
``docs/reproduced`` anew; run folders given after it are kept under ``results/`` first.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tslm.errors import CorpusError, RunError
from tslm.files import write_text
from tslm.inference.halving import REPORT
from tslm.paper.curves import draw_generalisation, make_ratios
from tslm.paper.document import write_report
from tslm.paper.findings import make_claims
from tslm.paper.numbers import TABLE_2
from tslm.paper.plan import expand
from tslm.paper.report import report
from tslm.runs.catalogue import show_size
from tslm.runs.folder import keep
from tslm.runs.pretrained import PACKED, PRETRAINED
from tslm.runs.summary import Summary, read_summary
from tslm.tables import markdown_table, show_duration, show_number
from tslm.training.metrics import read_metrics

SELECTION = (
    *("kn5", "rnn", "lstm", "tslm"),
    *("lstm-spelling", "gated-spelling", "lstm-product", "gated-product"),
    *("gated-stack", "gated-768-product", "gated-768-cascade", "kn5+gated"),
)
"""The README's rows: the paper's own with one softmax; the LSTM and the gated cell trained alike, and read out alike
through products; two gated layers; the largest exact networks; and a mix with counts."""


@dataclass(frozen=True)
class Result:
    """What lies in ``results/`` of a run."""

    folder: Path
    summary: Summary | None
    """None where it cannot be read."""

    @property
    def test(self) -> float:
        """The test perplexity, to sort by."""
        return math.inf if self.summary is None or self.summary.test is None else self.summary.test.perplexity


def collect(folder: Path, pattern: str = "*/*/summary.json") -> list[Result]:
    """Return what there is of every run in ``folder``; a damaged summary is told, and takes no other with it."""
    found: list[Result] = []
    for path in sorted(folder.glob(pattern)):
        try:
            summary = read_summary(path.parent)
        except RunError as error:
            print(error, file=sys.stderr)
            summary = None
        found.append(Result(path.parent, summary))
    return found


def make_results(folder: Path) -> str:
    """Return the table of all runs as Markdown, the best last."""
    return _table(collect(folder))


def make_selection(folder: Path) -> str:
    """Return the README's table: on the paper's corpora, the best run by validation of each row worth comparing.

    Other settings of the same cells are left to the page of all results: the best of many settings of one cell beside
    one setting of another would compare how much was tried.
    """
    best: dict[tuple[str, str], Result] = {}
    for result in collect(folder):
        corpus, row = result.folder.parent.name, result.folder.name.split("-seed")[0]
        if corpus not in TABLE_2 or row not in SELECTION:
            continue
        before = best.get((corpus, row))
        if before is None or _valid(result) < _valid(before):
            best[corpus, row] = result
    return _table(list(best.values()))


def _valid(result: Result) -> float:
    found = None if result.summary is None else result.summary.valid
    return math.inf if found is None else found.perplexity


def _table(results: list[Result]) -> str:
    header = ["corpus", "model", "size", "parameters", "valid", "test", "paper's test", "training"]
    rows: list[list[str]] = []
    for result in sorted(results, key=lambda result: (result.folder.parent.name, -result.test)):
        corpus, run, summary = result.folder.parent.name, result.folder.name, result.summary
        if summary is None:
            rows.append([corpus, run, "damaged", *["–"] * 5])
            continue
        paper = TABLE_2.get(corpus, {}).get(run.split("-seed")[0])
        rows.append(
            [
                corpus,
                run,
                show_size(summary.recipe),
                f"{summary.parameters:,}",
                show_number(None if summary.valid is None else summary.valid.perplexity),
                f"**{show_number(None if summary.test is None else summary.test.perplexity)}**",
                f"{paper.test}" if paper is not None and paper.test is not None else "–",
                "–" if summary.seconds is None else show_duration(summary.seconds),
            ]
        )
    return markdown_table(header, rows)


def make_trials(folder: Path) -> str:
    """Return the trials of ``folder/tuning/<corpus>/<trial>``, among which validation chose, as a Markdown table."""
    header = ["corpus", "cell", "trial", "size", "epochs", "learning rate", "objective"]
    header += ["train, with dropout", "valid"]
    rows: list[list[str]] = []
    for result in collect(folder, "tuning/*/*/summary.json"):
        summary, trial = result.summary, result.folder.name
        if summary is None or summary.recipe.train is None or summary.recipe.objective is None:
            rows.append([result.folder.parent.name, "damaged", trial, *["–"] * 6])
            continue
        recipe, train, objective = summary.recipe, summary.recipe.train, summary.recipe.objective
        epochs = [entry for entry in read_metrics(result.folder) if "epoch" in entry]
        rows.append(
            [
                summary.corpus.name,
                recipe.model.cell.kind if recipe.kind == "recurrent" else recipe.kind,
                trial,
                show_size(recipe),
                str(train.epochs),
                str(train.learning_rate),
                f"{objective.frequent} + {objective.sampled}" if recipe.kind == "recurrent" else "–",
                show_number(epochs[-1]["train_perplexity"]) if epochs else "–",
                show_number(None if summary.valid is None else summary.valid.perplexity),
            ]
        )
    return markdown_table(header, rows)


READ = (*TABLE_2, "asv")
"""The corpora that are read."""

READ_BY = {
    "alone": "plain",
    "with a cache": "cache",
    "learning while reading": "dynamic",
    "with KN-5, one weight": "one weight",
    "with KN-5, a gate": "gate, sees counts",
    "with a cache and KN-5, one weight": "cache and one weight",
    "with a cache and KN-5, a gate": "cache and gate, sees counts",
    "learning while reading, with a cache": "dynamic and cache",
    "learning while reading, with KN-5, one weight": "dynamic and one weight",
    "learning while reading, with KN-5, a gate": "dynamic and gate, sees counts",
    "learning while reading, with a cache and KN-5, one weight": "dynamic, cache and one weight",
    "learning while reading, with a cache and KN-5, a gate": "dynamic, cache and gate, sees counts",
}
"""What is made of the text at hand → what the reports call it."""


def read_reports(results: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of the report ``reading/<name>.json``, each with its time as a multiple of the model alone."""
    path = results / "reading" / f"{name}.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))["results"]
    (alone,) = (row["seconds"] for row in found if (row["model"], row["split"]) == ("plain", "test"))
    return [{**row, "time": row["seconds"] / alone if "seconds" in row else None} for row in found]


def read_ways(results: Path, corpus: str, base: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what is known of a model's ways of reading, by way and split.

    The rows of a report of all ways together, ``reading/<corpus>-<model>-all.json``, come before those of one way.
    """
    ways = ("cache", "dynamic", "gate", "all")
    reports = [read_reports(results, f"{corpus}-{base}-{way}") for way in ways]
    return {(row["model"], row["split"]): row for rows in reports for row in rows}


def make_reading(results: Path) -> str:
    """Return what each way of reading gives, on top of one model; what was not run is left out.

    Shown are *gated*, every model with a report of all ways together, and counts with a cache.
    """
    rows: list[list[str]] = []
    for corpus, base in _bases(results):
        found = read_ways(results, corpus, base)
        for name, model in READ_BY.items():
            if (model, "test") in found:
                valid, test = (found[model, split] for split in ("valid", "test"))
                figures = [show_number(valid["perplexity"]), f"**{show_number(test['perplexity'])}**"]
                # Seconds of reports from before there were both are of other machines, at other times.
                both = [test["seconds"], test["wall"]] if "wall" in test else []
                spent = [f"{one:.2f} s" if one < 1 else show_duration(one) for one in both] or ["–", "–"]
                rows.append([corpus, base, name, *figures, _times(test), *spent])
    header = ["corpus", "model", "read", "valid", "test", "time", "processor", "clock"]
    return markdown_table(header, rows)


def _times(row: Mapping[str, Any]) -> str:
    """Return the time of a way of reading as a multiple of the model alone."""
    return "–" if row["time"] is None else f"{row['time']:.1f} ×"


GAINS = {
    "a cache": "cache",
    "KN-5 beside it, a gate": "gate, sees counts",
    "learning while reading": "dynamic",
    "all three": "dynamic, cache and gate, sees counts",
}
"""What is shown of what each of these gives and costs → what the reports call it."""


def make_gains(results: Path) -> str:
    """Return what each of these gives and costs on each corpus, for the best model that has been read in all ways.

    Beside it stand counts with a cache, several models averaged against *gated*, and averaged weights.
    """
    rows: list[list[str]] = []
    for corpus in READ:
        read = {
            base: read_ways(results, corpus, base)
            for own, base in _read_in_all_ways(results)
            if own == corpus
        }
        best = sorted(read, key=lambda base: read[base]["plain", "valid"]["perplexity"])[:1]
        read["kn5"] = read_ways(results, corpus, "kn5")
        for base, (name, way) in product([*best, "kn5"], GAINS.items()):
            if (way, "test") in read[base]:
                plain, more = (read[base][one, "test"] for one in ("plain", way))
                rows.append([corpus, base, name, *_gain(plain, more), _times(more)])
        several, single = (
            next(iter(collect(results, f"{corpus}/{run}/summary.json")), None)
            for run in ("ensemble", "gated")
        )
        if several is not None and single is not None and several.summary is not None:
            figures = _gain({"perplexity": single.test}, {"perplexity": several.test})
            number = len(several.summary.recipe.model.weights)
            rows.append(
                [corpus, "gated", f"{number} other models, averaged", *figures, f"that of {number} models"]
            )
        trials = [
            next(iter(collect(results, f"tuning/{corpus}/{run}/summary.json")), None)
            for run in ("gated-384-bfloat16", "gated-384-average")
        ]
        if all(trial is not None for trial in trials):
            plain, averaged = ({"perplexity": _valid(trial)} for trial in trials if trial is not None)
            rows.append(
                [corpus, "gated, 8 epochs", "weights averaged in training", *_gain(plain, averaged), "none"]
            )
            rows[-1][3] += " (valid)"
    return markdown_table(["corpus", "model", "with", "alone", "with it", "change", "time"], rows)


def _gain(plain: Mapping[str, Any], more: Mapping[str, Any]) -> list[str]:
    before, after = plain["perplexity"], more["perplexity"]
    return [show_number(before), f"**{show_number(after)}**", f"{after / before - 1:+.1%}"]


def _bases(results: Path) -> list[tuple[str, str]]:
    """Return the models, with their corpora, whose ways of reading are shown."""
    found = [(corpus, "gated") for corpus in READ] + _read_in_all_ways(results)
    found += [(corpus, "kn5") for corpus in READ]
    return sorted(dict.fromkeys(found), key=lambda base: READ.index(base[0]))


def _read_in_all_ways(results: Path) -> list[tuple[str, str]]:
    """Return the models, with their corpora, that have a report of all ways of reading together."""
    stems = [path.stem.removesuffix("-all") for path in sorted((results / "reading").glob("*-all.json"))]
    return [
        (corpus, stem[len(corpus) + 1 :])
        for corpus in READ
        for stem in stems
        if stem.startswith(f"{corpus}-")
    ]


DENSE = {
    "gated": "TSLM, gated",
    "gated-decay": "TSLM, gated, with decay",
    "gated-beside": "… learnt beside counts",
}
"""The dense models that are mixed with KN-5, by their runs; what is learnt beside counts behind what is not."""


def make_gates(results: Path) -> str:
    """Return what gates give that see this or that and have learnt from this or that."""
    rows: list[list[str]] = []
    for corpus, (base, dense) in product(TABLE_2, DENSE.items()):
        found = read_reports(results, f"{corpus}-{base}-gate")
        tests = {row["model"]: row for row in found if row["split"] == "test"}
        for row in found:
            if row["split"] == "valid" and row["model"] in tests:
                halves = show_number(row["halves"]) if "halves" in row else "–"
                test = show_number(tests[row["model"]]["perplexity"])
                mixed = "alone" if row["model"] == "plain" else row["model"]
                rows.append([corpus, dense, mixed, show_number(row["perplexity"]), halves, f"**{test}**"])
    header = ["corpus", "dense part", "mixed with KN-5 by", "valid", "valid by halves", "test"]
    return markdown_table(header, rows)


def make_adaptations(results: Path) -> str:
    """Return what came of adapting models to other texts, from the reports ``adaptation/*.json``."""
    header = ["model", "text", "new words", "start as", "old", "rate", "new text: before", "with new words"]
    header += ["adapted", "KN-5 of its lines", "both mixed", "old text: before", "adapted", "both mixed"]
    rows: list[list[str]] = []
    for path in sorted((results / "adaptation").glob("*.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        new, old, settings = report["new"], report["old"], report["settings"]
        figures = [show_number(new[key]) for key in ("before", "start", "after", "counted", "mixed")]
        figures += [show_number(old[key]) for key in ("before", "after", "mixed")]
        facts = [report["source"], report["text"], f"{report['words']:,}", settings["start"]]
        rows.append([*facts, f"{settings['old']:g}", f"{settings['rate']:g}", *figures])
    return markdown_table(header, rows)


def make_adaptation_trials(results: Path) -> str:
    """Return the settings of adapting among which held-out lines and the old text's valid chose together."""
    header = ["old", "rate", "epochs", "new text: lines that stop", "held out", "old text", "mean"]
    path = results / "tuning" / "adaptation.json"
    found = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else []
    rows = [
        [
            *(f"{trial[key]:g}" for key in ("old", "rate", "epochs")),
            *(show_number(trial[key], 1) for key in ("stopping", "held_out", "old_valid")),
            show_number(math.sqrt(trial["stopping"] * trial["old_valid"]), 1),
        ]
        for trial in found
    ]
    return markdown_table(header, rows)


def make_pretrained(results: Path) -> str:
    """Return the models that come with the package as a table, with what their small numbers cost."""
    rows: list[list[str]] = []
    for folder in sorted(path.parent for path in PRETRAINED.glob(f"*/*/{PACKED}")):
        name, summary = folder.relative_to(PRETRAINED).as_posix(), read_summary(folder)
        assert summary is not None  # noqa: S101 - none is packed without
        if (folder / REPORT).exists():
            stored, before = "16 bits", json.loads((folder / REPORT).read_text(encoding="utf-8"))["before"]
        else:
            exact = read_summary(results / name)
            assert exact is not None  # noqa: S101 - it is among the results
            stored, before = (
                f"{summary.recipe.model.bits} bits",
                {split: found.perplexity for split, found in exact.splits.items()},
            )
        after = {split: found.perplexity for split, found in summary.splits.items()}
        rows.append(
            [
                f"`{name}`",
                f"{summary.parameters:,}",
                stored,
                f"{(folder / PACKED).stat().st_size / 1e6:.1f} MB",
                *(f"{before[split]:.3f} → {after[split]:.3f}" for split in ("valid", "test")),
                f"{after['valid'] / before['valid'] - 1:+.3%}",
            ]
        )
    header = [
        "name",
        "parameters",
        "numbers stored with",
        "packed",
        "valid, full → stored",
        "test, full → stored",
    ]
    return markdown_table([*header, "valid"], rows)


def update(document: Path, parts: Mapping[str, str]) -> str:
    """Return a document's text with each part made anew between the two markers of its name."""
    text = document.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise RunError(f"{document} must hold {begin} and {end} once each")
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{part}\n{end}{rest.split(end)[1]}"
    return text


def read_ranks(results: Path) -> list[Summary]:
    """Return the trials ``tuning/<corpus>/probabilistic-rank-…``, the smallest rank first."""
    found = [result.summary for result in collect(results, "tuning/*/probabilistic-rank-*/summary.json")]
    return sorted((one for one in found if one is not None), key=lambda one: one.recipe.model.rank)


def make_ranks(results: Path) -> str:
    """Return what more hidden states give and cost, after the same few epochs."""
    rows: list[list[str]] = []
    for summary in read_ranks(results):
        model, train = summary.recipe.model, summary.recipe.train
        if train is None or summary.valid is None or summary.training is None:
            continue
        dense = "dense" if model.clusters == 1 else f"{model.clusters} clusters of {model.states}"
        figures = [
            f"{summary.parameters:,}",
            str(summary.training.epochs),
            show_number(summary.valid.perplexity),
        ]
        rows.append([summary.corpus.name, f"{model.rank:,}", dense, *figures])
    if not rows:
        return "None is kept yet."
    table = markdown_table(["corpus", "states", "emissions", "parameters", "epochs", "valid"], rows)
    return (
        f"{table}\n\n![valid perplexity against the number of states](images/perplexity-against-states.svg)"
    )


def make_joined(results: Path) -> str:
    """Return what counts give alone, hidden states alone and both joined, where hidden states were run."""
    rows: list[list[str]] = []
    for hidden in sorted(results.glob("*/probabilistic/summary.json")):
        for name in ("kn5", "probabilistic", "joined"):
            for result in collect(hidden.parents[1], f"{name}/summary.json"):
                if result.summary is not None and result.summary.valid is not None:
                    valid, size = result.summary.valid.perplexity, show_size(result.summary.recipe)
                    figures = [show_number(valid), f"**{show_number(result.test)}**"]
                    rows.append([hidden.parents[1].name, name, size, *figures])
    return markdown_table(["corpus", "model", "size", "valid", "test"], rows)


def draw_ranks(results: Path) -> str:
    """Return the figure "perplexity against the number of hidden states"."""
    from matplotlib.figure import Figure

    from tslm.reports.curves import COLOURS, GREY, to_svg

    figure = Figure(figsize=(6.5, 4.0), layout="constrained")
    axes = figure.subplots()
    found = [one for one in read_ranks(results) if one.valid is not None]
    ranks = [one.recipe.model.rank for one in found]
    for colour, name in zip(COLOURS, ("every state emits every word", "words share clusters"), strict=False):
        part = [one for one in found if (one.recipe.model.clusters > 1) == name.startswith("words")]
        points = [(one.recipe.model.rank, one.valid.perplexity) for one in part if one.valid is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", label=name)
        for point in points:
            label = show_number(point[1])
            axes.annotate(label, point, xytext=(4, 4), textcoords="offset points", color=GREY)
    axes.margins(x=0.12)
    axes.legend()
    axes.set(xscale="log", xlabel="hidden states", ylabel="valid perplexity")
    axes.set_xticks(ranks, labels=[f"{rank:,}" for rank in ranks])
    axes.set_xticks([], minor=True)
    epochs = {one.training.epochs for one in found if one.training is not None}
    axes.set_title(f"Penn Treebank, after {', '.join(map(str, sorted(epochs)))} epochs")
    return to_svg(figure)


def make_documents(results: Path) -> dict[str, dict[str, str]]:
    """Return what is made from runs: document → name of the part → Markdown."""
    return {
        "README.md": {"results": make_selection(results)},
        "docs/results.md": {"results": make_results(results)},
        "docs/reading.md": {"gains": make_gains(results), "reading": make_reading(results)}
        | {"gates": make_gates(results), "adaptations": make_adaptations(results)}
        | {"adaptation trials": make_adaptation_trials(results)},
        "docs/pretrained.md": {"pretrained": make_pretrained(results)},
        "docs/probabilistic.md": {"joined": make_joined(results), "ranks": make_ranks(results)},
        "docs/log.md": {"trials": make_trials(results)},
        "docs/findings.md": {**make_claims(results), "ratios": make_ratios("ptb", results)},
    }


def write_documents(results: Path, root: Path) -> None:
    """Make every table and report of the documents below ``root`` anew."""
    for document, parts in make_documents(results).items():
        write_text(root / document, update(root / document, parts))
    write_text(root / "docs" / "images" / "valid-against-train.svg", draw_generalisation("ptb", results))
    if read_ranks(results):
        write_text(root / "docs" / "images" / "perplexity-against-states.svg", draw_ranks(results))
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
