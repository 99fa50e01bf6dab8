from __future__ import annotations

import pytest

from tslm.errors import RunError
from tslm.reports.curves import draw_curves
from tslm.reports.page import make_page, make_table, write_run_page
from tslm.runs.folder import write_summary

ENTRIES = [
    {"step": 100, "loss": 5.0, "gradient_norm": 0.3, "state_norm": 0.7, "spectral_radius": 1.0},
    {"step": 200, "loss": 4.5, "gradient_norm": 0.2, "state_norm": 0.8, "spectral_radius": 1.1},
    {"epoch": 1, "step": 200, "train_perplexity": 120.0, "valid_perplexity": 110.0, "seconds": 3.0},
]


def test_curves_show_every_measure_and_load_nothing() -> None:
    svg = draw_curves(ENTRIES)
    assert svg.startswith("<svg")
    assert "http://www.w3.org" in svg  # namespaces only
    for link in ("<script", 'href="http'):
        assert link not in svg.replace('xlink:href="#', "")


def test_texts_are_escaped() -> None:
    page = make_page("<script>alert(1)</script>", make_table(["a"], [["<b>&</b>"]]))
    assert "<script>" not in page
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in page


def test_an_unfinished_run_has_no_report(tmp_path) -> None:
    with pytest.raises(RunError, match="no finished run"):
        write_run_page(tmp_path)


def test_a_report_shows_perplexities_and_recipe(tmp_path) -> None:
    split = {
        "tokens": 10,
        "perplexity": 141.2,
        "perplexity_reset": 142.0,
        "bits_per_word": 7.1,
        "protocol": "all",
    }
    write_summary(
        tmp_path,
        {
            "kind": "recurrent",
            "corpus": {"name": "<ptb>", "fingerprint": "ab" * 32, "vocabulary": 10},
            "parameters": 1000,
            "seconds": 1.5,
            "epochs": 2,
            "best_epoch": 1,
            "tokens_per_second": 10.0,
            "threads": 2,
            "valid": split,
            "test": split,
            "versions": {"tslm": "0"},
            "recipe": {"model": {"kind": "recurrent"}},
        },
    )
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    page = write_run_page(tmp_path).read_text()
    assert "141.20" in page
    assert "&lt;ptb&gt;" in page
    assert "<svg" in page
    assert "kind = &quot;recurrent&quot;" in page
