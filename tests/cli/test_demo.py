from __future__ import annotations

import json

from tslm.cli import main


def test_the_demonstration_runs_from_text_to_page(tmp_path, capsys) -> None:
    folder = tmp_path / "demo"
    assert main(["demo", "--quick", "--out", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["corpus"]["vocabulary"] == 10_000
    assert found["perplexity"]["KN-5"]["test"] < 45
    assert found["perplexity"]["TSLM"]["test"] < 200
    for name in ("KN-5", "TSLM"):
        true, _, shuffled = (entry["perplexity"] for entry in found["scored"][name])
        assert true < shuffled
    page = (folder / "report.html").read_text()
    assert "<svg" in page
    assert "try" not in found
    # The second time everything is there already; the tables are for people.
    assert main(["demo", "--quick", "--out", str(folder)]) == 0
    assert "try next" in capsys.readouterr().out
