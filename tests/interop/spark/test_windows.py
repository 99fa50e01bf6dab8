"""What the workers do, without a cluster."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tslm
from tslm.cli import main
from tslm.interop.spark.counting import Job, choose_words
from tslm.interop.spark.windows import PAD, cut_windows
from tslm.models.ngram.smoothed import NgramConfig


@pytest.mark.parametrize("order", [2, 3, 5])
def test_a_window_ends_at_every_token(order: int) -> None:
    eos, begin = 0, 9
    lines = [[3, 4, 5, 3, 4, 5, 0], [0], [3, 0], [3, 4, 0], [3, 0]]
    words_QN, times = cut_windows(np.concatenate(lines).astype(np.int32), order, begin, eos)
    expected: Counter[tuple[int, ...]] = Counter()
    for line in lines:
        padded = [PAD] * (order - 2) + [begin, *line]
        for end in range(order - 1, len(padded)):
            expected[tuple(padded[end - order + 1 : end + 1][::-1])] += 1
    found: Counter[tuple[int, ...]] = Counter()
    for row, number in zip(words_QN.tolist(), times.tolist(), strict=True):
        found[tuple(row)] += number
    assert found == expected
    reaching = words_QN[(words_QN == PAD).any(axis=1)]
    assert len(np.unique(reaching, axis=0)) == len(reaching)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["count", "--text", "x", "--out", "{new}", "--order", "1"], "give 2 to 7"),
        (["count", "--text", "x", "--out", "{new}", "--prune", "0,x"], "not a list of numbers"),
        (["count", "--text", "x", "--out", "s3a://bucket/x"], "file system that all machines share"),
        (["count", "--text", "x", "--out", "{new}", "--conf", "memory=3"], "spark.key=value"),
        (["train", "--counts", "{new}"], "counts.json is missing"),
        (["train"], "give a recipe"),
        (["train", "asv/kn5", "--counts", "x"], "give a recipe"),
        (["train", "--counts", "x", "--threads", "2"], "only --out and --json"),
        (["score", "run", "x", "--engine", "spark"], "give FILE and --out"),
        (["score", "run", "x", "--engine", "spark", "--out", "{new}", "--tokens"], "whole lines"),
        (["score", "run", "x", "--out", "{new}"], "goes with --engine spark"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, message, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([argument.format(new=tmp_path / "new") for argument in arguments]) == 2
    error = capsys.readouterr().err
    if "pip install 'tslm[spark]'" not in error:  # which is missing comes first
        assert message in error
    assert error.count("\n") == 1


def test_the_words_may_be_those_of_a_run(tmp_path) -> None:
    (tmp_path / "text").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / "text" / f"{split}.txt").write_text("a b a b c\nb a b a d\na a b b\n" * 9)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'[corpus]\npath = ["{tmp_path / "text"}"]\ntokeniser = "words"\n'
        '[model]\nkind = "ngram"\norder = 2\ndiscount_fallback = [0.5]\n'
    )
    tslm.train(recipe, tmp_path / "run")
    job = Job(text=("x",), model=NgramConfig(order=2), like=str(tmp_path / "run"))
    rule, vocabulary = choose_words(job, lines=None)
    assert vocabulary == tslm.load(tmp_path / "run").vocabulary
    assert rule.kind == "words"
