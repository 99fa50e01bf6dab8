from __future__ import annotations

import numpy as np
import pytest

import tslm
from tslm.errors import NumberError
from tslm.inference.generate import Draw, Generation, Sampling, draw_words


@pytest.fixture(scope="module")
def model(runs):
    return tslm.load(runs["tslm"])


def generate(model, prompt, *, number=1, **settings) -> list[list[Draw]]:
    samples: list[list[Draw]] = [[] for _ in range(number)]
    for draws in Generation(model, prompt, number=number, **settings):
        for draw in draws:
            samples[draw.sample].append(draw)
    return samples


def texts(samples) -> list[str]:
    return [" ".join(draw.word for draw in sample) for sample in samples]


def test_the_same_seed_gives_the_same_text_however_many_are_drawn(model) -> None:
    one = texts(generate(model, "the", number=1, length=12, sampling=Sampling(seed=5)))
    four = texts(generate(model, "the", number=4, length=12, sampling=Sampling(seed=5)))
    assert four[0] == one[0]
    assert texts(generate(model, "the", number=4, length=12, sampling=Sampling(seed=5))) == four
    assert len(set(four)) > 1
    assert texts(generate(model, "the", number=4, length=12, sampling=Sampling(seed=6))) != four


def test_temperature_zero_takes_the_best_word_every_time(model) -> None:
    [sample] = generate(model, "the cat", length=8, stop=(), sampling=Sampling(temperature=0.0))
    state = model.start(1)
    _, state = model.score(model.vocabulary.encode(["the", "cat"])[None], state)
    assert len(sample) == 8
    for draw in sample:
        log_probability_V = model.predict(state)[0]
        best = int(log_probability_V.argmax())
        assert draw.word == model.vocabulary.words[best]
        assert draw.log_probability == pytest.approx(float(log_probability_V[best]), rel=1e-5)
        _, state = model.score(np.array([[best]]), state)


def test_words_are_drawn_as_often_as_they_are_probable() -> None:
    log_V = np.array([np.log(0.1), np.log(0.2), -np.inf, np.log(0.7)])
    uniform = (np.arange(10_000) + 0.5) / 10_000
    log_BV = np.broadcast_to(log_V, (10_000, 4))

    def shares(sampling) -> list[float]:
        drawn = draw_words(log_BV, uniform, sampling, np.array([], np.int64))
        return (np.bincount(drawn, minlength=4) / 10_000).tolist()

    assert shares(Sampling()) == pytest.approx([0.1, 0.2, 0.0, 0.7], abs=1e-3)
    cold = np.array([0.1, 0.2, 0.0, 0.7]) ** 2
    assert shares(Sampling(temperature=0.5)) == pytest.approx(cold / cold.sum(), abs=1e-3)
    assert shares(Sampling(top_k=2)) == pytest.approx([0, 2 / 9, 0, 7 / 9], abs=1e-3)
    assert shares(Sampling(top_p=0.7)) == pytest.approx([0, 0, 0, 1], abs=1e-3)
    assert shares(Sampling(top_p=0.71)) == pytest.approx([0, 2 / 9, 0, 7 / 9], abs=1e-3)
    assert shares(Sampling(top_p=0.5, top_k=2)) == pytest.approx([0, 0, 0, 1], abs=1e-3)


def test_a_number_of_almost_one_still_draws_a_possible_word() -> None:
    log_BV = np.array([[np.log(0.5), np.log(0.5), -np.inf]])
    assert draw_words(log_BV, np.array([np.nextafter(1, 0)]), Sampling()).item() in (0, 1)
    with pytest.raises(NumberError, match="no word is possible"):
        draw_words(log_BV, np.array([0.5]), Sampling(), np.array([0, 1]))


def test_samples_end_before_a_stop_and_hold_its_beginning_back(model) -> None:
    [free] = texts(generate(model, "", length=12, stop=(), sampling=Sampling(seed=3)))
    words = free.split()
    stop = " ".join(words[4:6])
    first = next(place for place in range(11) if words[place : place + 2] == words[4:6])
    generation = Generation(model, "", length=12, stop=[stop], sampling=Sampling(seed=3))
    shown = [draw.word for draws in generation for draw in draws]
    assert shown == words[:first]
    assert generation.reasons == ["stop"]
    # A stop that only begins: nothing is lost.
    generation = Generation(model, "", length=12, stop=[f"{words[11]} never"], sampling=Sampling(seed=3))
    assert [draw.word for draws in generation for draw in draws] == words
    assert generation.reasons == ["length"]


def test_streams_word_by_word_and_never_what_is_excluded(model) -> None:
    steps = iter(
        Generation(model, "the", number=3, length=500, stop=(), sampling=Sampling(exclude=("the", "<unk>")))
    )
    first = next(steps)
    assert [draw.sample for draw in first] == [0, 1, 2]
    words = {draw.word for _ in range(30) for draw in next(steps)}
    assert words
    assert not words & {"the", "<unk>"}


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0.0}, {"seed": -1}],
)
def test_wrong_numbers_are_refused(wrong) -> None:
    with pytest.raises(NumberError):
        Sampling(**wrong)


def test_no_sample_and_no_word_are_refused(model) -> None:
    with pytest.raises(NumberError):
        Generation(model, number=0)
    with pytest.raises(NumberError):
        Generation(model, length=0)
