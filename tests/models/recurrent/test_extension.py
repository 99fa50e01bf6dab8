from __future__ import annotations

import numpy as np
import pytest

import tslm
from tslm.corpus.vocabulary import Vocabulary
from tslm.models.recurrent import extension
from tslm.models.recurrent.extension import extend_model

TOKENS = np.array([[1, 2, 3, 1, 2]])


@pytest.mark.parametrize("start", ["unknown", "rare"])
@pytest.mark.parametrize("name", ["gated", "lstm"])
def test_old_words_keep_their_odds_and_new_ones_share_those_of_unk(runs, monkeypatch, start, name) -> None:
    monkeypatch.setattr(extension, "NOISE", 0.0)
    model = tslm.load(runs[name])
    known, shares = len(model.vocabulary), np.array([0.5, 0.2])
    vocabulary = Vocabulary((*model.vocabulary.words, "zebra", "quagga"))
    wider = extend_model(model, vocabulary, shares, start=start)
    _, before = model.score(TOKENS, model.start(1))
    _, after = wider.score(TOKENS, wider.start(1))
    old_V, new_V = model.predict(before)[0], wider.predict(after)[0]
    assert np.exp(new_V).sum() == pytest.approx(1, abs=1e-5)
    shift = new_V[:known] - old_V
    np.testing.assert_allclose(shift, shift[0], atol=1e-5)
    if start == "unknown":
        odds = np.exp(new_V[known:] - new_V[model.vocabulary.unk_id])
        np.testing.assert_allclose(odds, shares, rtol=1e-4)


def test_new_words_do_not_start_all_alike_and_the_same_seed_gives_the_same(runs) -> None:
    model = tslm.load(runs["gated"])
    vocabulary = Vocabulary((*model.vocabulary.words, "zebra", "quagga"))
    first, again, other = (
        extend_model(model, vocabulary, np.array([0.5, 0.5]), seed=seed).embedding[-2:].detach().numpy()
        for seed in (1, 1, 2)
    )
    assert not np.allclose(first[0], first[1])
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
