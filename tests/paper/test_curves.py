from __future__ import annotations

import json
from pathlib import Path

from tslm.paper.curves import draw_generalisation, make_ratios, read_epochs


def test_the_last_epoch_of_each_row_that_was_run(tmp_path: Path) -> None:
    entries = [
        {"step": 3, "loss": 5.0},
        {"epoch": 1, "step": 4, "train_perplexity": 150.0, "valid_perplexity": 160.0, "seconds": 1.0},
        {"epoch": 2, "step": 8, "train_perplexity": 100.0, "valid_perplexity": 125.0, "seconds": 2.0},
    ]
    (tmp_path / "ptb" / "gated").mkdir(parents=True)
    (tmp_path / "ptb" / "gated" / "metrics.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in entries))
    assert list(read_epochs("ptb", tmp_path)) == ["gated"]
    assert "| TSLM, gated (ours) | 2 | 100.00 | 125.00 | 1.25 |" in make_ratios("ptb", tmp_path)
    figure = draw_generalisation("ptb", tmp_path)
    assert figure == draw_generalisation("ptb", tmp_path), "the same runs, the same file"
    assert figure.startswith("<svg")
