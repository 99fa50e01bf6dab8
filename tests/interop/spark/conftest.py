"""A real cluster: a master and two workers, each a process of its own, started and stopped here."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "src"

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Java machines that live for seconds."""


def start(spark: Path, folder: Path, name: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
    log = folder / f"{name}.log"
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYTHONPATH": str(SOURCE),
        "PYSPARK_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": QUICK,
        "OMP_NUM_THREADS": "1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(spark / "bin" / "spark-class"), *arguments], stdout=output, stderr=output, env=environment
        )
    return process, log


def wait_for(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found.group(0)
        assert process.poll() is None, log.read_text(errors="replace")
        time.sleep(0.2)
    raise AssertionError(f"no {pattern} within three minutes:\n{log.read_text(errors='replace')}")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the master of a cluster of two workers with one core each."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("needs PySpark: pip install 'tslm[spark]'")
    if shutil.which("java") is None:
        pytest.skip("needs Java: apt-get install openjdk-17-jre-headless")
    import pyspark

    spark = Path(pyspark.__file__).parent
    folder = tmp_path_factory.mktemp("cluster")
    deploy = "org.apache.spark.deploy"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        master, log = start(
            spark,
            folder,
            "master",
            f"{deploy}.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--webui-port",
            "0",
        )
        processes.append(master)
        address = wait_for(log, r"spark://127\.0\.0\.1:\d+", master)
        for number in (1, 2):
            own = (
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                "--work-dir",
                str(folder / f"work-{number}"),
            )
            worker, log = start(spark, folder, f"worker-{number}", f"{deploy}.worker.Worker", *own, address)
            processes.append(worker)
        for number, process in enumerate(processes[1:], 1):
            wait_for(folder / f"worker-{number}.log", "Successfully registered with master", process)
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)
