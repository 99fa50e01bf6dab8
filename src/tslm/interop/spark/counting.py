"""Kneser–Ney on a cluster: text → windows → counts of every order → probabilities → sorted Parquet shards.

The columns of a table of k-grams are c1, its last word, to ck, its first. The suffix of an n-gram is then the same
columns but one, its history the same columns but c1. Windows are placed on the cluster by (c2, c3), the last two words
of the history; so from order 3 up an n-gram, its suffix and all n-grams of its history lie in the same part, and after
the first shuffle Spark finds that counting needs no other. Each order is shuffled once more to be written in order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.rule import RULE_FILE, TextRule, find_rule
from tslm.corpus.vocabulary import EOS, Vocabulary
from tslm.errors import CorpusError, InputError
from tslm.files import check_folder, write_text
from tslm.interop.spark.session import import_spark, opened_session, read_text
from tslm.interop.spark.windows import PAD, window_cutter
from tslm.interop.spark.words import count_vocabulary
from tslm.models.ngram.backoff import with_unknown
from tslm.models.ngram.counting import MAX_ORDER
from tslm.models.ngram.shards import DESCRIPTION, FORMAT, VOCABULARY, shard_folder
from tslm.models.ngram.smoothed import NgramConfig
from tslm.models.ngram.smoothing import FloatArray, derive_discounts, discount_counts, estimate_discounts
from tslm.runs.run import open_run


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be counted, and how."""

    text: tuple[str, ...]
    """Files, folders or patterns, in whatever storage the cluster reads; one sentence per line."""

    model: NgramConfig
    """Order, smoothing (one of the two of Kneser–Ney), ``prune`` and ``discount_fallback``."""

    tokeniser: str = TextRule.kind
    lower: bool = False
    min_count: int = 2
    max_vocabulary: int | None = None

    like: str | None = None
    """The run whose text rule and vocabulary are taken instead."""

    partitions: int = 200
    """Into how many parts the windows are cut."""

    def __post_init__(self) -> None:
        if not 2 <= self.model.order <= MAX_ORDER:
            raise InputError(f"--order {self.model.order} is out of range: give 2 to {MAX_ORDER}")
        if self.tokeniser not in ("spaces", "words") and self.like is None:
            raise InputError(
                f"--tokeniser {self.tokeniser} is learnt on one machine: train a model on a part of the text and give "
                "its run as --like"
            )


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What a folder of shards holds."""

    format: int
    order: int
    tokens: int
    lines: int
    vocabulary: int
    discounts: list[list[float]]
    """For each order, what was subtracted from counts of 1, 2, and more."""
    smoothing: str
    prune: list[int]
    text: list[str]
    seconds: float


def count_text(job: Job, folder: Path, master: str, settings: Sequence[str] = ()) -> Counted:
    """Estimate a Kneser–Ney model of a text on a cluster, and write it as sorted shards.

    Args:
        job: what to count.
        folder: a new folder on a file system that this machine and all workers share.
        master: the cluster's address.
        settings: ``key=value``, any of Spark's own.

    Raises:
        TslmError: PySpark or Java is missing, the cluster does not answer, a job fails, the text is none or too small
            for its discounts, or the folder is not empty.
    """
    if ":/" in str(folder):  # a path has a single slash where an address has two
        raise InputError(f"--out {folder} must be a folder of a file system that all machines share")
    folder = folder.resolve()
    check_folder(folder)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; choose another folder with --out, or delete it")
    began = time.perf_counter()
    with opened_session(master, settings, partitions=job.partitions) as session:
        lines = read_text(session, job.text)
        rule, vocabulary = choose_words(job, lines)
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary.save(folder / VOCABULARY)
        rule.save(folder / RULE_FILE)
        shared = session.sparkContext.broadcast(vocabulary)
        plan = _Plan(session, job, vocabulary)
        schema = ", ".join(f"{name} int" for name in plan.columns(job.model.order)) + ", times long"
        plan.count(lines.mapInArrow(window_cutter(rule, shared, job.model.order), schema))
        plan.estimate(folder)
    counted = Counted(
        format=FORMAT,
        order=job.model.order,
        tokens=int(plan.words.times.sum()),
        lines=int(plan.words.times[vocabulary.eos_id]),
        vocabulary=len(vocabulary),
        discounts=[discounts[1:].tolist() for discounts in plan.discounts],
        smoothing=job.model.smoothing,
        prune=list(job.model.prune),
        text=list(job.text),
        seconds=time.perf_counter() - began,
    )
    # Written last: a folder without it is not finished.
    write_text(folder / DESCRIPTION, json.dumps(asdict(counted), indent=1) + "\n")
    return counted


def choose_words(job: Job, lines: Any) -> tuple[TextRule, Vocabulary]:
    """Return the text rule and the vocabulary, ``<unk>`` added where it is missing and words can be unknown."""
    if job.like is not None:
        run = open_run(job.like)
        rule, vocabulary = run.rule, run.model.vocabulary
    else:
        rule = find_rule(job.tokeniser).learn(
            (), lower=job.lower, min_count=job.min_count, max_vocabulary=job.max_vocabulary
        )
        vocabulary = count_vocabulary(lines, rule, min_count=job.min_count, max_vocabulary=job.max_vocabulary)
    return rule, vocabulary if rule.all_words() is not None else with_unknown(vocabulary)


@dataclass(frozen=True)
class _Words:
    """Single words, which fit on one machine: how often each comes, and its adjusted count."""

    times: NDArray[np.int64]
    adjusted: NDArray[np.int64]


class _Plan:
    """The tables of one job; Spark computes a table when it is asked for, and keeps those that are asked for again."""

    def __init__(self, session: Any, job: Job, vocabulary: Vocabulary) -> None:
        self.session, self.job, self.vocabulary = session, job, vocabulary
        self.functions = import_spark("sql.functions")
        self.order = job.model.order
        self.levels: dict[int, Any] = {}
        self.discounts: list[FloatArray] = []

    def columns(self, level: int) -> list[str]:
        """Return the names of a k-gram's words, the last word first."""
        return [f"c{place}" for place in range(1, level + 1)]

    def count(self, windows: Any) -> None:
        """Count the n-grams of every order, and estimate the discounts.

        A table of order k keeps, beside the k-grams, the begins of lines that are shorter (``PAD`` is their ck): the
        orders below are counted from it.
        """
        column, functions = self.functions.col, self.functions
        begin = functions.lit(len(self.vocabulary))
        times = functions.sum("times").alias("times")
        placed = windows.repartition(self.job.partitions, *self.columns(self.order)[1:3])
        self.levels[self.order] = self._keep(
            placed.groupBy(self.columns(self.order)).agg(times).withColumn("adjusted", column("times"))
        )
        for level in range(self.order - 1, 1, -1):
            names = self.columns(level)
            different = functions.count(functions.lit(1)).alias("different")
            grouped = self.levels[level + 1].groupBy(names).agg(times, different)
            # Nothing stands before a begin marker, so the n-grams that start with one keep their counts.
            adjusted = functions.when(column(names[-1]) == begin, column("times")).otherwise(
                column("different")
            )
            self.levels[level] = self._keep(grouped.select(*names, "times", adjusted.alias("adjusted")))
        found = self.levels[2].groupBy("c1").agg(times, functions.count(functions.lit(1)).alias("different"))
        self.words = self._collect_words(found)
        config = self.job.model
        single = config.smoothing == "kneser-ney-single"
        fallback = config.discount_fallback
        self.discounts = [
            estimate_discounts(self.words.adjusted, 1, single_discount=single, fallback=fallback)
        ]
        for level in range(2, self.order + 1):
            counts_of_counts = self._count_counts(level)
            self.discounts.append(
                derive_discounts(counts_of_counts, level, single_discount=single, fallback=fallback)
            )

    def estimate(self, folder: Path) -> None:
        """Turn counts into probabilities and back-off weights, order by order, and write them."""
        shorter = self._estimate_words(folder)
        for level in range(2, self.order + 1):
            rows = self._keep(self._estimate_level(level, shorter))
            self._write(rows, level, folder)
            self.levels.pop(level).unpersist()
            shorter.unpersist()
            shorter = rows

    def _estimate_level(self, level: int, shorter: Any) -> Any:
        """Return the kept k-grams with p(last word | history) and what their history leaves to its suffix."""
        column, functions = self.functions.col, self.functions
        names = self.columns(level)
        _, one, two, more = self.discounts[level - 1].tolist()
        prune = self.job.model.prune
        threshold = prune[min(level, len(prune)) - 1] if prune else 0
        kept, adjusted = column("times") > threshold, column("adjusted")
        history = import_spark("sql.window").Window.partitionBy(*names[1:])

        def add_up(value: Any) -> Any:
            return functions.sum(value).over(history)

        def number_of(wanted: Any) -> Any:
            return add_up(functions.when(kept & wanted, 1).otherwise(0))

        # In the order of tslm.models.ngram.smoothing.discount_counts, which gives the same bits.
        left = (
            number_of(adjusted == 1) * functions.lit(one)
            + number_of(adjusted == 2) * functions.lit(two)
            + number_of(adjusted > 2) * functions.lit(more)
        )
        if threshold:
            left = left + add_up(functions.when(kept, 0).otherwise(adjusted))
        discount = functions.when(adjusted == 1, one).when(adjusted == 2, two).otherwise(more)
        rows = (
            self.levels[level]
            .where(column(names[-1]) != PAD)
            .select(
                *names,
                "times",
                add_up(adjusted).alias("total"),
                left.alias("left"),
                (adjusted - discount).alias("discounted"),
            )
            .where(kept)
        )
        joined = rows.join(shorter.select(*names[:-1], column("probability").alias("shorter")), names[:-1])
        weight = column("left") / column("total")
        rows = joined.select(
            *names,
            (column("discounted") / column("total") + weight * column("shorter")).alias("probability"),
            weight.alias("weight"),
        )
        # Joined to the bigrams, the trigrams are no longer where the longer n-grams look for them.
        return rows.repartition(self.job.partitions, "c2", "c3") if level == 3 else rows

    def _estimate_words(self, folder: Path) -> Any:
        """Write the probability of each single word; return them as a table too."""
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        size = len(self.vocabulary)
        everywhere = np.ones(size + 1, np.bool_)
        root = np.zeros(size + 1, np.int64)
        share, mass = discount_counts(self.words.adjusted, everywhere, self.discounts[0], root, 1)
        uniform = np.full(size + 1, 1 / size)
        uniform[-1] = 0.0  # the begin marker is never predicted
        probability = share + mass[root] * uniform
        table = arrow.table({"c1": np.arange(size + 1, dtype=np.int32), "probability": probability})
        path = shard_folder(folder, 1)
        path.mkdir()
        # The weight of the empty history is inside the single words already.
        whole = arrow.table({"w1": table["c1"], "probability": probability, "weight": np.ones(size + 1)})
        parquet.write_table(whole, path / "part-00000.parquet")
        return self.session.createDataFrame(table)

    def _write(self, rows: Any, level: int, folder: Path) -> None:
        """Write the k-grams of one order, sorted by their words, the first word first: the order of the tree."""
        column = self.functions.col
        spelled = [column(f"c{level - place}").alias(f"w{place + 1}") for place in range(level)]
        sorted_rows = rows.select(*spelled, "probability", "weight").orderBy(
            *(f"w{place + 1}" for place in range(level))
        )
        sorted_rows.write.parquet(shard_folder(folder, level).as_uri())

    def _collect_words(self, found: Any) -> _Words:
        size = len(self.vocabulary)
        times, adjusted = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)
        table = found.toArrow()
        ids = table["c1"].to_numpy()
        times[ids], adjusted[ids] = table["times"].to_numpy(), table["different"].to_numpy()
        if not times[self.vocabulary.ids[EOS]]:
            raise CorpusError("the text has no line; check the path or pattern that is given as --text")
        return _Words(times, adjusted)

    def _count_counts(self, level: int) -> NDArray[np.int64]:
        """Return how many k-grams have the adjusted count 1, 2, 3 and 4."""
        column = self.functions.col
        real = self.levels[level].where((column(f"c{level}") != PAD) & (column("adjusted") <= 4))
        counts = np.zeros(6, np.int64)
        for row in real.groupBy("adjusted").count().collect():
            counts[row["adjusted"]] = row["count"]
        return counts

    def _keep(self, table: Any) -> Any:
        """Keep a table on the workers' disks once it is computed."""
        return table.persist(import_spark("storagelevel").StorageLevel.DISK_ONLY)
