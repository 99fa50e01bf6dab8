"""KenLM's own programs beside tslm, on the same texts in one run: estimating, scoring, sizes, text on disk.

    KENLM_BIN=~/kenlm/build/bin python benchmarks/lmplz.py            # Penn Treebank and WikiText-2
    python benchmarks/lmplz.py --kenlm-bin … --only disk --tokens 100000000 --memory-gib 4
    python benchmarks/lmplz.py --docs     # only puts the stored results into the docs

The folder holds lmplz, build_binary and query. All times are processor seconds, user and system, of whole processes
with one thread for arithmetic; scoring is the best of three on either side, estimating the best of two, from text.
lmplz does not take <unk> in a text, so both sides read texts where it is written <rare>.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from report import Blocks, describe, make_table, read_results, write_blocks, write_results
from spill import EOS as GENERATED_EOS
from spill import VOCABULARY, generate

ORDER = 5
COPIES = {"ptb": 4, "wikitext-2": 1}
"""How often a training text is scored."""
KINDS = {
    "probing": ["probing"],
    "trie": ["trie"],
    "quantised trie": ["-q", "8", "-b", "8", "-a", "255", "trie"],
}
SHORTEST = 1.0
"""The seconds from which on the peak of a program is worth noting: it is looked at a hundred times a second."""
RECIPE = """[corpus]
name = "own"
path = ["{folder}"]
min_count = 1
[model]
kind = "ngram"
order = 5
discount_fallback = [0.5, 1.0, 1.5]
"""


def run(command: list[object], **options: Any) -> dict[str, float]:
    """Run a program to its end; return its processor seconds, its seconds and, if it took long enough, its peak memory.

    Memory is looked at while it runs: ``ru_maxrss`` begins with the peak of the process that starts a program.
    """
    # Compiled Python is kept, as it is where a package is installed.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    process = subprocess.Popen(
        [str(word) for word in command],
        env={**kept, "OMP_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": tempfile.gettempdir()},
        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options},
    )
    peaks = {"peak_gb": 0.0, "peak_own_gb": 0.0}
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        seen = read_memory(process.pid)
        peaks = {name: max(peak, seen[name]) for name, peak in peaks.items()}
        time.sleep(0.01 if time.perf_counter() - began < 20 else 0.2)
    _, status, usage = ended
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} failed with {process.returncode}: {command}")
    seconds = time.perf_counter() - began
    figures = {"processor_seconds": usage.ru_utime + usage.ru_stime, "seconds": seconds}
    return figures | peaks if seconds > SHORTEST else figures


def read_memory(process: int) -> dict[str, float]:
    """Return the most memory a process has had, and what it has now without pages of mapped files, in GB."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        lines = []
    found = dict(line.split(":", 1) for line in lines)
    names = {"peak_gb": "VmHWM", "peak_own_gb": "RssAnon"}
    return {ours: int(found.get(name, "0").split()[0]) * 1024 / 1e9 for ours, name in names.items()}


