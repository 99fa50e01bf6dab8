from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RecipeError, RunError
from tslm.models.interpolation import Interpolation, InterpolationConfig
from tslm.models.parts import Part
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.model import RecurrentModel

WORDS = ("a", "<eos>", "b", "c", "<unk>")


def part(seed: int, words=WORDS) -> Part:
    torch.manual_seed(seed)
    config = RecurrentConfig(rank=5, embedding=5)
    model = RecurrentModel(config, Vocabulary(words)).double().eval()
    with torch.no_grad():
        model.embedding.mul_(3)
    return Part(model, config)


def mix(form, weights=(0.3, 0.7), words=WORDS) -> Interpolation:
    return Interpolation(InterpolationConfig(form=form, weights=weights), [part(1), part(2, words)])


TOKENS = np.array([[0, 2, 3, 1, 4], [2, 2, 0, 4, 1]])


@pytest.mark.parametrize("form", ["linear", "log-linear"])
def test_equals_the_formula_word_by_word(form) -> None:
    mixed = mix(form)
    scores_BT, end = mixed.score(TOKENS, mixed.start(2))
    states = [entry.model.start(2) for entry in mixed.parts]
    for t in range(TOKENS.shape[1]):
        first, second = (
            np.exp(entry.model.predict(state)) for entry, state in zip(mixed.parts, states, strict=True)
        )
        expected = 0.3 * first + 0.7 * second if form == "linear" else first**0.3 * second**0.7
        expected = expected / expected.sum(1, keepdims=True)
        np.testing.assert_allclose(np.exp(scores_BT[:, t]), expected[np.arange(2), TOKENS[:, t]], rtol=1e-7)
        states = [
            entry.model.score(TOKENS[:, t : t + 1], state)[1]
            for entry, state in zip(mixed.parts, states, strict=True)
        ]
    np.testing.assert_allclose(np.exp(mixed.predict(end)).sum(1), 1, rtol=1e-7)


def test_parts_may_number_the_same_words_differently() -> None:
    order = [3, 0, 4, 1, 2]
    plain = mix("linear")
    shuffled = part(2)
    torch.manual_seed(2)
    model = (
        RecurrentModel(shuffled.config, Vocabulary(tuple(WORDS[place] for place in order))).double().eval()
    )
    with torch.no_grad():
        model.load_state_dict(shuffled.model.state_dict())
        model.embedding.copy_(shuffled.model.embedding[order])
        model.bias.copy_(shuffled.model.bias[order])
    other = Interpolation(plain.config, [part(1), Part(model, shuffled.config)])
    np.testing.assert_allclose(
        other.score(TOKENS, other.start(2))[0],
        plain.score(TOKENS, plain.start(2))[0],
        rtol=1e-7,
        equal_nan=False,
    )
    np.testing.assert_allclose(
        other.predict(other.start(2)), plain.predict(plain.start(2)), rtol=1e-7, equal_nan=False
    )


def test_impossible_words_are_mixed_without_nan() -> None:
    for form, expected in (("linear", np.log(0.7)), ("log-linear", -np.inf)):
        mixed = mix(form)
        log_KBV = np.array([[[-np.inf, 0.0]], [[0.0, -np.inf]]])
        assert float(mixed.mix(log_KBV)[0, 0]) == pytest.approx(expected)
    silent = mix("log-linear", (0.0, 1.0))
    log_KBV = np.array([[[-np.inf, 0.0]], [[np.log(0.4), np.log(0.6)]]])
    np.testing.assert_allclose(np.exp(silent.mix(log_KBV)), np.exp(log_KBV[1]), rtol=1e-7)


@pytest.mark.parametrize("form", ["linear", "log-linear"])
def test_is_saved_whole(tmp_path, form) -> None:
    mixed = Interpolation(
        InterpolationConfig(form=form, weights=(0.25, 0.75)),
        [Part(entry.model.float(), entry.config) for entry in (part(1), part(2))],  # type: ignore[attr-defined]
    )
    mixed.save(tmp_path)
    again = Interpolation.load(tmp_path, mixed.config, mixed.vocabulary)
    np.testing.assert_allclose(
        again.score(TOKENS, again.start(2))[0],
        mixed.score(TOKENS, mixed.start(2))[0],
        rtol=1e-7,
        equal_nan=False,
    )
    assert again.parameter_count == mixed.parameter_count == 2 * mixed.parts[0].model.parameter_count + 2
    with pytest.raises(RunError, match="its vocabulary"):
        Interpolation.load(tmp_path, mixed.config, Vocabulary(("<eos>", "x")))
    (tmp_path / "parts" / "2" / "model.toml").write_text("kind = 'no such kind'")
    with pytest.raises(RunError, match=r"2/model.toml is damaged"):
        Interpolation.load(tmp_path, mixed.config, mixed.vocabulary)
    shutil.rmtree(tmp_path / "parts" / "2")
    with pytest.raises(RunError, match="cannot read"):
        Interpolation.load(tmp_path, mixed.config, mixed.vocabulary)


@pytest.mark.parametrize(
    ("form", "weights"),
    [("linear", (1.0,)), ("linear", (0.5, 0.6)), ("linear", (-0.5, 1.5)), ("log-linear", (0.0, 0.0))],
)
def test_wrong_weights_are_refused(form, weights) -> None:
    with pytest.raises(RecipeError, match="weights"):
        InterpolationConfig(form=form, weights=weights)


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RunError, match="different words"):
        mix("linear", words=("a", "<eos>", "b", "d", "<unk>"))
    with pytest.raises(RunError, match="3 weights for 2"):
        mix("linear", (0.2, 0.3, 0.5))
