"""``tslm data``: list, measure, show, fetch and make corpora."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tslm.cli.numbers import positive

EXAMPLES = """examples:
  tslm data list
  tslm data stats ptb wikitext-2 --json
  tslm data stats my.txt.gz --tokeniser words --max-vocabulary 10000
  tslm data show asv --split valid --head 3
  tslm data download ptb
  tslm data make --tokens 100000 --seed 1 --out made

A corpus is a name (see 'tslm data list'), a file (plain, .gz, .xz or .zst; one sentence per line), a folder with
train, valid and test files, or - for standard input."""

LIST_EXAMPLES = """examples:
  tslm data list
  tslm data list --data-dir corpora --json"""

STATS_EXAMPLES = """examples:
  tslm data stats
  tslm data stats ptb wikitext-2 --json
  tslm data stats my.txt.gz --tokeniser words --lower --max-vocabulary 10000
  tslm data stats my.txt.gz --tokeniser bpe --max-vocabulary 4000
  tslm data stats --files part-1.txt part-2.txt
  zcat parts/*.gz | tslm data stats -
  tslm data stats <(zcat parts/*.gz)"""

SHOW_EXAMPLES = """examples:
  tslm data show asv --split valid --head 3
  tslm data show my.txt --tokeniser words --min-count 5"""

DOWNLOAD_EXAMPLES = """examples:
  tslm data download ptb
  TSLM_MIRROR=https://mirror.example tslm data download ptb wikitext-2"""

PATH_EXAMPLES = """examples:
  tslm data path
  tslm data path ptb --json"""

MAKE_EXAMPLES = """examples:
  tslm data make --tokens 100000 --seed 1 --out made
  tslm data make --states 20 --words 200 --choices 8 --line-length 25 --out harder"""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "data",
        help="list, measure, show, fetch and make corpora",
        description="List, measure, show, fetch and make corpora.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = _add_action(
        actions, "list", "list the corpora known by name, and where their files are", LIST_EXAMPLES
    )
    stats = _add_action(
        actions, "stats", "print tokens, vocabulary and share of <unk> (Table 1)", STATS_EXAMPLES
    )
    stats.add_argument("corpora", nargs="*", metavar="CORPUS", help="names, files or folders")
    stats.add_argument("--files", nargs="+", metavar="FILE", help="several files that make up one corpus")
    show = _add_action(actions, "show", "print lines of a corpus as a model sees them", SHOW_EXAMPLES)
    show.add_argument("corpus", metavar="CORPUS", help="a name, a file or a folder")
    show.add_argument("--split", choices=("train", "valid", "test"), default="train", help="default: train")
    show.add_argument(
        "--head", type=positive, default=10, metavar="LINES", help="how many lines (default: 10)"
    )
    fetch = _add_action(
        actions,
        "download",
        "fetch named corpora from their public homes into the cache",
        DOWNLOAD_EXAMPLES,
    )
    fetch.add_argument("names", nargs="+", metavar="NAME")
    path = _add_action(
        actions, "path", "print the files of a named corpus, or the cache folder", PATH_EXAMPLES
    )
    path.add_argument("name", nargs="?", metavar="NAME")
    make = _add_action(
        actions,
        "make",
        "write text from a random automaton whose best possible perplexity is known exactly",
        MAKE_EXAMPLES,
    )
    make.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        type=Path,
        help="for train.txt, valid.txt, test.txt and automaton.json with the exact entropy rate",
    )
    make.add_argument(
        "--tokens", type=int, default=100_000, help="of train (default: 100000); valid, test: a tenth"
    )
    make.add_argument("--seed", type=int, default=1, help="chooses the automaton and the text (default: 1)")
    make.add_argument("--states", type=int, default=8, help="of the automaton (default: 8)")
    make.add_argument("--words", type=int, default=50, help="size of the vocabulary (default: 50)")
    make.add_argument("--choices", type=int, default=5, help="words possible in a state (default: 5)")
    make.add_argument("--line-length", type=float, default=12.0, help="mean words per line (default: 12)")
    for action in (stats, show):
        _add_own_text_options(action)
    for action in (listing, stats, show, path):
        action.add_argument(
            "--data-dir", metavar="FOLDER", type=Path, help="where to look for named corpora first"
        )
    for action, function in (
        (listing, run_list),
        (stats, run_stats),
        (show, run_show),
        (fetch, run_download),
        (path, run_path),
        (make, run_make),
    ):
        action.add_argument("--json", action="store_true", help="print one JSON object")
        action.set_defaults(run=function)


def _add_action(actions: Any, name: str, does: str, examples: str) -> argparse.ArgumentParser:
    """Add an action with its examples to the command."""
    return actions.add_parser(
        name,
        help=does,
        description=f"{does[0].upper()}{does[1:]}.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_own_text_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("own text")
    group.add_argument(
        "--tokeniser",
        choices=("spaces", "words", "bpe"),
        help="words between spaces (the default), words with punctuation split off, or learnt subwords",
    )
    group.add_argument("--lower", action="store_true", help="lower-case the text")
    group.add_argument("--min-count", type=int, metavar="N", help="rarer words become <unk> (default: 2)")
    group.add_argument("--max-vocabulary", type=int, metavar="N", help="keep the N most frequent words")
    group.add_argument(
        "--valid-fraction", type=float, metavar="X", help="share of lines for valid (default: 0.05)"
    )
    group.add_argument(
        "--test-fraction", type=float, metavar="X", help="share of lines for test (default: 0.05)"
    )
    group.add_argument("--split-seed", type=int, metavar="N", help="which lines go where (default: 0)")


_OWN_TEXT_OPTIONS = (
    "tokeniser",
    "lower",
    "min_count",
    "max_vocabulary",
    "valid_fraction",
    "test_fraction",
    "split_seed",
)


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of own text that were given."""
    given = {key: getattr(arguments, key) for key in _OWN_TEXT_OPTIONS}
    return {key: value for key, value in given.items() if value not in (None, False)}


def run_list(arguments: argparse.Namespace) -> int:
    """List the corpora known by name."""
    from tslm.corpus import embedded
    from tslm.corpus.named import NAMED, check_data_dir, find_files
    from tslm.errors import CorpusError

    data_dir = check_data_dir(arguments.data_dir)
    rows = {
        embedded.NAME: {
            "title": "American Standard Version, public domain (the default)",
            "vocabulary": embedded.VOCABULARY_SIZE,
            "where": "built in",
        }
    }
    for name, corpus in NAMED.items():
        try:
            files = find_files(corpus, data_dir)
            where = "downloaded when first used" if files is None else str(files["train"].parent)
        except CorpusError as error:
            where = f"unusable: {error}"
        rows[name] = {"title": corpus.title, "vocabulary": corpus.vocabulary, "where": where}
    if arguments.json:
        print(json.dumps(rows))
        return 0
    from rich.table import Table

    table = Table("corpus", "text", "vocabulary", "where", box=None, pad_edge=False)
    for name, row in rows.items():
        table.add_row(name, str(row["title"]), f"{row['vocabulary']:,}", str(row["where"]))
    _print(table)
    return 0


def run_stats(arguments: argparse.Namespace) -> int:
    """Print tokens, vocabulary and share of ``<unk>``."""
    from tslm.corpus.sources import DEFAULT, CorpusConfig, open_corpus, read_name
    from tslm.corpus.statistics import describe_corpus

    options = _options(arguments)
    configs = [(name, read_name(name, **options)) for name in arguments.corpora]
    if arguments.files:
        configs.append(("files", CorpusConfig(name="files", path=tuple(arguments.files), **options)))
    if not configs:
        configs = [(DEFAULT, CorpusConfig())]
    rows = {name: describe_corpus(open_corpus(config, arguments.data_dir)) for name, config in configs}
    if arguments.json:
        print(json.dumps(rows))
        return 0
    from rich.table import Table

    table = Table("corpus", "split", box=None, pad_edge=False)
    for heading in ("lines", "bytes", "tokens", "types", "OOV rate", "vocabulary"):
        table.add_column(heading, justify="right")
    for name, row in rows.items():
        for split, entry in row["splits"].items():
            first = split == "train"
            table.add_row(
                name if first else "",
                split,
                f"{entry['lines']:,}",
                f"{entry['bytes']:,}",
                f"{entry['tokens']:,}",
                f"{entry['types']:,}",
                f"{100 * entry['oov_rate']:.1f} %",
                f"{row['vocabulary']:,}" if first else "",
            )
    _print(table)
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """Print lines of a corpus as a model sees them."""
    from tslm.corpus.sources import open_corpus, read_name
    from tslm.corpus.statistics import head

    corpus = open_corpus(read_name(arguments.corpus, **_options(arguments)), arguments.data_dir)
    lines = head(corpus, arguments.split, arguments.head)
    if arguments.json:
        print(json.dumps({"corpus": corpus.name, "split": arguments.split, "lines": lines}))
        return 0
    for line in lines:
        print(" ".join(line))
    return 0


def run_download(arguments: argparse.Namespace) -> int:
    """Fetch named corpora into the cache."""
    from tslm.corpus.named import download_corpus, get_named

    fetched = {name: download_corpus(get_named(name)) for name in arguments.names}
    _print_paths(fetched, arguments.json)
    return 0


def run_path(arguments: argparse.Namespace) -> int:
    """Print the files of a named corpus, or the cache folder."""
    from tslm.cache import cache_dir
    from tslm.corpus.named import check_data_dir, find_files, get_named, home_folder
    from tslm.errors import CorpusError

    if arguments.name is None:
        print(json.dumps({"cache": str(cache_dir())}) if arguments.json else cache_dir())
        return 0
    named = get_named(arguments.name)
    files = find_files(named, check_data_dir(arguments.data_dir))
    if files is None:
        raise CorpusError(
            f"the corpus {named.name} is not on this machine; run 'tslm data download {named.name}' to have it "
            f"in {home_folder(named)}"
        )
    _print_paths({named.name: files}, arguments.json)
    return 0


def run_make(arguments: argparse.Namespace) -> int:
    """Write text from a random automaton."""
    from tslm.corpus.synthetic import AutomatonConfig, write_corpus

    config = AutomatonConfig(
        states=arguments.states,
        words=arguments.words,
        choices=arguments.choices,
        line_length=arguments.line_length,
        seed=arguments.seed,
    )
    description = write_corpus(config, arguments.tokens, arguments.out)
    if arguments.json:
        print(json.dumps(description))
        return 0
    print(f"wrote {arguments.out}: train.txt, valid.txt, test.txt, automaton.json")
    print(
        f"best possible perplexity {description['perplexity']:.4f} "
        f"({description['entropy_nats']:.4f} nats, {description['entropy_bits']:.4f} bits per token)"
    )
    return 0


def _print_paths(files: dict[str, dict[str, Path]], as_json: bool) -> None:
    if as_json:
        print(
            json.dumps({name: {split: str(path) for split, path in of.items()} for name, of in files.items()})
        )
        return
    for paths in files.values():
        for path in paths.values():
            print(path)


def _print(table: Any) -> None:
    """Print a table, at its full width where the output is a file or a pipe."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)
