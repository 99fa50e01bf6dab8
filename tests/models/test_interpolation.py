from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RecipeError, RunError, UnsupportedError
from tslm.models.interpolation import Interpolation, InterpolationConfig, Part
from tslm.models.recurrent.model import RecurrentConfig, RecurrentModel

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


TOKENS = torch.tensor([[0, 2, 3, 1, 4], [2, 2, 0, 4, 1]])


@pytest.mark.parametrize("form", ["linear", "log-linear"])
def test_equals_the_formula_word_by_word(form) -> None:
    mixed = mix(form)
    scores_BT, end = mixed.score(TOKENS, mixed.start(2))
    states = [entry.model.start(2) for entry in mixed.parts]
    for t in range(TOKENS.shape[1]):
        first, second = (
            entry.model.predict(state).exp() for entry, state in zip(mixed.parts, states, strict=True)
        )
        expected = 0.3 * first + 0.7 * second if form == "linear" else first**0.3 * second**0.7
        expected = expected / expected.sum(1, keepdim=True)
        torch.testing.assert_close(scores_BT[:, t].exp(), expected.gather(1, TOKENS[:, t : t + 1]).squeeze(1))
        states = [
            entry.model.score(TOKENS[:, t : t + 1], state)[1]
            for entry, state in zip(mixed.parts, states, strict=True)
        ]
    torch.testing.assert_close(mixed.predict(end).exp().sum(1), torch.ones(2, dtype=torch.float64))


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
    torch.testing.assert_close(other.score(TOKENS, other.start(2))[0], plain.score(TOKENS, plain.start(2))[0])
    torch.testing.assert_close(other.predict(other.start(2)), plain.predict(plain.start(2)))


def test_impossible_words_are_mixed_without_nan() -> None:
    for form, expected in (("linear", np.log(0.7)), ("log-linear", -np.inf)):
        mixed = mix(form)
        log_KBV = torch.log(torch.tensor([[[0.0, 1.0]], [[1.0, 0.0]]], dtype=torch.float64))
        assert float(mixed.mix(log_KBV)[0, 0]) == pytest.approx(expected)
    silent = mix("log-linear", (0.0, 1.0))
    log_KBV = torch.log(torch.tensor([[[0.0, 1.0]], [[0.4, 0.6]]], dtype=torch.float64))
    torch.testing.assert_close(silent.mix(log_KBV).exp(), log_KBV[1].exp())


@pytest.mark.parametrize("form", ["linear", "log-linear"])
def test_is_saved_whole(tmp_path, form) -> None:
    mixed = Interpolation(
        InterpolationConfig(form=form, weights=(0.25, 0.75)),
        [Part(entry.model.float(), entry.config) for entry in (part(1), part(2))],  # type: ignore[attr-defined]
    )
    mixed.save(tmp_path)
    again = Interpolation.load(tmp_path, mixed.config, mixed.vocabulary)
    torch.testing.assert_close(again.score(TOKENS, again.start(2))[0], mixed.score(TOKENS, mixed.start(2))[0])
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


def test_parts_that_do_not_fit_are_refused(synthetic) -> None:
    with pytest.raises(RunError, match="different words"):
        mix("linear", words=("a", "<eos>", "b", "d", "<unk>"))
    with pytest.raises(RunError, match="3 weights for 2"):
        mix("linear", (0.2, 0.3, 0.5))
    with pytest.raises(UnsupportedError, match="tslm compare"):
        Interpolation.fit(InterpolationConfig(weights=(0.5, 0.5)), synthetic)
