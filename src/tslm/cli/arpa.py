"""``tslm arpa``: n-gram models to and from the files of other tools."""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise
from typing import Any

EXAMPLES = """examples:
  tslm arpa export runs/ptb-kn5 ptb-kn5.arpa.gz
  tslm arpa import other.arpa --out runs/other"""

EXPORT_EXAMPLES = """examples:
  tslm arpa export runs/ptb-kn5 ptb-kn5.arpa
  tslm arpa export runs/ptb-kn5 ptb-kn5.arpa.gz --json"""

IMPORT_EXAMPLES = """examples:
  tslm arpa import other.arpa.gz --out runs/other
  tslm arpa import other.arpa --out runs/other --check
  tslm fill runs/other "the ? of the ?" """


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "arpa",
        help="write and read ARPA files",
        description="Exchange n-gram models with other tools as ARPA files, plain or gzipped.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    export = actions.add_parser(
        "export",
        help="write the model of a run folder as an ARPA file",
        description="Write the model of a run folder as an ARPA file.",
        epilog=EXPORT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    export.add_argument("run_folder", metavar="RUN", help="the folder of an n-gram model")
    export.add_argument("file", metavar="FILE", help="the file to write; gzipped when it ends with .gz")
    export.add_argument("--json", action="store_true", help="print one JSON object")
    export.set_defaults(run=run_export)
    read = actions.add_parser(
        "import",
        help="read an ARPA file into a run folder",
        description="Read an ARPA file, whoever wrote it, into a run folder.",
        epilog=IMPORT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    read.add_argument("file", metavar="FILE", help="an ARPA file, plain or gzipped")
    read.add_argument("--out", metavar="FOLDER", required=True, help="the run folder to write")
    read.add_argument(
        "--check",
        action="store_true",
        help="sum the probabilities after every history; without it, after a sample of 500",
    )
    read.add_argument("--json", action="store_true", help="print one JSON object")
    read.set_defaults(run=run_import)


def run_export(arguments: argparse.Namespace) -> int:
    """Run ``tslm arpa export``."""
    from pathlib import Path

    import tslm
    from tslm.errors import UnsupportedError
    from tslm.interop.arpa import export_arpa
    from tslm.models.ngram.backoff import BackoffModel
    from tslm.progress import track_count

    model = tslm.load(arguments.run_folder)
    if not isinstance(model, BackoffModel):
        raise UnsupportedError(
            f"a model of kind {model.kind!r} has no n-grams to write; give the run of an n-gram model"
        )
    ngrams = model.table.trie.node_count - 1
    with track_count(f"writing {arguments.file}", ngrams, "n-grams") as tick:
        export_arpa(model, Path(arguments.file), tick)
    _print(arguments.file, model, json=arguments.json)
    return 0


def run_import(arguments: argparse.Namespace) -> int:
    """Run ``tslm arpa import``."""
    from pathlib import Path

    from tslm.interop.arpa import import_run
    from tslm.progress import track_bytes

    path = Path(arguments.file)
    with track_bytes(f"reading {path}", path.stat().st_size if path.is_file() else None) as tick:
        model, sums = import_run(path, Path(arguments.out), tick, check=arguments.check)
    if sums.off:
        print(f"tslm: {arguments.file} is not normalised: {sums}", file=sys.stderr)
    _print(arguments.out, model, json=arguments.json, checked=sums.histories, off=sums.off, worst=sums.worst)
    return 0


def _print(written: str, model: Any, *, json: bool, **more: Any) -> None:
    """Say what was written."""
    levels = model.table.trie.levels
    sizes = [int(high - low) for low, high in pairwise(levels[1:])]
    if json:
        from json import dumps

        print(dumps({"written": written, "order": model.order, "ngrams": sizes, **more}))
    else:
        shown = ", ".join(f"{size:,} {order}-grams" for order, size in enumerate(sizes, start=1))
        print(f"{written}: {shown}")
