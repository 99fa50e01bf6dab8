"""The count side measured: estimating, scoring, blanks, memory; beside KenLM (queries) and NLTK's lm, in one run.

    python benchmarks/ngram.py            # all, about five minutes; writes results/ngram.json
    python benchmarks/ngram.py --only commands   # one part anew, the others as they are stored
    python benchmarks/ngram.py --docs     # only puts the stored results into the docs

One core: the script sets OMP_NUM_THREADS=1 for every measurement, and times are processor seconds, the best of a few.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from report import Blocks, describe, make_table, read_results, write_blocks, write_results

DOCS = {
    "perplexity": "ngrams.md",
    "speed": "ngram-speed.md",
    "commands": "ngram-speed.md",
    "size": "ngram-speed.md",
}
"""Which page has which table."""
PATTERNS = ("the ? of the ?", "? ? of the company", "the ? ? said", "mr. ? said the ? was ?")
TOKENS_PER_COPY = 250_000
NLTK_LINES = 2_000
NLTK_QUERIES = 20


def best_of(repeats: int, action: Callable[[], object]) -> float:
    """The shortest time of some runs, in seconds of one thread: other work on the machine hardly counts."""
    times: list[float] = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def fit(corpus: Any, order: int = 5, **options: Any) -> Any:
    from tslm.models.ngram.smoothed import NgramConfig, NgramModel

    return NgramModel.fit(NgramConfig(order=order, **options), corpus)


def estimate(name: str) -> dict[str, Any]:
    """Time and peak memory of KN-5 from ids, then its perplexities and those of its relatives."""
    from tslm.corpus.sources import open_corpus
    from tslm.evaluation.perplexity import evaluate

    corpus = open_corpus(name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    model = fit(corpus)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = best_of(4, lambda: fit(corpus))
    perplexity: dict[str, dict[str, float]] = {}
    for title, options in (
        ("KN-5", {}),
        ("KN-5, one discount", {"smoothing": "kneser-ney-single"}),
        ("KN-5, single 3-, 4- and 5-grams dropped", {"prune": (0, 0, 1)}),
        ("KN-3", {"order": 3}),
    ):
        relative = fit(corpus, **options) if options else model
        perplexity[title] = {
            split: evaluate(relative, corpus.splits[split], reset=False).perplexity
            for split in ("valid", "test")
        }
    return {
        "seconds": seconds,
        "peak_mb": peak,
        "peak_before_mb": before,
        "ngrams": model.table.trie.node_count,
        "model_mb": model.byte_count / 2**20,
        "perplexity": perplexity,
    }


def grow() -> dict[str, float]:
    """Estimation of 1 to 8 copies' worth of generated text."""
    from spill import EOS, VOCABULARY, generate
    from tslm.models.ngram.counting import count_ngrams
    from tslm.models.ngram.smoothed import NgramConfig, smooth

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ids"
        generate(path, 8 * TOKENS_PER_COPY)
        ids = np.fromfile(path, np.int32)
    config = NgramConfig(discount_fallback=(0.5, 1.0, 1.5))
    times: dict[str, float] = {}
    for copies in (1, 2, 4, 8):
        some = ids[: copies * TOKENS_PER_COPY]
        times[str(copies)] = best_of(
            4, lambda some=some: smooth(count_ngrams(some, 5, VOCABULARY, EOS), config)
        )
    return times


