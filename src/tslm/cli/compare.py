"""``tslm compare``: models side by side, and mixed."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm compare runs/ptb-kn5 runs/ptb-tslm
  tslm compare runs/ptb-kn5 runs/ptb-tslm my.txt --top 20
  tslm compare runs/ptb-kn5 runs/ptb-tslm --mix linear --out runs/ptb-kn5+tslm
  tslm compare runs/ptb-kn5 runs/ptb-tslm --mix log-linear --json

The others are compared with the first. The interval comes from a paired bootstrap over lines. A mix is tuned on the
valid split of the first run's corpus (or --tune FILE), and with --out saved as a run of its own."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "compare",
        help="set models side by side, or mix them",
        description="Compare models on the same text: perplexity, confidence of the difference, and where they differ.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="two or more run folders, and a text file behind them"
    )
    parser.add_argument(
        "--split", choices=("valid", "test"), default="test", help="without a file (default: test)"
    )
    parser.add_argument("--mix", choices=("linear", "log-linear"), help="also mix the models")
    parser.add_argument("--tune", metavar="FILE", help="tune the mix on this text")
    parser.add_argument("--out", metavar="FOLDER", help="save the mix as a run folder")
    parser.add_argument(
        "--top", type=int, default=5, metavar="K", help="places where they differ most (default: 5)"
    )
    parser.add_argument(
        "--resamples", type=int, default=2000, metavar="N", help="of the bootstrap (default: 2000)"
    )
    parser.add_argument("--confidence", type=float, default=0.95, metavar="P", help="default: 0.95")
    parser.add_argument("--seed", type=int, default=1, help="of the bootstrap (default: 1)")
    parser.add_argument("--data-dir", metavar="FOLDER", help="where to look for named corpora first")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import json
    from pathlib import Path

    from tslm.corpus.reading import encode_file
    from tslm.corpus.rule import TextRule
    from tslm.errors import RunError
    from tslm.inference.compare import compare, read_words
    from tslm.inference.interpolate import as_part, save_mix, tune_mix
    from tslm.models.base import LanguageModel
    from tslm.progress import track_count
    from tslm.runs.run import open_run

    *rest, last = arguments.runs
    text = None if Path(last).is_dir() else last
    folders = [Path(run) for run in (arguments.runs if text is None else rest)]
    if len(folders) < 2 and not (folders and text is not None and not Path(text).exists()):
        raise RunError(f"{len(folders)} run to compare; give two or more run folders")
    if text is not None and text != "-" and not Path(text).exists():
        raise RunError(f"no run folder and no text file at {text}; check the path")
    if arguments.out and not arguments.mix:
        raise RunError("--out saves a mix; say which with --mix linear or --mix log-linear")
    opened = [open_run(folder) for folder in folders]
    parts = [as_part(run) for run in opened]
    corpus = None
    if text is None or (arguments.mix and not arguments.tune) or arguments.out:
        corpus = opened[0].open_corpus(arguments.data_dir)
    models: list[tuple[str, LanguageModel[Any]]] = [
        (str(folder), part.model) for folder, part in zip(folders, parts, strict=True)
    ]
    mix = None
    with track_count("scoring", None, "tokens") as tick:
        if arguments.mix:
            vocabulary = parts[0].model.vocabulary
            if arguments.tune:
                ids = encode_file(arguments.tune, vocabulary, TextRule()).ids
            else:
                assert corpus is not None  # noqa: S101
                ids = corpus.splits["valid"]
            mix = tune_mix(arguments.mix, parts, ids, tick=tick)
            models.append((arguments.out or f"{arguments.mix} mix", mix))
        if text is None:
            assert corpus is not None  # noqa: S101
            words = corpus.vocabulary.decode(corpus.splits[arguments.split])
        else:
            words = read_words(text)
        report = compare(
            models,
            words,
            top=arguments.top,
            resamples=arguments.resamples,
            confidence=arguments.confidence,
            seed=arguments.seed,
            tick=tick,
        )
        if mix is not None:
            report["mix"] = {"form": arguments.mix, "weights": list(mix.config.weights)}
            if arguments.out:
                assert corpus is not None  # noqa: S101
                summary = save_mix(mix, Path(arguments.out), opened[0], corpus, tick=tick)
                report["mix"]["summary"] = summary.as_json()
    report["text"] = text or f"{corpus.name if corpus else ''} {arguments.split}"
    if arguments.json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        _print(report)
    return 0


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table(title=escape(f"on {report['text']}"), title_justify="left")
    table.add_column("model")
    for name in (
        "parameters",
        "perplexity",
        "against the first",
        f"{report['confidence']:.0%} interval",
        "better on",
    ):
        table.add_column(name, justify="right")
    by_name = {entry["name"]: entry for entry in report["differences"]}
    for model in report["models"]:
        difference = by_name.get(model["name"])
        cells = (
            [
                f"{difference['perplexity_ratio'] - 1:+.2%}",
                f"{difference['ratio_low'] - 1:+.2%} … {difference['ratio_high'] - 1:+.2%}",
                f"{difference['better']:.1%} of draws",
            ]
            if difference
            else ["", "", ""]
        )
        table.add_row(escape(model["name"]), f"{model['parameters']:,}", f"{model['perplexity']:.3f}", *cells)
    console.print(table)
    if not report["same_vocabulary"]:
        console.print("the models know different words: these perplexities cannot be compared", style="red")
    if "mix" in report:
        weights = ", ".join(f"{weight:.4f}" for weight in report["mix"]["weights"])
        console.print(f"{report['mix']['form']} mix with weights {weights}", highlight=False)
    first = report["models"][0]["name"]
    for difference in report["differences"]:
        places = Table(
            title=escape(f"where {first} and {difference['name']} differ most"), title_justify="left"
        )
        for name in ("line", "before it", "word", "ln p first", "ln p other"):
            places.add_column(name, justify="right" if name.startswith(("l", "b")) else "left")
        for entry in (*difference["places"]["first"], *difference["places"]["other"]):
            one, other = entry["log_probabilities"]
            places.add_row(
                str(entry["line"]),
                escape(entry["context"]),
                escape(entry["word"]),
                f"{one:.2f}",
                f"{other:.2f}",
            )
        console.print(places)
