"""The connection to a cluster."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from tslm.errors import InputError, TslmError

ROWS_AT_ONCE = 5_000
"""Lines of text that a Python function on the cluster is given at a time."""

SETTINGS = {
    # A join finds both sides in their places where both are placed by the same few of its columns.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # Plans are made once and for all, so that a table that is kept stays in the places where it was counted.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_AT_ONCE),
    "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
}


@contextmanager
def opened_session(
    master: str, settings: Sequence[str] = (), *, partitions: int | None = None
) -> Generator[Any, None, None]:
    """Yield a Spark session on a cluster, and close it after the block.

    Args:
        master: the cluster's address: ``spark://host:7077``, ``yarn``, ``k8s://…``, or ``local[2]``: two threads here.
        settings: ``key=value``, any of Spark's own.
        partitions: into how many parts the data are cut.

    Raises:
        TslmError: there is no PySpark or no Java here, or the cluster does not answer, or a job on it fails.
        InputError: a setting is not of the form ``key=value``.
    """
    given = dict(_read_setting(setting) for setting in settings)
    sql, errors = import_spark("sql"), import_spark("errors")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise TslmError(
            "Spark needs Java 17 or later, and there is none here; install openjdk-17-jre-headless"
        )
    # Workers run the same Python as the driver unless told otherwise.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        with _connected(sql, master, given, partitions) as session:
            yield session
    except errors.PySparkException as error:
        raise TslmError(f"Spark at {master} failed: {_reason(error)}") from error
    except import_module("py4j.protocol").Py4JError as error:
        raise TslmError(f"Spark at {master} failed: {_reason(error)}") from error


def import_spark(module: str) -> Any:
    """Return a module of PySpark.

    Raises:
        TslmError: it is not installed.
    """
    try:
        return import_module(f"pyspark.{module}")
    except ImportError as error:
        raise TslmError(
            "counting and scoring on a cluster need PySpark: pip install 'tslm[spark]'"
        ) from error


def read_text(session: Any, text: Sequence[str]) -> Any:
    r"""Return the lines of files as a table of one column; a line ends in ``\n`` alone, as everywhere in tslm."""
    try:
        return session.read.option("lineSep", "\n").text(list(text))
    except import_spark("errors").AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise InputError(f"there is no text at {' '.join(text)}; give files, folders or patterns") from error


@contextmanager
def _connected(
    sql: Any, master: str, given: Mapping[str, str], partitions: int | None
) -> Generator[Any, None, None]:
    builder = sql.SparkSession.builder.master(master).appName("tslm")
    sized = {} if partitions is None else {"spark.sql.shuffle.partitions": str(partitions)}
    for key, value in {**SETTINGS, **sized, **given}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def _read_setting(setting: str) -> tuple[str, str]:
    key, separator, value = setting.partition("=")
    if not separator or not key.startswith("spark."):
        raise InputError(
            f"--conf {setting!r} is not of the form spark.key=value, for example spark.executor.memory=8g"
        )
    return key, value


def _reason(error: Exception) -> str:
    """Return the line of an error that says what is wrong: of what our own functions raised on a worker, theirs."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("tslm.errors.")]
    return (ours or lines or [type(error).__name__])[0][:500]
