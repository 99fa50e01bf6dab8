"""Words drawn along the back-off structure against the distribution written out."""

from __future__ import annotations

import numpy as np
import pytest
from tests.models.ngram.test_blanks import EOS, WORDS, V, small_model

from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import NumberError
from tslm.inference.generate import Generation, Sampling
from tslm.models.base import DrawsWords
from tslm.models.ngram import backoff
from tslm.models.ngram.backoff import BackoffModel
from tslm.models.ngram.smoothed import NgramConfig, NgramModel
from tslm.models.ngram.smoothing import BackoffTable

COUNT = 4_000


def check_draws(
    model: BackoffModel, states: np.ndarray, exclude: tuple[int, ...] = (), count: int = COUNT
) -> None:
    """Draw often after each state; the shares, ln p and the states after must be those of ``predict`` and ``score``."""
    uniform = np.random.default_rng(1).random(count)
    log_SV = model.predict(states)
    for state, log_V in zip(states, log_SV, strict=True):
        many = np.full(count, state)
        words, scores, after = model.draw(many, uniform, exclude)
        probability = np.exp(log_V)
        probability[list(exclude)] = 0
        probability /= probability.sum()
        shares = np.bincount(words, minlength=len(log_V)) / count
        assert (np.abs(shares - probability) < 5 * np.sqrt(probability / count) + 3 / count).all()
        assert not (shares[probability == 0] > 0).any()
        np.testing.assert_allclose(scores, log_V[words], rtol=1e-12)
        _, expected = model.score(words[:, None], many)
        assert np.array_equal(after, expected)


@pytest.mark.parametrize("smoothing", ["kneser-ney", "add-k", "none"])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_small_models_after_every_history(order: int, smoothing: str) -> None:
    model = small_model(order, smoothing, seed=order)
    assert isinstance(model, DrawsWords)
    contexts = model.table.trie.context_count
    check_draws(model, np.arange(0, contexts, max(1, contexts // 12)))


def test_a_model_that_does_not_sum_to_one_is_drawn_from_in_proportion() -> None:
    generator = np.random.default_rng(2)
    table = small_model(3).table
    wild = BackoffTable(
        trie=table.trie,
        log_probability=table.log_probability - generator.exponential(1, len(table.log_probability)),
        log_weight=table.log_weight - generator.exponential(1, len(table.log_weight)),
    )
    check_draws(BackoffModel(wild, Vocabulary(WORDS)), np.arange(wild.trie.context_count)[::5])


def test_excluded_words_leave_their_share_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(3)
    states = np.arange(model.table.trie.context_count)[::5]
    check_draws(model, states, exclude=(EOS, 1))
    check_draws(model, states, exclude=(EOS, 1, 2, 3), count=2000)
    monkeypatch.setattr(backoff, "LARGEST", 0)
    check_draws(model, states, exclude=(EOS, 1), count=2000)
    with pytest.raises(NumberError, match="no word is possible"):
        model.draw(states, np.full(len(states), 0.5), tuple(range(V)))


def test_what_is_nearly_impossible_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all likely words excluded, drawing again gives up and the distribution is inverted."""
    monkeypatch.setattr("tslm.models.ngram.drawing.PATIENCE", 1)
    model = small_model(3)
    check_draws(model, model.start(1), exclude=(EOS, 1, 2, 3), count=2000)


def test_the_ends_of_the_unit_interval_are_possible_words() -> None:
    for smoothing in ("kneser-ney", "none"):
        model = small_model(3, smoothing)
        states = np.arange(model.table.trie.context_count)
        for number in (0.0, np.nextafter(1.0, 0.0)):
            words, scores, _ = model.draw(states, np.full(len(states), number))
            assert (scores > -np.inf).all()
            assert ((words >= 0) & (words < V)).all()


def test_a_draw_depends_on_its_own_number_alone() -> None:
    model = small_model(4)
    uniform = np.random.default_rng(3).random(50)
    states = np.arange(50) % model.table.trie.context_count
    together, _, _ = model.draw(states, uniform)
    alone = [int(model.draw(states[row : row + 1], uniform[row : row + 1])[0][0]) for row in range(50)]
    assert together.tolist() == alone


def test_generation_uses_it_and_stays_reproducible() -> None:
    model = small_model(3)

    def texts(number: int, **options) -> list[str]:
        generation = Generation(
            model, "a", number=number, length=200, stop=(), sampling=Sampling(seed=4, **options)
        )
        samples: list[list[str]] = [[] for _ in range(number)]
        for draws in generation:
            for draw in draws:
                samples[draw.sample].append(draw.word)
        return [" ".join(words) for words in samples]

    assert texts(3)[0] == texts(1)[0]
    assert texts(3) == texts(3)
    assert "b" in texts(1)[0]
    assert "b" not in texts(1, exclude=("b",))[0].split()
    # Sixteen samples of 200 words have the share of each word that one distribution after another gives them.
    plain = np.array([" ".join(texts(16)).split().count(word) for word in WORDS])
    twin = np.array([" ".join(texts(16, top_k=V)).split().count(word) for word in WORDS])
    assert (np.abs(plain - twin) < 6 * np.sqrt(twin + 1)).all()


@pytest.mark.ptb
def test_penn_treebank(ptb: Corpus) -> None:
    model = NgramModel.fit(NgramConfig(order=3), ptb)
    _, states = model.score(ptb.splits["test"][None, :40].astype(np.int64), model.start(1))
    lines = np.stack([ptb.splits["test"][start : start + 4] for start in range(0, 60, 10)]).astype(np.int64)
    _, more = model.score(lines, model.start(len(lines)))
    check_draws(model, np.concatenate([states, more, model.start(1)]), count=20_000)