def best(repeats: int, action: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Return the run of the fewest processor seconds."""
    return min((action() for _ in range(repeats)), key=lambda figures: figures["processor_seconds"])


def tslm(*arguments: object, **options: Any) -> dict[str, float]:
    """Run a command of ours."""
    return run([sys.executable, "-m", "tslm", *arguments], **options)


def query(kenlm: Path, binary: Path, text: Path) -> dict[str, float]:
    """Score a text with KenLM."""
    with text.open("rb") as file:
        return run([kenlm / "query", "-v", "summary", binary], stdin=file)


def megabytes(path: Path) -> float:
    """Return the size of a file."""
    return path.stat().st_size / 1e6


def prepare(name: str, folder: Path) -> Path:
    """Write the splits of a corpus as both programs take them, and return their folder."""
    from tslm.corpus.sources import open_corpus

    corpus = open_corpus(name)
    texts = folder / "texts"
    texts.mkdir()
    for split, ids in corpus.splits.items():
        words = " ".join(corpus.vocabulary.decode(np.asarray(ids))).replace("<unk>", "<rare>")
        lines = (" " + words).split(" <eos>")[:-1]
        (texts / f"{split}.txt").write_text("".join(f"{line.strip()}\n" for line in lines))
    return texts


def compare(name: str, kenlm: Path) -> dict[str, Any]:
    """Estimate and score a corpus with both."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        texts = prepare(name, folder)
        train, valid = texts / "train.txt", texts / "valid.txt"
        (folder / "line").write_text("the company said\n")
        (folder / "text").write_bytes(train.read_bytes() * COPIES[name])
        (folder / "own.toml").write_text(RECIPE.format(folder=texts))
        found: dict[str, Any] = {
            "tokens": COPIES[name] * len(train.read_text().replace("\n", " <eos> ").split())
        }
        arpa, ours = folder / "lmplz.arpa", folder / "ours"

        # The text is encoded anew each time: lmplz too begins with words.
        os.environ["TSLM_CACHE"] = str(folder / "cache")

        def estimate() -> dict[str, float]:
            for known in (ours, folder / "cache"):
                shutil.rmtree(known, ignore_errors=True)
            return tslm("train", folder / "own.toml", "--out", ours)

        found["train"] = best(2, estimate)
        with (folder / "log").open("w") as log:
            command = [
                kenlm / "lmplz",
                "-o",
                ORDER,
                "-S",
                "1G",
                "-T",
                folder,
                "--text",
                train,
                "--arpa",
                arpa,
            ]
            found["lmplz"] = best(2, lambda: run(command, stderr=log))
        lines = [line for line in (folder / "log").read_text().splitlines() if line.startswith("1 ")]
        printed = [float(part.split("=")[1]) for part in lines[-1].split()[2:]]
        sizes = {"64 bits": megabytes(ours / "model.safetensors"), "lmplz.arpa": megabytes(arpa)}
        for kind, options in KINDS.items():
            binary = folder / kind
            found[f"build {kind}"] = run([kenlm / "build_binary", *options, arpa, binary])
            sizes[kind] = megabytes(binary)
            for title, text in (("line", folder / "line"), ("text", folder / "text")):
                found[f"query {title}, {kind}"] = best(3, partial(query, kenlm, binary, text))
            with valid.open("rb") as file:
                told = subprocess.run(
                    [kenlm / "query", "-v", "summary", binary], stdin=file, capture_output=True, check=True
                ).stdout.decode()
            found[f"valid, {kind}"] = float(told.split("including OOVs:")[1].split()[0])
        summary = json.loads((ours / "summary.json").read_text())
        found["valid, tslm"] = summary["valid"]["perplexity"]
        found["score line"] = best(3, lambda: tslm("score", ours, folder / "line"))
        found["score text"] = best(3, lambda: tslm("score", ours, folder / "text"))
        found["score tokens"] = best(3, lambda: tslm("score", ours, folder / "text", "--tokens", "--tsv"))
        found["arpa out"] = tslm("arpa", "export", ours, folder / "ours.arpa")
        found["arpa in"] = tslm("arpa", "import", folder / "ours.arpa", "--out", folder / "again")
        tslm("train", folder / "own.toml", "--set", "model.bits=8", "--out", folder / "eight")
        sizes["8 bits"] = megabytes(folder / "eight" / "model.safetensors")
        eight = json.loads((folder / "eight" / "summary.json").read_text())
        found["valid, tslm, 8 bits"] = eight["valid"]["perplexity"]
        found["sizes"] = sizes
        found["ids"] = score_ids(ours, folder / "text")
        found["discounts"] = explain_discounts(train, printed)
    return found


def score_ids(run_folder: Path, text: Path) -> dict[str, float]:
    """Score ids that are ready, window by window, as ``tslm score`` does it."""
    import tslm as package
    from tslm.evaluation.scoring import score_text

    model = package.load(run_folder)
    words = text.read_text().replace("\n", " <eos> ").split()
    ids = model.vocabulary.encode(words)

    def score() -> dict[str, float]:
        began = time.process_time()
        score_text(model, ids, model.start(1))
        return {"processor_seconds": time.process_time() - began}

    return best(3, score)


def explain_discounts(train: Path, printed: list[float]) -> dict[str, Any]:
    """Find out which numbers lmplz has counted when it estimated its discounts of single words.

    They are the adjusted counts, but of the word that comes up last for the first time, how often it occurs.
    """
    from tslm.models.ngram.counting import count_ngrams
    from tslm.models.ngram.smoothing import adjust_counts, estimate_discounts

    words = train.read_text().replace("\n", " <eos> ").split()
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    ids = np.array([numbers[word] for word in words], np.int32)
    counts = count_ngrams(ids, ORDER, len(numbers), numbers["<eos>"])
    adjusted = adjust_counts(counts)[1 : len(numbers) + 1]
    mixed = adjusted.copy()
    mixed[-1] = counts.counts[len(numbers)]
    return {
        "lmplz": printed,
        "adjusted counts": estimate_discounts(adjusted, 1)[1:].tolist(),
        "count of the last": estimate_discounts(mixed, 1)[1:].tolist(),
        "last": list(numbers)[-1],
        "its adjusted count": int(adjusted[-1]),
        "its count": int(mixed[-1]),
    }


def again(name: str, stored: dict[str, Any]) -> dict[str, Any]:
    """Explain once more what lmplz has printed in an earlier run."""
    with tempfile.TemporaryDirectory() as temporary:
        train = prepare(name, Path(temporary)) / "train.txt"
        return {**stored, "discounts": explain_discounts(train, stored["discounts"]["lmplz"])}


def write_text(path: Path, ids: Path, tokens: int) -> None:
    """Write generated ids as a text of words."""
    names = np.array(["\n", *(f"w{number} " for number in range(1, VOCABULARY))], object)
    with path.open("w") as file:
        for start in range(0, tokens, 1_000_000):
            some = np.fromfile(ids, np.int32, min(1_000_000, tokens - start), offset=4 * start)
            some[-1] = GENERATED_EOS
            file.write("".join(names[some].tolist()))


def compare_on_disk(kenlm: Path, tokens: int, memory_gib: float) -> dict[str, Any]:
    """Estimate from a generated text within the same memory, from its words to the model file."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "texts").mkdir()
        generate(folder / "ids", tokens)
        write_text(folder / "texts" / "train.txt", folder / "ids", tokens)
        for split in ("valid", "test"):
            write_text(folder / "texts" / f"{split}.txt", folder / "ids", 10_000)
        (folder / "own.toml").write_text(
            RECIPE.format(folder=folder / "texts") + f"memory_gib = {memory_gib}\n"
        )
        os.environ |= {"TMPDIR": temporary, "TSLM_CACHE": str(folder / "cache")}
        ours = tslm("train", folder / "own.toml", "--out", folder / "ours")
        ours["model_gb"] = megabytes(folder / "ours" / "model.safetensors") / 1000
        shutil.rmtree(folder / "ours")
        text, arpa = folder / "texts" / "train.txt", folder / "arpa"
        command = [
            kenlm / "lmplz",
            "-o",
            ORDER,
            "-S",
            f"{int(memory_gib * 1024)}M",
            "-T",
            folder,
            "--discount_fallback",
        ]
        theirs = run([*command, "--text", text, "--arpa", arpa])
        theirs["model_gb"] = megabytes(arpa) / 1000
    return {"tokens": tokens, "memory_gib": memory_gib, "tslm": ours, "lmplz": theirs}


def make_blocks(stored: dict[str, Any]) -> Blocks:
    """Return the tables in the docs."""
    results, machines = stored["results"], stored["machines"]

    def both(title: str, one: float, other: float, unit: str = " s") -> list[str]:
        show = "{:,.0f}" if unit == " tokens/s" else "{:.3f}" if other < 0.01 else "{:.2f}"
        ratio = one / other if unit == " tokens/s" else other / one
        return [title, show.format(one) + unit, show.format(other) + unit, f"{ratio:.2f}"]

    speed = [["what", "tslm", "KenLM", "times as fast"]]
    for name, title in (("ptb", "PTB"), ("wikitext-2", "WikiText-2")):
        row = results[name]
        used = {
            key: part["processor_seconds"]
            for key, part in row.items()
            if isinstance(part, dict) and "processor_seconds" in part
        }
        tokens = row["tokens"]
        speed.append(both(f"{title}: text to model, `lmplz`", used["train"], used["lmplz"]))
        lmplz = used["lmplz"] + used["build trie"]
        speed.append(both(f"{title}: the same, `lmplz` and `build_binary trie`", used["train"], lmplz))
        for kind in ("trie", "probing"):
            theirs = tokens / used[f"query text, {kind}"]
            speed.append(
                both(
                    f"{title}: ready ids, `query` of a text, {kind}",
                    tokens / used["ids"],
                    theirs,
                    " tokens/s",
                )
            )
            speed.append(
                both(
                    f"{title}: text to totals, `query`, {kind}",
                    tokens / used["score text"],
                    theirs,
                    " tokens/s",
                )
            )
        speed.append(
            [f"{title}: text to a line per token", f"{tokens / used['score tokens']:,.0f} tokens/s", "", ""]
        )
        speed.append(
            both(
                f"{title}: a line, start and all, `query`, trie", used["score line"], used["query line, trie"]
            )
        )
        speed.append([f"{title}: ARPA out", f"{used['arpa out']:.2f} s", "", ""])
        speed.append(
            both(f"{title}: ARPA in, `build_binary probing`", used["arpa in"], used["build probing"])
        )
    size = [["file", "PTB", "PTB valid", "WikiText-2", "WikiText-2 valid"]]
    for title, key, valid in (
        ("tslm, exact", "64 bits", "valid, tslm"),
        ("KenLM, probing", "probing", "valid, probing"),
        ("KenLM, trie", "trie", "valid, trie"),
        ("tslm, 8 bits", "8 bits", "valid, tslm, 8 bits"),
        ("KenLM, trie, 8 bits (`-q 8 -b 8 -a 255`)", "quantised trie", "valid, quantised trie"),
    ):
        cells = [title]
        for name in ("ptb", "wikitext-2"):
            cells += [f"{results[name]['sizes'][key]:.1f} MB", f"{results[name][valid]:.4f}"]
        size.append(cells)
    discounts = [["discounts of single words", "1", "2", "3 and more"]]
    for name, title in (("ptb", "PTB"), ("wikitext-2", "WikiText-2")):
        row = results[name]["discounts"]
        for key, own in (
            ("lmplz", "printed by lmplz"),
            ("adjusted counts", "from adjusted counts (tslm)"),
            (
                "count of the last",
                f"of `{row['last']}`, adjusted {row['its adjusted count']}, the count {row['its count']}",
            ),
        ):
            discounts.append([f"{title}, {own}", *(f"{value:.5f}" for value in row[key])])
    corpora = describe(
        (title, machines[name]) for name, title in (("ptb", "PTB"), ("wikitext-2", "WikiText-2"))
    )
    blocks = {
        ("ngram-speed.md", "kenlm"): f"{make_table(speed)}\n\n{corpora}",
        ("ngram-speed.md", "kenlm size"): make_table(size),
        ("ngrams.md", "discounts"): make_table(discounts),
    }
    if "disk" in results:
        disk = [
            [
                "program",
                "tokens",
                "memory allowed",
                "processor seconds",
                "seconds",
                "peak memory",
                "without mapped files",
                "file written",
            ]
        ]
        for row in results["disk"].values():
            for program in ("tslm", "lmplz"):
                part = row[program]
                disk.append(
                    [
                        {"tslm": "`tslm train`", "lmplz": "`lmplz`"}[program],
                        f"{row['tokens']:,}",
                        f"{row['memory_gib']} GiB",
                        f"{part['processor_seconds']:.0f}",
                        f"{part['seconds']:,.0f}",
                        f"{part['peak_gb']:.1f} GB",
                        f"{part['peak_own_gb']:.1f} GB",
                        f"{part['model_gb']:.1f} GB",
                    ]
                )
        measured = describe((f"{int(size):,} tokens", machines[f"disk {size}"]) for size in results["disk"])
        blocks["ngram-speed.md", "kenlm disk"] = f"{make_table(disk)}\n\n{measured}"
    return blocks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kenlm-bin", type=Path, default=os.environ.get("KENLM_BIN"), metavar="FOLDER")
    parser.add_argument(
        "--only", choices=("ptb", "wikitext-2", "disk", "discounts"), help="measure this part anew"
    )
    parser.add_argument("--tokens", type=int, default=20_000_000, help="of the text on disk")
    parser.add_argument("--memory-gib", type=float, default=1.0, help="for the text on disk")
    parser.add_argument("--docs", action="store_true", help="only write the stored results into the docs")
    arguments = parser.parse_args()
    path = Path(__file__).parent / "results" / "kenlm.json"
    results = json.loads(path.read_text())["results"] if path.exists() else {}
    if not arguments.docs:
        if arguments.kenlm_bin is None:
            parser.error("give the folder of lmplz, build_binary and query: --kenlm-bin or KENLM_BIN")
        kenlm = Path(arguments.kenlm_bin).resolve()
        for part in [arguments.only] if arguments.only else ["ptb", "wikitext-2", "disk"]:
            if part == "disk":
                measured = compare_on_disk(kenlm, arguments.tokens, arguments.memory_gib)
                new = {"disk": {**results.get("disk", {}), str(arguments.tokens): measured}}
                part = f"disk {arguments.tokens}"
            elif part == "discounts":
                new = {name: again(name, results[name]) for name in COPIES}
            else:
                new = {part: compare(part, kenlm)}
            # Another part may have been measured meanwhile.
            results = json.loads(path.read_text())["results"] if path.exists() else {}
            results = {**results, **new}
            write_results("kenlm", {"results": results}, [part] if part != "discounts" else [], threads=1)
    if {"ptb", "wikitext-2"} <= results.keys():
        write_blocks(make_blocks(read_results("kenlm")))


if __name__ == "__main__":
    main()
