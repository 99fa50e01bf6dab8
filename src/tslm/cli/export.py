"""``tslm export`` and ``tslm import``: runs as folders of Hugging Face transformers, and back."""

from __future__ import annotations

import argparse
import sys
from typing import Any

EXPORT_EXAMPLES = """examples:
  tslm export hf runs/asv-gated asv-gated-hf
  python -c "import tslm.interop.huggingface, transformers as t; print(t.pipeline('text-generation', 'asv-gated-hf')('In the beginning'))" """  # noqa: E501

IMPORT_EXAMPLES = """examples:
  tslm import hf asv-gated-hf runs/asv-gated-again
  tslm eval runs/asv-gated-again --split test"""


def add(subparsers: Any) -> None:
    """Add both commands to the command line."""
    export = _add_format(
        subparsers,
        "export",
        help="write a run for Hugging Face transformers",
        description="Write the model of a run folder, of whatever kind, as a folder that AutoModelForCausalLM and "
        "AutoTokenizer of Hugging Face transformers open.",
        epilog=EXPORT_EXAMPLES,
    )
    export.add_argument("run_folder", metavar="RUN", help="the folder of any model")
    export.add_argument("folder", metavar="FOLDER", help="the folder to write; it must be empty or not there")
    export.add_argument("--json", action="store_true", help="print one JSON object")
    export.set_defaults(run=run_export)
    back = _add_format(
        subparsers,
        "import",
        help="read such a folder into a run folder",
        description="Read a folder that tslm export hf wrote, trained further with transformers or not.",
        epilog=IMPORT_EXAMPLES,
    )
    back.add_argument("folder", metavar="FOLDER", help="the folder that transformers opens")
    back.add_argument("run_folder", metavar="RUN", help="the run folder to write")
    back.add_argument("--json", action="store_true", help="print one JSON object")
    back.set_defaults(run=run_import)


def run_export(arguments: argparse.Namespace) -> int:
    """Run ``tslm export hf``."""
    from pathlib import Path

    import tslm

    _quieten()
    from tslm.interop.hf_folder import export_hf

    run = tslm.open_run(arguments.run_folder)
    export_hf(run, Path(arguments.folder))
    _print(arguments.folder, run.model, json=arguments.json)
    if not arguments.json:
        print(
            f"open it with: import tslm.interop.huggingface; AutoModelForCausalLM.from_pretrained({arguments.folder!r})"
        )
    return 0


def run_import(arguments: argparse.Namespace) -> int:
    """Run ``tslm import hf``."""
    from pathlib import Path

    _quieten()
    from tslm.interop.hf_folder import import_hf

    model = import_hf(Path(arguments.folder), Path(arguments.run_folder))
    _print(arguments.run_folder, model, json=arguments.json)
    return 0


def _add_format(subparsers: Any, name: str, *, epilog: str, **words: str) -> Any:
    """Add a command whose next word is the format; there is one so far."""
    parser = subparsers.add_parser(
        name, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter, **words
    )
    formats = parser.add_subparsers(title="formats", metavar="FORMAT", required=True)
    return formats.add_parser(
        "hf", epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter, **words
    )


def _quieten() -> None:
    """Leave the progress bars of transformers out where nobody watches them."""
    from tslm.interop.hf_tokenizer import TslmTokenizer as _  # noqa: F401 - says what to install where it is missing

    if not sys.stderr.isatty():
        from transformers.utils import logging

        logging.disable_progress_bar()


def _print(written: str, model: Any, *, json: bool) -> None:
    """Say what was written."""
    if json:
        from json import dumps

        shown = {"written": written, "kind": model.kind, "vocabulary": len(model.vocabulary)}
        print(dumps({**shown, "parameters": model.parameter_count}))
    else:
        print(
            f"{written}: {model.kind}, {len(model.vocabulary):,} words, {model.parameter_count:,} parameters"
        )
