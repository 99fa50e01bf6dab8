"""Scoring the lines of a text on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np

import tslm
from tslm.errors import CorpusError, InputError
from tslm.files import check_folder
from tslm.inference.score import score_blocks
from tslm.inference.scores import ScoredBlock, Total
from tslm.interop.spark.session import import_spark, opened_session, read_text
from tslm.interop.spark.windows import ArrowFunction, Batches, join_lines

COLUMNS = "text string, log_probability double, perplexity double, tokens int, unknown int"


def score_text_files(
    run: Path, text: Sequence[str], out: str, master: str, settings: Sequence[str] = ()
) -> Total:
    """Give each line of a text its log-probability, and write lines and scores as Parquet.

    Args:
        run: the run folder of the model, where all workers see it too; an n-gram model is mapped, so that the workers
            of one machine share its memory.
        text: files or patterns, in whatever storage the cluster reads.
        out: a new folder for the shards, or an address in any storage that the cluster writes.
        master: the cluster's address.
        settings: ``key=value``, any of Spark's own.

    Raises:
        TslmError: PySpark or Java is missing, the cluster does not answer, a job fails, or the text has no line.
    """
    address, folder = out, Path(out)
    if "://" not in out:
        check_folder(folder)
        if folder.exists() and any(folder.iterdir()):
            raise InputError(f"{folder} is not empty; choose another folder with --out, or delete it")
        address = folder.resolve().as_uri()
    tslm.open_run(run)  # what is wrong with the folder is better said here than by a worker
    functions = import_spark("sql.functions")
    with opened_session(master, settings) as session:
        lines = read_text(session, text)
        # An empty folder is written in any case, hence the mode.
        lines.mapInArrow(line_scorer(str(run.resolve())), COLUMNS).write.mode("overwrite").parquet(address)
        sums = [functions.sum(name).alias(name) for name in ("log_probability", "tokens", "unknown")]
        row = session.read.parquet(address).agg(*sums, functions.count("tokens").alias("lines")).collect()[0]
    if not row.lines:
        raise CorpusError("the text has no line; check the path or pattern")
    return Total(nats=-row.log_probability, tokens=row.tokens, lines=row.lines, unknown=row.unknown)


def line_scorer(run: str) -> ArrowFunction:
    """Return the function that scores lines, batch by batch, with the model of a run folder."""

    def score(batches: Batches) -> Batches:
        arrow = import_module("pyarrow")
        model = tslm.load(run)
        for batch in batches:
            lines = join_lines(batch).removesuffix("\n").split("\n")
            for block in score_blocks(model, lines):
                yield arrow.RecordBatch.from_pydict(_columns(block))

    return score


def _columns(block: ScoredBlock) -> dict[str, object]:
    return {
        "text": [" ".join(line.split()) for line in block.lines],
        "log_probability": block.line_log_probabilities,
        "perplexity": np.array(block.perplexities),
        "tokens": block.lengths.astype(np.int32),
        "unknown": block.unknown.astype(np.int32),
    }