def query() -> dict[str, Any]:
    """Scoring beside KenLM, next-word distributions, and blanks."""
    import kenlm

    from tslm.corpus.sources import open_corpus
    from tslm.interop.arpa import export_arpa
    from tslm.models.ngram.blanks import parse_pattern

    corpus = open_corpus("ptb")
    model = fit(corpus)
    ids = np.array(corpus.splits["test"])
    tokens = ids[None]
    ours = best_of(10, lambda: model.score(tokens, model.start(1)))
    log_probability, _ = model.score(tokens, model.start(1))
    ends = np.flatnonzero(ids == corpus.vocabulary.eos_id) + 1
    lines = [" ".join(corpus.vocabulary.decode(line[:-1])) for line in np.split(ids, ends)[:-1]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kn5.arpa"
        writing = best_of(1, lambda: export_arpa(model, path))
        other = kenlm.Model(str(path))
        theirs = best_of(5, lambda: [other.score(line) for line in lines])
        sums = np.add.reduceat(log_probability[0], np.concatenate([[0], ends[:-1]])) / np.log(10)
        difference = float(np.abs(sums - [other.score(line) for line in lines]).max())
        assert difference < 1e-4, "our scores and KenLM's differ"
    states = np.random.default_rng(0).integers(0, model.table.trie.context_count, 200)
    predicting = best_of(5, lambda: model.predict(states))
    blanks: dict[str, dict[str, float]] = {}
    for text in PATTERNS:
        pattern = parse_pattern(text, corpus.vocabulary)
        blanks[text] = {
            "fill_seconds": best_of(3, lambda pattern=pattern: model.fill(pattern)),
            "best_seconds": best_of(3, lambda pattern=pattern: model.fill(pattern).best(5)),
        }
    return {
        "tokens_per_second": len(ids) / ours,
        "kenlm_tokens_per_second": len(ids) / theirs,
        "kenlm_largest_difference_log10": difference,
        "export_seconds": writing,
        "distributions_per_second": len(states) / predicting,
        "blanks": blanks,
    }


def compare_nltk() -> dict[str, float]:
    """NLTK's interpolated Kneser–Ney on a few lines of Penn Treebank, and ours on the same lines."""
    from dataclasses import replace
    from types import MappingProxyType

    from nltk.lm import KneserNeyInterpolated
    from nltk.lm.preprocessing import padded_everygram_pipeline

    from tslm.corpus.sources import open_corpus

    corpus = open_corpus("ptb")
    ids = np.array(corpus.splits["train"])
    ids = ids[: int(np.flatnonzero(ids == corpus.vocabulary.eos_id)[NLTK_LINES - 1]) + 1]
    some = replace(corpus, splits=MappingProxyType({"train": ids}))
    words = corpus.vocabulary.decode(ids)
    sentences = [line.split() for line in " ".join(words).split("<eos>")[:-1]]

    def fit_nltk() -> Any:
        model = KneserNeyInterpolated(5)
        model.fit(*padded_everygram_pipeline(5, sentences))
        return model

    theirs = best_of(1, fit_nltk)
    ours = best_of(3, lambda: fit(some))
    model, mine = fit_nltk(), fit(some)
    queries = [words[place : place + 5] for place in range(100, 100 + NLTK_QUERIES)]
    slow = best_of(1, lambda: [model.score(gram[-1], gram[:-1]) for gram in queries])
    tokens = ids[None]
    fast = best_of(3, lambda: mine.score(tokens, mine.start(1)))
    return {
        "lines": NLTK_LINES,
        "fit_seconds": ours,
        "nltk_fit_seconds": theirs,
        "tokens_per_second": len(ids) / fast,
        "nltk_tokens_per_second": NLTK_QUERIES / slow,
    }


COPIES = 4
"""How often the training text of Penn Treebank is scored through the command."""


def commands() -> dict[str, Any]:
    """Whole commands on PTB KN-5 in processor seconds, start and all; and the sizes and losses of fewer bits."""
    import tslm
    from tslm.interop.arpa_checks import measure_normalisation

    text = (Path(os.environ["TSLM_DATA"]) / "ptb" / "ptb.train.txt").read_bytes()

    def seconds(*arguments: object) -> float:
        def used() -> float:
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            return usage.ru_utime + usage.ru_stime

        before = used()
        subprocess.run(
            [sys.executable, "-m", "tslm", *map(str, arguments)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return used() - before

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text").write_bytes(text * COPIES)
        (folder / "line").write_text("the company said\n")
        tokens = (len(text.split()) + text.count(b"\n")) * COPIES
        times: dict[str, float] = {}
        sizes: dict[str, dict[str, float]] = {}
        for bits in (64, 32, 8):
            run = folder / str(bits)
            times[f"train, {bits} bits"] = seconds(
                "train", "ptb/kn5", "--set", f"model.bits={bits}", "--out", run
            )
            sums = measure_normalisation(tslm.load(run))
            sizes[str(bits)] = {
                "mb": (run / "model.safetensors").stat().st_size / 1e6,
                **{split: tslm.evaluate(run, split=split).perplexity for split in ("valid", "test")},
                "worst_sum": sums.worst,
            }
        run = folder / "64"
        times["score a line"] = min(seconds("score", run, folder / "line") for _ in range(3))
        for title, options in (("totals", []), ("tsv", ["--tsv"]), ("tokens", ["--tokens", "--tsv"])):
            times[f"score, {title}"] = min(seconds("score", run, folder / "text", *options) for _ in range(2))
        for ending in ("arpa", "arpa.gz"):
            path = folder / f"kn5.{ending}"
            times[f"{ending} out"] = seconds("arpa", "export", run, path)
            times[f"{ending} in"] = seconds("arpa", "import", path, "--out", folder / f"from-{ending}")
            sizes[ending] = {"mb": path.stat().st_size / 1e6}
    return {"tokens": tokens, "seconds": times, "sizes": sizes}


STEPS: dict[str, Callable[[], Any]] = {
    "commands": commands,
    "ptb": lambda: estimate("ptb"),
    "wikitext-2": lambda: estimate("wikitext-2"),
    "growth": grow,
    "queries": query,
    "nltk": compare_nltk,
}


def make_tables(results: dict[str, Any]) -> dict[str, list[list[str]]]:
    """The rows of the tables, for the terminal and for the docs."""
    queries, nltk, growth = results["queries"], results["nltk"], results["growth"]
    perplexity = [["model", "PTB valid", "PTB test", "WikiText-2 valid", "WikiText-2 test"]]
    for title, ptb in results["ptb"]["perplexity"].items():
        wikitext = results["wikitext-2"]["perplexity"][title]
        perplexity.append([title, *(f"{value:.2f}" for value in (*ptb.values(), *wikitext.values()))])
    speed = [["what", "tslm", "beside it", "ratio"]]
    for name, title in (("ptb", "PTB"), ("wikitext-2", "WikiText-2")):
        row = results[name]
        speed.append(
            [f"estimate KN-5 on {title}", f"{row['seconds']:.2f} s, peak {row['peak_mb']:.0f} MB", "", ""]
        )
    speed.append(
        [
            "8 times the text",
            f"{growth['8']:.2f} s",
            f"once: {growth['1']:.2f} s",
            f"{growth['8'] / growth['1']:.1f}",
        ]
    )
    speed.append(
        [
            f"estimate KN-5 on {nltk['lines']:,} lines",
            f"{nltk['fit_seconds']:.3f} s",
            f"NLTK, counting only: {nltk['nltk_fit_seconds']:.1f} s",
            f"{nltk['nltk_fit_seconds'] / nltk['fit_seconds']:.0f}",
        ]
    )
    speed.append(
        [
            "score those lines",
            f"{nltk['tokens_per_second']:,.0f} tokens/s",
            f"NLTK: {nltk['nltk_tokens_per_second']:,.1f} tokens/s",
            f"{nltk['tokens_per_second'] / nltk['nltk_tokens_per_second']:,.0f}",
        ]
    )
    speed.append(
        [
            "score PTB test",
            f"{queries['tokens_per_second']:,.0f} tokens/s",
            f"KenLM from Python: {queries['kenlm_tokens_per_second']:,.0f} tokens/s",
            f"{queries['tokens_per_second'] / queries['kenlm_tokens_per_second']:.2f}",
        ]
    )
    speed.append(
        ["next-word distributions", f"{queries['distributions_per_second']:,.0f} per second", "", ""]
    )
    for text, row in queries["blanks"].items():
        speed.append([f"`{text}`", f"{row['fill_seconds'] * 1000:.0f} ms", "", ""])
    whole = results["commands"]
    times, tokens = whole["seconds"], whole["tokens"]
    command = [["command", "processor seconds", "tokens/s"]]
    command.append(["`tslm train ptb/kn5`", f"{times['train, 64 bits']:.2f}", ""])
    command.append(["`tslm score` of a line", f"{times['score a line']:.2f}", ""])
    for title, options in (("totals", ""), ("tsv", " --tsv"), ("tokens", " --tokens --tsv")):
        taken = times[f"score, {title}"]
        command.append([f"`tslm score RUN FILE{options}`", f"{taken:.2f}", f"{tokens / taken:,.0f}"])
    for ending in ("arpa", "arpa.gz"):
        for way, verb in (("out", "export"), ("in", "import")):
            title = f"`tslm arpa {verb}`, .{ending} of {whole['sizes'][ending]['mb']:.0f} MB"
            command.append([title, f"{times[f'{ending} {way}']:.2f}", ""])
    size = [
        ["`model.bits`", "file", "PTB valid", "PTB test", "sum farthest from one, in a sample of histories"]
    ]
    for bits in ("64", "32", "8"):
        row = whole["sizes"][bits]
        size.append(
            [
                bits,
                f"{row['mb']:.1f} MB",
                f"{row['valid']:.4f}",
                f"{row['test']:.4f}",
                f"{row['worst_sum']:.6f}",
            ]
        )
    return {"perplexity": perplexity, "speed": speed, "commands": command, "size": size}


def make_blocks(stored: dict[str, Any]) -> Blocks:
    """Return the tables in the docs; under those of times, on which machine they were taken."""
    blocks = {(DOCS[name], name): make_table(rows) for name, rows in make_tables(stored["results"]).items()}
    for name, parts in (
        ("speed", [step for step in STEPS if step != "commands"]),
        ("commands", ["commands"]),
    ):
        measured = describe((part, stored["machines"][part]) for part in parts)
        blocks[DOCS[name], name] += f"\n\n{measured}"
    return blocks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--docs", action="store_true", help="only write the stored results into the docs")
    parser.add_argument("--only", choices=tuple(STEPS), help="measure this part anew")
    parser.add_argument("--step", choices=tuple(STEPS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        print(json.dumps(STEPS[arguments.step]()))
        return

    from rich.console import Console
    from rich.table import Table

    if not arguments.docs:
        results: dict[str, Any] = {}
        if arguments.only:
            results = read_results("ngram")["results"]
        for step in [arguments.only] if arguments.only else STEPS:
            print(f"{step} …", file=sys.stderr)
            command = [sys.executable, __file__, "--step", step]
            done = subprocess.run(
                command,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            results[step] = json.loads(done.stdout)
        settings = {
            "order": 5,
            "threads": 1,
            "tokens_per_copy": TOKENS_PER_COPY,
            "nltk_queries": NLTK_QUERIES,
        }
        measured = [arguments.only] if arguments.only else STEPS
        write_results("ngram", {"settings": settings, "results": results}, measured, threads=1)
    stored = read_results("ngram")
    tables = make_tables(stored["results"])
    console = Console()
    for name, (header, *rows) in tables.items():
        table = Table(title=name, title_justify="left")
        for column in header:
            table.add_column(column)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    write_blocks(make_blocks(stored))


if __name__ == "__main__":
    main()
