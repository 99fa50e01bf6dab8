from __future__ import annotations

import json
import shlex

from tslm.cli import main
from tslm.reports.demo import run_demo
from tslm.training.watcher import Watcher

SMALLER = (
    "model.rank=32",
    "model.embedding=32",
    "train.epochs=1",
    "train.batch=200",
    "train.learning_rate=0.02",
)


def test_the_demonstration_runs_from_text_to_page(tmp_path) -> None:
    folder, told = tmp_path / "demo", []
    for _ in range(2):  # the second time everything is there already
        found = run_demo(folder, told.append, Watcher(), overrides=SMALLER)
        assert found["perplexity"]["KN-5"]["test"] < 45
        assert found["perplexity"]["TSLM"]["test"] < 200
        assert found["perplexity"]["both, mixed"]["valid"] < found["perplexity"]["KN-5"]["valid"]
        assert any("training TSLM" in line for line in told)
        page = (folder / "report.html").read_text()
        assert "have just learnt" in page
        assert "In the mix" in page


def test_the_quick_demonstration_trains_nothing(tmp_path, capsys) -> None:
    folder = tmp_path / "demo"
    assert main(["demo", "--quick", "--out", str(folder), "--json"]) == 0
    assert [path.name for path in folder.iterdir()] == ["report.html"]
    found = json.loads(capsys.readouterr().out)
    assert found["corpus"]["vocabulary"] == 10_000
    assert found["perplexity"]["KN-5"]["test"] < 45
    assert found["perplexity"]["TSLM"]["test"] < 33
    for name in ("KN-5", "TSLM"):
        true, _, shuffled = (entry["perplexity"] for entry in found["scored"][name])
        assert true < shuffled
    assert found["effects"]["words"][-1] == "."
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 5, "the effects of words, and four curves"
    assert page.index("<svg") < page.index("<details>"), "pictures before recipes"
    assert page.count("<details>") == page.count("</details>") == 2
    # The tables are for people.
    assert main(["demo", "--quick", "--out", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "try next" in printed
    assert "*heavens*" in printed, "odd words are marked where there are no colours"
    for entry in found["next"]:
        assert entry["command"] in printed
        command = shlex.split(entry["command"])[1:]
        if command[0] in (
            "fill",
            "explain",
            "generate",
        ):  # the others take their time, and have tests of their own
            assert main(command) == 0, command
