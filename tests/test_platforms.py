"""What only POSIX has is not asked for where it is missing."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import importlib, os, pkgutil, signal, sys

EXTRAS = {"tslm.__main__", "tslm.interop.lm_eval", "tslm.interop.spark.counting", "tslm.interop.spark.scoring"}


def import_all():
    package = importlib.import_module("tslm")
    for module in pkgutil.walk_packages(package.__path__, "tslm."):
        if module.name not in EXTRAS:
            importlib.import_module(module.name)


# Twice: what torch and the rest ask of the system is theirs, so they are imported before it is taken away.
import_all()
for name in [name for name in sys.modules if name.split(".")[0] == "tslm"]:
    del sys.modules[name]
for name in ("resource", "fcntl", "termios", "pwd", "grp", "tty", "pty"):
    sys.modules[name] = None
for name in ("SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1"):
    delattr(signal, name)
for name in ("geteuid", "getuid", "fork", "sched_getaffinity", "getpgid", "killpg", "statvfs", "sysconf", "getloadavg"):
    delattr(os, name)
import_all()

from tslm.cli import main
from tslm.runs.queue import signals_like_ctrl_c
from tslm.serve.limits import Limits
from tslm.serve.server import _fit_descriptors
with signals_like_ctrl_c():
    pass
assert _fit_descriptors(Limits()) == Limits()
folder = sys.argv[1]
sets = ["--set", f"corpus.path={folder}/text.txt", "--set", "corpus.name=own"]
fallback = ["--set", "model.discount_fallback=[0.5, 1.0, 1.5]"]
assert main(["train", "asv/kn3", *sets, *fallback, "--out", f"{folder}/counted"]) == 0
small = ["model.rank=4", "model.embedding=4", "train.epochs=1", "train.batch=2"]
small = [*small, "objective.frequent=2", "objective.sampled=2"]
small = [part for one in small for part in ("--set", one)]
assert main(["train", "asv/tslm", *sets, *small, "--out", f"{folder}/trained"]) == 0
assert main(["eval", f"{folder}/trained", "--text", "-"]) == 0
assert main(["doctor"]) == 0
"""


def test_all_modules_and_the_main_job_work_without_what_only_posix_has(tmp_path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat\nthe dog sat on the cat\n" * 40)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        input="the cat sat\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "perplexity" in done.stdout
