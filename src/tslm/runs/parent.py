"""A run that was started by a queue ends with it, however the queue ends."""

from __future__ import annotations

import os
import signal
import threading

VARIABLE = "TSLM_ENDS_WITH_STDIN"
"""Set for a process whose standard input is a pipe from the one that started it."""


def end_with_parent() -> None:
    """Stop, as on SIGTERM, when the process that started this one is no more; only where it asked for that.

    Its end of the pipe is closed by the system, even on ``kill -9``. Training then saves its state and stops, and the
    same command goes on from there.
    """
    if os.environ.pop(VARIABLE, "") == "1":
        threading.Thread(target=_watch, name="parent", daemon=True).start()


def _watch() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
