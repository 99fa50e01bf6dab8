"""``tslm doctor`` and ``tslm completion``."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import tslm
from tslm.cli import COMMANDS, main
from tslm.corpus.named import NAMED


def test_the_doctor_says_what_is_there(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TSLM_DATA", raising=False)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "five").write_text("12345")
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["tslm"] == tslm.__version__
    assert found["versions"]["torch"].startswith("2.13")
    assert found["threads"]["torch"] == torch.get_num_threads()
    assert found["precision"]["bfloat16 / single"] > 0
    assert found["cache"] == {"folder": str(tmp_path / "cache"), "writable": True, "bytes": 5}
    assert {name: found["data"][name] for name in NAMED} == dict.fromkeys(NAMED)
    assert found["problems"] == []
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert f"  folder           {tmp_path / 'cache'}\n" in text
    assert "problem" not in text


def test_the_doctor_says_what_is_wrong(capsys, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "ptb").mkdir()
    (tmp_path / "ptb" / "ptb.train.txt").write_text("a cut-off file")
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "file"))
    monkeypatch.setenv("TSLM_DATA", str(tmp_path))
    monkeypatch.setenv("TSLM_KERNEL", "1")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["doctor"]) == 2
    text = capsys.readouterr().out
    assert "cannot be written; set TSLM_CACHE" in text
    assert "there is no C++ compiler" in text
    assert "lacks ptb.valid.txt and ptb.test.txt" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_shell_takes_the_script(shell, capsys, tmp_path) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command in script for command in COMMANDS)
    program = shutil.which(shell)
    if program is not None and shell != "tcsh":
        checked = subprocess.run([program, "-n"], input=script, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def complete(script: str, folder: Path, *words: str) -> list[str]:
    """Return what bash offers for the last of the words."""
    quoted = " ".join(f"'{word}'" for word in words)
    call = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shtab_tslm tslm '{words[-1]}' ''"
    lines = f'{script}\n{call}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    ran = subprocess.run(["bash", "-c", lines], cwd=folder, capture_output=True, text=True, check=False)
    return ran.stdout.split()


def test_bash_completes_commands_options_and_run_folders(capsys, tmp_path) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    (tmp_path / "asv-run").mkdir()
    assert complete(script, tmp_path, "tslm", "gen") == ["generate"]
    assert complete(script, tmp_path, "tslm", "export", "h") == ["hf"]
    assert "--json" in complete(script, tmp_path, "tslm", "doctor", "--")
    assert complete(script, tmp_path, "tslm", "eval", "asv") == ["asv-run"]
