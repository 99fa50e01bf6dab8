from __future__ import annotations

import json
import shlex

from tslm.cli import main


def test_the_demonstration_runs_from_text_to_page(tmp_path, capsys) -> None:
    folder = tmp_path / "demo"
    assert main(["demo", "--quick", "--out", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["corpus"]["vocabulary"] == 10_000
    assert found["perplexity"]["KN-5"]["test"] < 45
    assert found["perplexity"]["TSLM"]["test"] < 200
    assert found["perplexity"]["both, mixed"]["valid"] < found["perplexity"]["KN-5"]["valid"]
    for name in ("KN-5", "TSLM"):
        true, _, shuffled = (entry["perplexity"] for entry in found["scored"][name])
        assert true < shuffled
    assert found["effects"]["words"][-1] == "."
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 5, "the effects of words, and four curves"
    assert page.index("<svg") < page.index("<details>"), "pictures before recipes"
    assert page.count("<details>") == page.count("</details>") == 2
    # The second time everything is there already; the tables are for people.
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
