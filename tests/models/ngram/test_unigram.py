from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from tslm.evaluation.perplexity import evaluate
from tslm.models.ngram.unigram import Uniform, UniformConfig, Unigram, UnigramConfig


def test_the_perplexity_of_knowing_nothing_is_the_size_of_the_vocabulary(synthetic) -> None:
    model = Uniform.fit(UniformConfig(), synthetic)
    assert evaluate(model, synthetic.splits["test"]).perplexity == pytest.approx(len(synthetic.vocabulary))


def test_distribution_is_the_counts(synthetic) -> None:
    model = Unigram.fit(UnigramConfig(), synthetic)
    counts = np.bincount(synthetic.splits["train"], minlength=len(synthetic.vocabulary))
    np.testing.assert_allclose(np.exp(model.predict(model.start(2)))[1], counts / counts.sum())


def test_saved_and_loaded_models_agree(synthetic, tmp_path) -> None:
    model = Unigram.fit(UnigramConfig(add=0.5), synthetic)
    model.save(tmp_path)
    again = Unigram.load(tmp_path, UnigramConfig(), synthetic.vocabulary)
    assert np.array_equal(again.log_probability_V, model.log_probability_V)


@pytest.mark.ptb
def test_ptb_perplexity_equals_an_independent_computation(ptb) -> None:
    words = {
        split: " ".join(f"{' '.join(ptb.vocabulary.decode(ids))}" for ids in [ptb.splits[split]]).split()
        for split in ("train", "test")
    }
    counts = Counter(words["train"])
    total = sum(counts.values())
    nats = -sum(math.log(counts[word] / total) for word in words["test"])
    expected = math.exp(nats / len(words["test"]))
    assert len(words["test"]) == 82_430
    model = Unigram.fit(UnigramConfig(), ptb)
    assert evaluate(model, ptb.splits["test"]).perplexity == pytest.approx(expected, rel=1e-9)
