from __future__ import annotations

import math

import numpy as np
import pytest

import tslm
from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.corpus.words import Words
from tslm.errors import CorpusError
from tslm.inference.fill import read_pattern
from tslm.models.ngram.smoothed import NgramConfig, NgramModel

LINES = ["The cat, the dog.", "The dog, the cat.", "Is the cat the dog?", "The dog is the dog!"]


def small_model(**options) -> NgramModel:
    """A model whose rule splits punctuation off, a question mark too."""
    rule = Words.make(lower=True)
    words = [word for line in LINES * 5 for word in (*rule.split(line), "<eos>")]
    vocabulary = Vocabulary(tuple(dict.fromkeys(words)))
    ids = vocabulary.encode(words)
    corpus = Corpus("small", vocabulary, {"train": ids, "valid": ids, "test": ids}, "0", rule)
    return NgramModel.fit(NgramConfig(discount_fallback=(0.5,), **options), corpus)


def test_a_pattern_is_read_by_the_models_rule() -> None:
    model = small_model(order=3)
    assert read_pattern(model, "The ?, the ?.").words == ("the", None, ",", "the", None, ".")
    assert read_pattern(model, r"Is the ? the dog\? \?").words == ("is", "the", None, "the", "dog", "?", "?")
    assert read_pattern(model, "The _ the dog?", blank="_").words == ("the", None, "the", "dog", "?")
    assert read_pattern(model, "(?/?)’s dog? !?").words == (
        "(",
        None,
        "/",
        None,
        ")",
        "’s",
        "dog",
        "?",
        "!",
        None,
    )
    read = read_pattern(model, "The Zebra, the ?.")
    assert read.unknown == ("zebra",)
    assert read.ids.count(None) == 1
    for wrong in ("", "? ?"):
        with pytest.raises(CorpusError, match="the sign of a blank is"):
            read_pattern(model, "the ?", wrong)


def test_fillings_are_written_as_people_do() -> None:
    model = small_model(order=3)
    found = tslm.fill(model, "The ?, the ?.", top=4, samples=3)
    assert {entry.text for entry in found.fillings} >= {"the cat, the dog.", "the dog, the cat."}
    assert all(text.startswith("the ") and text.endswith(".") for text in found.samples)
    assert list(found.as_json()["samples"]) == list(found.samples)
    assert "samples" not in tslm.fill(model, "The ?").as_json()
    assert tslm.fill(model, "The ?, the Zebra.").fillings[0].text.endswith("the <unk>.")
    without = tslm.fill(model, "The ?, the dog.", exclude=["Cat"])
    assert "cat" not in {entry.word for entry in without.blanks[0].best}


def test_the_best_words_are_those_of_the_posterior() -> None:
    model = small_model(order=2)
    found = tslm.fill(model, "The ? is the ?!", top=4)
    filling = model.fill(read_pattern(model, "The ? is the ?!").ids)
    assert found.log_probability == filling.log_probability
    for blank, row in zip(found.blanks, filling.posteriors, strict=True):
        order = np.argsort(-row, kind="stable")[:4]
        assert [entry.word for entry in blank.best] == [model.vocabulary.words[place] for place in order]
        assert [entry.probability for entry in blank.best] == row[order].tolist()


def test_an_impossible_pattern_is_said_to_be_one() -> None:
    model = small_model(order=2, smoothing="none")
    found = tslm.fill(model, "! ! ?")
    assert found.log_probability == -math.inf
    assert (found.blanks, found.fillings) == ((), ())
    assert found.as_json()["log_probability"] is None
    assert "impossible" in repr(found)
