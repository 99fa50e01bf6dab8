"""``tslm score``: the log-probability of sentences."""

from __future__ import annotations

import argparse
import sys
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from tslm.cli.count import add_cluster
from tslm.cli.device import add_device
from tslm.cli.run_folder import add_run

if TYPE_CHECKING:
    from tslm.inference.scores import ScoredBlock, Total

REMEMBERED_WORDS = 1 << 18

EXAMPLES = """examples:
  tslm score runs/ptb-kn5 sentences.txt
  tslm score runs/ptb-kn5 n-best.txt --tsv | sort -t "$(printf '\\t')" -k 2,2 -g -r | head -1
  echo "the cat sat on the mat" | tslm score runs/ptb-kn5 - --tokens
  zcat big.txt.gz | tslm score runs/ptb-kn5 --json > scores.jsonl
  tslm score runs/web-5 '/shared/web/*.gz' --engine spark --master spark://host:7077 --out /shared/scores

One sentence per line; each starts anew unless --carry is given. Words outside the vocabulary are scored as <unk>
and shown in ⟨brackets⟩. With --tsv the total goes to standard error, with --json it is the last line.
With --engine spark the lines and their scores go to Parquet files in --out, and only the total is printed."""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "score",
        help="give sentences their log-probability",
        description="Give each line of a text its log-probability (natural logarithm), and the whole its perplexity.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument(
        "files", metavar="FILE", nargs="*", default=["-"], help="text files; - or none for standard input"
    )
    add_device(parser)
    parser.add_argument("--tokens", action="store_true", help="also show every word")
    parser.add_argument(
        "--carry", action="store_true", help="running text: carry the state from line to line"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--tsv", action="store_true", help="tab-separated values with a line of names")
    form.add_argument("--json", action="store_true", help="one JSON object per line")
    add_cluster(parser, default="local")
    parser.add_argument("--out", metavar="FOLDER", help="with --engine spark: the new folder for the scores")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import tslm
    from tslm.errors import CorpusError, InputError
    from tslm.inference.inputs import STANDARD_INPUT, read_lines
    from tslm.inference.score import score_blocks
    from tslm.inference.scores import Total

    if arguments.engine == "spark":
        return _run_on_cluster(arguments)
    if arguments.out is not None:
        raise InputError(
            "--out goes with --engine spark; here the scores go to standard output: tslm score … > FILE"
        )
    # Not tslm.score, which holds all sentences: a text of any length needs no more memory than its buffer.
    model = tslm.load(arguments.run_folder, arguments.device)
    show = _Json() if arguments.json else _Tsv() if arguments.tsv else _Table()
    total = Total()
    typed = STANDARD_INPUT in arguments.files and sys.stdin.isatty()
    scored = score_blocks(
        model, read_lines(arguments.files), carry=arguments.carry, **({"buffer_tokens": 1} if typed else {})
    )
    for block in scored:
        if not total.lines:
            show.begin(arguments.tokens)
        total.add_block(block)
        show.block(block, arguments.tokens)
    if not total.lines:
        raise CorpusError("standard input has no line; give a text with one sentence per line")
    show.total(total)
    return 0


def _run_on_cluster(arguments: argparse.Namespace) -> int:
    """Score on a Spark cluster."""
    import json
    from pathlib import Path

    from tslm.errors import InputError
    from tslm.interop.spark.scoring import score_text_files

    if arguments.out is None or "-" in arguments.files:
        raise InputError(
            "--engine spark reads files that all workers see, and writes to a folder: give FILE and --out"
        )
    if arguments.tokens or arguments.carry or arguments.tsv:
        raise InputError(
            "--tokens, --carry and --tsv do not go with --engine spark, which scores whole lines"
        )
    total = score_text_files(
        Path(arguments.run_folder), arguments.files, arguments.out, arguments.master, arguments.conf
    )
    if arguments.json:
        print(json.dumps({"written": arguments.out, "total": total.as_json()}))
    else:
        print(f"{arguments.out}: {total}")
    return 0


class _Table:
    """Aligned columns, written block by block: a text of any length needs no more memory than a block."""

    def begin(self, tokens: bool) -> None:
        # Colours are for a terminal, and what makes them takes longer to load than a line to score.
        self.console = None
        if sys.stdout.isatty():
            from rich.console import Console

            self.console = Console()
        names = f"{'line':>7}  {'ln p':>10}  {'perplexity':>10}  {'tokens':>6}  text"
        self._print(names, style="bold")

    def block(self, block: ScoredBlock, tokens: bool) -> None:
        words = self._mark(block)
        scores = block.log_probabilities.tolist() if tokens else []
        begin = 0
        rows: list[str] = []
        for number, (score, perplexity, length, end) in enumerate(
            zip(
                block.line_log_probabilities.tolist(),
                block.perplexities,
                block.lengths.tolist(),
                block.ends.tolist(),
                strict=True,
            ),
            block.first,
        ):
            text = " ".join(words[begin : end - 1])
            numbers = "%7d  %10.3f  %10.2f  %6d" % (number, score, perplexity, length)  # noqa: UP031 (a third faster)
            rows.append(f"{numbers}  {text}" if text else numbers)
            if tokens:
                rows += [
                    f"{'':>7}  {score:>10.3f}  {'':>18}  {word}"
                    for score, word in zip(scores[begin:end], words[begin:end], strict=True)
                ]
            begin = end
        self._print("\n".join(rows))

    def total(self, total: Total) -> None:
        from tslm.tables import show_count

        self._print(
            f"perplexity {total.perplexity:.4f}   ln p {-total.nats:.3f}   {show_count(total.tokens, 'token')} in "
            f"{show_count(total.lines, 'line')}, {show_count(total.unknown, 'unknown word')}",
            style="bold",
        )

    def _mark(self, block: ScoredBlock) -> list[str]:
        """Return the words for the table: unknown ones in brackets, and red where there are colours."""
        words = list(block.words)
        colour = self.console is not None
        if colour:
            from rich.markup import escape

            words = list(map(escape, words))
        for place in np.flatnonzero(~block.known).tolist():
            words[place] = f"[red]⟨{words[place]}⟩[/red]" if colour else f"⟨{words[place]}⟩"
        return words

    def _print(self, text: str, style: str | None = None) -> None:
        if self.console is None:
            print(text)
        else:
            self.console.print(text, style=style, highlight=False, soft_wrap=True)


class _Tsv:
    """Tab-separated values; numbers in full."""

    def begin(self, tokens: bool) -> None:
        self.known = _KnownEnds()
        columns = ("line", "log_probability", "unknown", "word") if tokens else ("line", "log_probability")
        print(*columns, *(() if tokens else ("perplexity", "tokens", "unknown", "text")), sep="\t")

    def block(self, block: ScoredBlock, tokens: bool) -> None:
        numbers = np.arange(block.first, block.first + len(block.lines))
        if tokens:
            # A row in three parts, each made for all rows at once and no oftener than it differs.
            parts = [""] * (3 * len(block.words))
            starts = map("{}\t".format, numbers.tolist())
            parts[0::3] = chain.from_iterable(map(repeat, starts, block.lengths.tolist()))
            parts[1::3] = map(repr, block.log_probabilities.tolist())
            parts[2::3] = map(self.known.__getitem__, block.words)
            for place in np.flatnonzero(~block.known).tolist():
                parts[3 * place + 2] = f"\t1\t{block.words[place]}\n"
            sys.stdout.write("".join(parts))
        else:
            columns = zip(
                numbers.tolist(),
                block.line_log_probabilities.tolist(),
                block.perplexities,
                block.lengths.tolist(),
                block.unknown.tolist(),
                (" ".join(line.split()) for line in block.lines),
                strict=True,
            )
            sys.stdout.write("".join("\t".join(map(str, row)) + "\n" for row in columns))

    def total(self, total: Total) -> None:
        print(total, file=sys.stderr)


class _KnownEnds(dict[str, str]):
    """How the row of a known word ends, for the words that came lately."""

    def __missing__(self, word: str) -> str:
        if len(self) >= REMEMBERED_WORDS:
            self.clear()
        end = self[word] = f"\t0\t{word}\n"
        return end


class _Json:
    """JSON Lines: an object per sentence, and one with the total at the end."""

    def begin(self, tokens: bool) -> None:
        pass

    def block(self, block: ScoredBlock, tokens: bool) -> None:
        import json

        from tslm.inference.scores import describe_sentence

        for number, sentence in enumerate(block.sentences(), block.first):
            report = {"line": number, **describe_sentence(sentence, tokens=tokens)}
            print(json.dumps(report, ensure_ascii=False))

    def total(self, total: Total) -> None:
        import json

        print(json.dumps({"total": total.as_json()}))
