"""The harness is not installed: one line says so. Its own tests are skipped then."""

from __future__ import annotations

import subprocess
import sys


def test_the_command_says_what_to_install(tmp_path) -> None:
    (tmp_path / "lm_eval.py").write_text(
        "raise ImportError\n"
    )  # found before the harness, where there is one
    command = [sys.executable, "-m", "tslm.interop.lm_eval", "run", "--model", "tslm"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr == "tslm: the harness needs lm-eval; install it with: pip install 'tslm[lm-eval]'\n"
