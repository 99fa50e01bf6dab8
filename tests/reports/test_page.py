from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from tslm.errors import RunError
from tslm.evaluation.perplexity import Perplexity
from tslm.reports.curves import draw_curves
from tslm.reports.page import make_page, make_run, write_run_page
from tslm.reports.tables import print_summary
from tslm.runs.recipe import make_recipe
from tslm.runs.summary import Source, Summary, Training, write_summary
from tslm.tables import html_table

ENTRIES = [
    {"step": 100, "loss": 5.0, "gradient_norm": 0.3, "state_norm": 0.7, "spectral_radius": 1.0},
    {"step": 200, "loss": 4.5, "gradient_norm": 0.2, "state_norm": 0.8, "spectral_radius": 1.1},
    {"epoch": 1, "step": 200, "train_perplexity": 120.0, "valid_perplexity": 110.0, "seconds": 3.0},
]


def test_curves_show_every_measure_and_load_nothing() -> None:
    svg = draw_curves(ENTRIES)
    assert svg.count("<svg") == svg.count("</svg>") == 4
    # Each cuts its curves off by its own frame, not by that of another on the same page.
    clips = re.findall(r'<clipPath id="([^"]+)"', svg)
    assert len(clips) == len(set(clips)) == 4
    assert "http://www.w3.org" in svg  # namespaces only
    for link in ("<script", 'href="http'):
        assert link not in svg.replace('xlink:href="#', "")


@pytest.mark.parametrize(("first", "last", "shown"), [(75.0, 50.0, "60"), (2500.0, 40.0, "500")])
def test_perplexities_are_shown_in_plain_numbers(first, last, shown) -> None:
    entries = [{"epoch": n, "valid_perplexity": value} for n, value in ((1, first), (2, last))]
    ticks = re.findall(r"<!-- (.*?) -->", draw_curves(entries))
    assert shown in ticks
    assert not [tick for tick in ticks if "10^" in tick]


def test_texts_are_escaped() -> None:
    page = make_page("<script>alert(1)</script>", html_table(["a"], [["<b>&</b>"]]))
    assert "<script>" not in page
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in page


def test_an_unfinished_run_has_no_report(tmp_path) -> None:
    with pytest.raises(RunError, match="no finished run"):
        write_run_page(tmp_path)


def summary(kind: str, **more) -> Summary:
    """A summary with the perplexities 141.2 and ∞."""
    values = {"tokens": 10, "lines": 2, "vocabulary": 10, "unk_share": 0.0, "protocol": "<all>"}
    valid = Perplexity(perplexity=141.2, perplexity_reset=142.0, bits_per_word=7.1, nats=49.5, **values)
    return Summary(
        recipe=make_recipe({"corpus": {"name": "<ptb>"}, "model": {"kind": kind}}),
        corpus=Source(name="<ptb>", fingerprint="ab" * 32, vocabulary=10, train_tokens=100),
        parameters=1000,
        seconds=1.5,
        valid=valid,
        test=replace(valid, perplexity=math.inf),
        versions={"tslm": "0"},
        **more,
    )


def test_a_report_shows_perplexities_and_recipe(tmp_path) -> None:
    training = Training(epochs=2, best_epoch=1, tokens_per_second=10.0, threads=2)
    write_summary(tmp_path, summary("recurrent", training=training))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    page = write_run_page(tmp_path).read_text()
    for text in ("141.20", "∞", "&lt;ptb&gt;", "&lt;all&gt;", "<svg", "2, the best was 1"):
        assert text in page
    assert "kind = &quot;recurrent&quot;" in page


def test_what_was_not_measured_is_said(tmp_path, capsys) -> None:
    imported = replace(summary("unigram"), valid=None, test=None, seconds=None)
    assert "Not measured" in make_run(imported, [])
    assert "training time" not in make_run(imported, [])
    print_summary(imported)
    assert capsys.readouterr().out == "1,000 parameters, corpus abababababab\n"
