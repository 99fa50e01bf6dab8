from __future__ import annotations

from pathlib import Path

import pytest

from tslm.paper.findings import (
    SECTIONS,
    judge_length,
    judge_pair,
    judge_paper,
    judge_rank,
    judge_rank_alone,
    make_claims,
)


@pytest.mark.parametrize(
    ("tslm", "lstm", "verdict"),
    [
        ([90.0, 91.0], [92.0, 93.0], "holds"),
        ([90.0, 92.5], [92.0, 93.0], "the seeds overlap"),
        ([94.0, 95.0], [92.0, 93.0], "does not hold"),
        ([90.0], [92.0, 93.0], "holds, one seed"),
        ([94.0], [92.0], "does not hold, one seed"),
    ],
)
def test_a_row_is_better_only_if_its_worst_seed_is(tslm, lstm, verdict) -> None:
    finding = judge_pair({"tslm": tslm, "lstm": lstm}, "tslm", "lstm", "ptb")
    assert finding.verdict == verdict
    assert finding.claim == "TSLM is better than LSTM"
    row = finding.rows[0]
    assert (row["model"], row["against"]) == ("TSLM", "LSTM")
    assert f"{tslm[0]:.2f}" in row["test"]
    assert f"{lstm[0]:.2f}" in row["its test"]


def test_what_is_not_run_is_open() -> None:
    assert judge_pair({"tslm": [1.0]}, "tslm", "lstm", "ptb").verdict == "open"
    assert judge_paper({}, "tslm", "ptb").verdict == "open"
    assert judge_rank({"tslm": {256: 100.0}}, 256).verdict == "open", "nothing beyond the paper's best"


def test_the_papers_number_is_reached_by_the_mean() -> None:
    assert judge_paper({"tslm": [108.0, 108.1]}, "tslm", "ptb").verdict == "holds"
    assert judge_paper({"tslm": [108.0, 108.4]}, "tslm", "ptb").verdict == "not reached here"
    assert judge_paper({"tslm": [108.0]}, "tslm", "ptb").verdict == "holds, one seed"


def test_saturation_means_no_gain_beyond_the_papers_best() -> None:
    flat, falling = {30: 100.0, 60: 99.5}, {30: 100.0, 60: 95.0}
    assert judge_length({"tslm": flat}, "carried", 30).verdict == "holds"
    assert judge_length({"tslm": falling}, "reset", 30).verdict == "does not hold"
    both = judge_length({"tslm": flat, "rnn": falling}, "reset", 30)
    assert both.verdict == "holds for some cells only"
    assert both.rows[1] == {
        "state": "reset",
        "cell": "RNN",
        "within 1% of its lowest": "from n = 60",
        "n = 30 → 60": "-5.0%",
    }
    worse = judge_rank({"tslm": {128: 99.0, 256: 100.0, 512: 103.0}}, 256)
    assert worse.verdict == "holds"
    assert list(worse.rows[0].values())[2:] == ["from r = 128", "+3.0%"], (
        "flat before the paper's best, and said so"
    )
    alone = judge_rank_alone({"tslm": {128: 120.0, 256: 100.0, 512: 90.0}}, 256)
    assert (alone.claim, alone.verdict) == ("r = m is enough, m = 256 given", "does not hold")


def test_claims_without_runs_are_listed_once(tmp_path) -> None:
    parts = make_claims(tmp_path)
    text = parts.pop("claims")
    assert text.count("| **open** |") == len(text.splitlines()) - 2
    assert "wikitext-2" not in text
    assert set(parts) == set(SECTIONS)
    assert parts["tslm-rnn"] == "“TSLM is better than RNN”: open on ptb."


def test_a_section_begins_with_a_sentence_and_has_one_small_table() -> None:
    for section, part in make_claims(Path(__file__).parents[2] / "results").items():
        if section != "claims":
            sentence, _, table = part.partition("\n\n")
            assert sentence.endswith("."), section
            assert table.startswith("| corpus |"), section
