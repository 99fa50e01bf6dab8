"""The peak memory of a piece of work of benchmarks/training.py, in a process of its own.

python benchmarks/training_memory.py "tslm, full"
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

STEPS = {
    "PTB 256 × 1, full softmax": {"V": 10_000, "R": 256, "T": 35, "B": 40},
    "PTB 256 × 1, sampled": {"V": 10_000, "R": 256, "T": 35, "B": 40, "frequent": 1000, "sampled": 1000},
    "WikiText-2 512 × 1, sampled": {
        "V": 33_278,
        "R": 512,
        "T": 40,
        "B": 80,
        "frequent": 1000,
        "sampled": 1000,
    },
}
"""The sizes of the recipes."""


def measure_peak(name: str) -> float:
    """Return the peak of one of LOSSES, "nothing" (its inputs alone) or STEPS, in MB, of a whole process."""
    command = [sys.executable, __file__, name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _read_peak() -> float:
    # Not ru_maxrss: that begins with the peak of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


def _run(name: str) -> None:
    import numpy as np

    from training_work import make_loss, make_training

    if name not in STEPS:
        work = make_loss(None if name == "nothing" else name)
        for _ in range(5):
            work()
        return
    from tslm.evaluation.perplexity import evaluate

    sizes = STEPS[name]
    model, step = make_training(**sizes, variant="normalised")
    for _ in range(20):
        step()
    ids = np.random.default_rng(0).integers(sizes["V"], size=10_000, dtype=np.int32)
    ids[24::25] = 0  # <eos>, as often as lines end
    evaluate(model, ids)


if __name__ == "__main__":
    _run(sys.argv[1])
    print(json.dumps(_read_peak()))
