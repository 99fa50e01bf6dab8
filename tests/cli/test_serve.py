from __future__ import annotations

import shutil

import pytest

from tslm.cli import main
from tslm.errors import RunError
from tslm.serve.models import open_models
from tslm.serve.server import listen


def test_errors_are_one_line_before_any_model_is_opened(runs, tmp_path, capsys) -> None:
    assert main(["serve", str(tmp_path / "no run"), "--port", "0"]) == 2
    assert main(["serve", str(runs["kn"]), "--port", "99999"]) == 2
    with listen("127.0.0.1", 0) as taken:
        assert main(["serve", str(tmp_path / "no run"), "--port", str(taken.getsockname()[1])]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "cannot listen" in lines[-1]


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "0", "1e300", "soon"])
def test_a_time_that_is_none_is_refused(runs, capsys, seconds) -> None:
    with pytest.raises(SystemExit) as left:
        main(["serve", str(runs["kn"]), f"--seconds={seconds}"])
    assert left.value.code == 2
    assert "is not a number of seconds" in capsys.readouterr().err


def test_runs_of_the_same_name_are_told_apart(runs, tmp_path) -> None:
    shutil.copytree(runs["kn"], tmp_path / "other" / "kn")
    assert list(open_models([runs["tslm"], runs["kn"]])) == ["tslm", "kn"]
    parent = runs["kn"].parent.name
    assert list(open_models([runs["kn"], tmp_path / "other" / "kn"])) == [f"{parent}/kn", "other/kn"]
    with pytest.raises(RunError, match="twice"):
        open_models([runs["kn"], runs["kn"]])


def test_help_names_the_address_it_binds_to(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    assert "127.0.0.1" in capsys.readouterr().out
