from __future__ import annotations

import json
import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

import tslm
from tslm.cli import main
from tslm.corpus.lines import read_split
from tslm.corpus.rule import TextRule
from tslm.corpus.sources import CorpusConfig
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import TslmError
from tslm.inference.adapt import _Texts, choose_words
from tslm.training.watcher import Watcher

RECIPE = """\
[corpus]
name = "first"
path = ["{text}"]
tokeniser = "words"
lower = true

[model]
kind = "recurrent"
rank = 24
embedding = 24

[model.cell]
kind = "gated"

[train]
epochs = 2
batch = 16
window = 20
learning_rate = 0.01
threads = 1

[objective]
frequent = 40
sampled = 40
"""


@pytest.fixture(scope="module")
def books(tmp_path_factory) -> tuple[Path, Path]:
    """A model of some verses of the embedded corpus, and verses of others: names and matters are different ones."""
    folder = tmp_path_factory.mktemp("books")
    verses = list(islice(read_split(CorpusConfig(name="asv"), "train"), 24_000))
    (folder / "first.txt").write_text("\n".join(verses[:900]) + "\n")
    (folder / "other.txt").write_text("\n".join(verses[-300:]) + "\n")
    (folder / "recipe.toml").write_text(RECIPE.format(text=folder / "first.txt"))
    tslm.train(folder / "recipe.toml", folder / "run")
    return folder / "run", folder / "other.txt"


def test_it_learns_the_new_text_and_its_words_and_does_not_forget_the_old(books, tmp_path, capsys) -> None:
    run, text = books
    out = tmp_path / "adapted"
    assert main(["adapt", str(run), str(text), "--out", str(out), "--epochs", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((out / "adaptation.json").read_text())
    assert report["words"] > 0
    assert report["new"]["after"] < report["new"]["start"]
    assert report["old"]["after"] < 1.1 * report["old"]["before"]
    opened, before = tslm.open_run(out), tslm.open_run(run)
    known = before.model.vocabulary
    new = opened.vocabulary.words[len(known) :]
    assert len(new) == report["words"]
    assert opened.vocabulary.words[: len(known)] == known.words
    # The run is measured on the corpus that its recipe names; the new words are words of every command.
    assert tslm.evaluate(out, split="valid").perplexity == pytest.approx(report["old"]["after"], rel=1e-6)
    assert opened.summary.valid.perplexity == report["old"]["after"]
    assert tslm.score(out, f"the {new[0]} said")[0].unknown == 0
    assert main(["generate", str(out)]) == 0
    # What was counted from the new lines alone is told too, and both together are better than either.
    assert report["new"]["mixed"] < min(report["new"]["after"], report["new"]["counted"])
    # The same call finds all of it done.
    again = tslm.adapt(run, text, out, epochs=3)
    assert again.new.after == report["new"]["after"]
    assert again.best_epoch == report["best_epoch"]


def test_a_frequent_new_word_is_predicted_well_though_training_drew_words(books, tmp_path) -> None:
    run, text = books
    lines = [f"{line} quoth grommet" for line in text.read_text().splitlines()]
    adapted = tslm.adapt(run, lines, tmp_path / "adapted", epochs=4, rate=1.0, mix=tmp_path / "mixed")
    model = tslm.load(adapted.folder)
    assert model.vocabulary.words.index("grommet") >= len(tslm.load(run).vocabulary)
    for folder in (adapted.folder, tmp_path / "mixed"):
        (scored,) = tslm.score(folder, lines[9])  # a line that it has not learnt from
        assert scored.words[-2] == "grommet"
        assert scored.log_probabilities[-2] > math.log(0.5)
    assert tslm.open_run(tmp_path / "mixed").summary.parts == ("recurrent", "ngram")


class _KilledError(Exception):
    pass


class _Killing(Watcher):
    """Ends a run in the middle of its second epoch."""

    def step(self, position, total, measured) -> None:
        if position.epoch == 1 and position.window == 3:
            raise _KilledError


def test_what_was_killed_goes_on_to_the_same_end(books, tmp_path) -> None:
    run, text = books
    whole = tslm.adapt(run, text, tmp_path / "whole", epochs=3)
    with pytest.raises(_KilledError):
        tslm.adapt(run, text, tmp_path / "killed", epochs=3, watcher=_Killing())
    again = tslm.adapt(run, text, tmp_path / "killed", epochs=3)
    assert (again.new, again.old, again.best_epoch) == (whole.new, whole.old, whole.best_epoch)
    pairs = zip(tslm.load(again.folder).parameters(), tslm.load(whole.folder).parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def test_each_epoch_reads_other_words_of_the_old_text() -> None:
    new, old = np.array([7, 8], np.int32), np.arange(100, 110, dtype=np.int32)
    texts = _Texts(new, old, 3, 4)
    read = [texts(epoch).tolist() for epoch in range(4)]
    assert read == [[7, 8, *range(100 + 3 * epoch, 103 + 3 * epoch)] for epoch in range(3)] + [
        [7, 8, 109, 100, 101]
    ]
    assert _Texts(new, old, 30, 4)(1).tolist() == [7, 8, *range(100, 110)]
    assert _Texts(new, old, 0, 4)(3).tolist() == [7, 8]


def test_without_old_text_more_is_forgotten(books, tmp_path) -> None:
    run, text = books
    lines = text.read_text().splitlines()
    kept = tslm.adapt(run, lines, tmp_path / "kept", epochs=2, rate=2.0)
    left = tslm.adapt(run, lines, tmp_path / "left", epochs=2, rate=2.0, old=0.0, min_count=1)
    assert left.old_tokens == 0
    assert left.words > kept.words
    assert left.old.after / left.old.start > kept.old.after / kept.old.start
    assert "new words" in repr(left)


def test_new_words_are_those_that_are_frequent_enough() -> None:
    known = Vocabulary(("a", "<eos>", "<unk>"))
    lines = [["a", "b", "b", "c", "<eos>"], ["b", "d", "d", "<eos>"]]
    vocabulary, shares = choose_words(known, TextRule(), lines, 2)
    assert vocabulary.words == ("a", "<eos>", "<unk>", "b", "d")
    assert shares.tolist() == [3 / 6, 2 / 6]
    # Where nothing stands for unknown words yet, something has to.
    vocabulary, shares = choose_words(Vocabulary(("a", "<eos>")), TextRule(), lines, 3)
    assert vocabulary.words == ("a", "<eos>", "b", "<unk>")
    assert shares.tolist() == [3 / 6, 3 / 6]


def test_what_cannot_be_adapted_is_refused_with_a_way_out(books, runs, tmp_path, capsys) -> None:
    run, text = books
    assert main(["adapt", str(runs["kn"]), str(text), "--out", str(tmp_path / "x")]) == 2
    assert "only recurrent models" in capsys.readouterr().err
    assert main(["adapt", str(run), str(text), "--out", str(run)]) == 2
    assert "is the run itself" in capsys.readouterr().err
    with pytest.raises(TslmError, match="20 or more"):
        tslm.adapt(run, "one line\nand another", tmp_path / "y")
    with pytest.raises(TslmError, match="epochs = 0"):
        tslm.adapt(run, text, tmp_path / "z", epochs=0)
    assert not (tmp_path / "y").exists()
