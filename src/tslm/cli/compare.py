"""``tslm compare``: models side by side, and mixed."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm compare runs/ptb-kn5 runs/ptb-tslm
  tslm compare runs/ptb-kn5 runs/ptb-tslm my.txt --top 20
  tslm compare runs/ptb-kn5 runs/ptb-tslm --mix linear --out runs/ptb-kn5+tslm
  tslm compare runs/ptb-kn5 runs/ptb-tslm --mix log-linear --json
  tslm compare runs/ptb-kn5 runs/ptb-gated-cache --mix gated --out runs/ptb-all

The others are compared with the first. The interval comes from a paired bootstrap over lines. A mix is tuned on the
valid split of the first run's corpus (or --tune FILE), and with --out saved as a run of its own. The weights of a gated
mix depend on what its models know of the words so far: how long a history an n-gram model has seen and how often, how
well a cache matches, or (--sees state) the state of a recurrent model."""


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
    parser.add_argument("--mix", choices=("linear", "log-linear", "gated"), help="also mix the models")
    parser.add_argument(
        "--sees", choices=("counts", "state", "both"), help="what the gate of a mix sees (default: counts)"
    )
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
    from pathlib import Path

    import tslm
    from tslm.errors import RunError
    from tslm.files import to_json
    from tslm.inference.inputs import ModelLike
    from tslm.progress import track_count
    from tslm.runs.pretrained import pretrained_names
    from tslm.runs.run import open_run

    *rest, last = arguments.runs
    shipped = last in pretrained_names() and not Path(last).exists()
    text = None if Path(last).is_dir() or shipped else last
    folders = arguments.runs if text is None else rest
    if len(folders) < 2 and not (folders and text is not None and not Path(text).exists()):
        raise RunError(f"{len(folders)} run to compare; give two or more run folders")
    if text is not None and text != "-" and not Path(text).exists():
        raise RunError(f"no run folder and no text file at {text}; check the path")
    if arguments.out and not arguments.mix:
        raise RunError("--out saves a mix; say which with --mix linear, log-linear or gated")
    if arguments.sees and arguments.mix != "gated":
        raise RunError("--sees is of a gate; give --mix gated as well")
    runs = [open_run(folder) for folder in folders]
    models: list[ModelLike] = [*runs]
    names = list(map(str, folders))
    report: dict[str, Any] = {}
    with track_count("scoring", None, "tokens") as tick:
        if arguments.mix:
            tune = Path(arguments.tune) if arguments.tune else None
            given: dict[str, Any] = {"tune": tune, "data_dir": arguments.data_dir, "tick": tick}
            if arguments.mix == "gated":
                sees = arguments.sees or "counts"
                found = tslm.gate(runs, arguments.out, sees=sees, **given)
                mixed = found.model
                facts: dict[str, Any] = {"sees": sees, "fixed": found.fixed}
                facts |= {"halves": found.halves, "fitted": found.fitted}
            else:
                mixed = tslm.mix(runs, arguments.out, form=arguments.mix, **given)
                facts = {"weights": list(mixed.config.weights)}
            report = {"form": arguments.mix, **facts}
            models.append(mixed)
            names.append(arguments.out or f"{arguments.mix} mix")
        comparison = tslm.compare(
            models,
            None if text is None else Path(text),
            split=arguments.split,
            names=names,
            top=arguments.top,
            resamples=arguments.resamples,
            confidence=arguments.confidence,
            seed=arguments.seed,
            data_dir=arguments.data_dir,
            tick=tick,
        )
    if arguments.json:
        if arguments.out:
            summary = open_run(arguments.out).summary
            report["summary"] = None if summary is None else summary.as_json()
        print(to_json(comparison.as_json() | ({"mix": report} if report else {})))
    else:
        print(comparison)
        if arguments.mix == "gated":
            print(
                f"\ngate that sees {report['sees']}, on the text it was tuned on: one weight {report['fixed']:.2f}, "
                f"each half under the gate of the other {report['halves']:.2f}, the gate of the whole "
                f"{report['fitted']:.2f}"
            )
        elif report:
            weights = ", ".join(f"{weight:.4f}" for weight in report["weights"])
            print(f"\n{report['form']} mix with weights {weights}")
    return 0
