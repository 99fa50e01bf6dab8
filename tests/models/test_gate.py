from __future__ import annotations

import math
import shutil
from dataclasses import fields, replace

import numpy as np
import pytest

import tslm
from tslm.errors import RunError, TslmError
from tslm.inference.interpolate import as_part
from tslm.models.base import HasVectors
from tslm.models.cached import CachedConfig, CachedModel
from tslm.models.gate import Gate, GatedConfig, GatedMixture, even_gate
from tslm.models.ngram.backoff import LEAST_WEIGHT, BackoffModel
from tslm.models.parts import Part


def mixture(parts: list[Part], sees: str) -> GatedMixture:
    """A gate of random weights: what it says changes much from word to word."""
    config = GatedConfig(parts=len(parts), sees=sees, hidden=7)
    shape, random = even_gate(config, parts), np.random.default_rng(1)
    arrays = {
        field.name: np.abs(random.normal(size=getattr(shape, field.name).shape)) + 0.2
        if field.name == "spread_F"
        else random.normal(size=getattr(shape, field.name).shape)
        for field in fields(Gate)
    }
    return GatedMixture(config, parts, Gate(**arrays))


@pytest.fixture(scope="module")
def parts(runs) -> dict[str, Part]:
    counted, dense = as_part(tslm.open_run(runs["kn"])), as_part(tslm.open_run(runs["gated"]))
    config = CachedConfig(size=6, weight=0.3, sharpness=4.0)
    return {"kn": counted, "dense": dense, "cached": Part(CachedModel(config, dense), config)}


CASES = [
    (("kn", "dense"), "counts"),
    (("kn", "dense"), "state"),
    (("dense", "kn"), "both"),
    (("kn", "cached"), "counts"),
    (("kn", "dense", "cached"), "both"),
]


@pytest.fixture(params=CASES, ids=lambda case: "+".join(case[0]) + "-" + case[1])
def model(request, parts) -> GatedMixture:
    names, sees = request.param
    return mixture([parts[name] for name in names], sees)


def known_of(model, words: list[int], sees: str) -> list[float]:
    """What a gate may know of a part after some words, each number from its definition."""
    if isinstance(model, BackoffModel) and sees != "state":
        trie, eos = model.table.trie, model.vocabulary.eos_id
        line = [trie.vocabulary_size]
        for word in words:
            line = [trie.vocabulary_size] if word == eos else [*line, word]
        found = []
        for length in range(1, trie.order):
            history = line[-length:] if length <= len(line) else None
            node = 0
            for word in history or ():
                children = range(int(trie.first_children[node]), int(trie.first_children[node + 1]))
                node = next(
                    (child for child in children if trie.keys[child] % (len(model.vocabulary) + 1) == word),
                    -1,
                )
                if node < 0 or node >= trie.context_count:
                    break
            if history is None or node < 0:
                found += [0.0, 0.0, 0.0]
            else:
                followers = int(trie.first_children[node + 1] - trie.first_children[node])
                found += [
                    1.0,
                    max(LEAST_WEIGHT, float(model.table.log_weight[node])),
                    math.log(1 + followers),
                ]
        return found
    if isinstance(model, CachedModel) and sees != "state":
        base, keys, state = model.part.model, [], model.part.model.start(1)
        for word in words:
            keys.append(base.vectors(state)[0].astype(float))
            _, state = base.score(np.array([[word]]), state)
        z = base.vectors(state)[0].astype(float)
        weights = [math.exp(model.config.sharpness * float(z @ key)) for key in keys[-model.config.size :]]
        return [math.log(sum(weights) / len(weights)) if weights else 0.0]
    if isinstance(model, HasVectors) and sees != "counts":
        _, state = (
            model.score(np.array([words], dtype=np.int64), model.start(1))
            if words
            else (None, model.start(1))
        )
        return model.vectors(state)[0].tolist()
    return []


def slowly(model: GatedMixture, words: list[int]) -> list[float]:
    """Σ_k softmax(B tanh(A x + a) + b)_k p_k(w), number by number."""
    gate, found = model.gate, []
    for place, word in enumerate(words):
        before = words[:place]
        x = [value for part in model.parts for value in known_of(part.model, before, model.config.sees)]
        x = [
            (value - mean) / spread for value, mean, spread in zip(x, gate.mean_F, gate.spread_F, strict=True)
        ]
        hidden = [
            math.tanh(sum(a * value for a, value in zip(row, x, strict=True)) + bias)
            for row, bias in zip(gate.inner_HF, gate.inner_bias_H, strict=True)
        ]
        logits = [
            sum(b * value for b, value in zip(row, hidden, strict=True)) + bias
            for row, bias in zip(gate.outer_KH, gate.outer_bias_K, strict=True)
        ]
        total = sum(math.exp(logit) for logit in logits)
        p = 0.0
        for logit, part in zip(logits, model.parts, strict=True):
            state = part.model.start(1)
            if before:
                _, state = part.model.score(np.array([before]), state)
            p += math.exp(logit) / total * math.exp(float(part.model.predict(state)[0, word]))
        found.append(math.log(p))
    return found


def test_it_is_the_formula_whatever_the_windows(model) -> None:
    eos, random = model.vocabulary.eos_id, np.random.default_rng(2)
    words = random.integers(0, len(model.vocabulary), 24)
    words[[5, 6, 15]] = eos
    words[16:22] = model.vocabulary.encode_line("the cat sat on the mat")[:6]
    expected = slowly(model, words.tolist())
    whole, _ = model.score(words[None], model.start(1))
    assert whole[0] == pytest.approx(expected, rel=1e-4)
    state, found = model.start(1), []
    for piece in np.split(words, [1, 7, 16]):
        scores, state = model.score(piece[None], state)
        found += scores[0].tolist()
    assert found == pytest.approx(whole[0].tolist(), rel=1e-4)


def test_it_predicts_what_it_scores_and_sums_to_one(model) -> None:
    eos = model.vocabulary.eos_id
    tokens = np.array([[1, 2, 3, eos, 2, 3, 1, 2], [3, 3, 3, 3, 1, 1, 1, eos]])
    state = model.start(2)
    for column in tokens.T:
        log_BV = model.predict(state)
        assert np.exp(log_BV).sum(1) == pytest.approx(1, abs=1e-5)
        for word in (0, 2, eos):
            scores, _ = model.score(np.full((2, 1), word), state)
            np.testing.assert_allclose(scores[:, 0], log_BV[:, word], rtol=1e-4)
        _, state = model.score(column[:, None], state)


def test_it_is_saved_and_read_again(model, tmp_path) -> None:
    model.save(tmp_path)
    again = GatedMixture.load(tmp_path, model.config, model.vocabulary)
    tokens = np.array([[1, 2, 3, 1, 2]])
    np.testing.assert_array_equal(
        again.score(tokens, again.start(1))[0], model.score(tokens, model.start(1))[0]
    )
    assert again.parameter_count == model.parameter_count


@pytest.mark.parametrize("name", ["model.safetensors", "parts/1/model.safetensors", "parts/2/model.toml"])
def test_what_is_cut_short_is_refused(parts, tmp_path, name) -> None:
    model = mixture([parts["kn"], parts["dense"]], "counts")
    model.save(tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(RunError):
        GatedMixture.load(tmp_path, model.config, model.vocabulary)


def test_a_gate_that_does_not_fit_its_recipe_is_refused(parts, tmp_path) -> None:
    model = mixture([parts["kn"], parts["dense"]], "counts")
    model.save(tmp_path)
    with pytest.raises(RunError, match="shape"):
        GatedMixture.load(tmp_path, replace(model.config, hidden=8), model.vocabulary)
    shutil.rmtree(tmp_path / "parts" / "2")
    with pytest.raises(RunError):
        GatedMixture.load(tmp_path, model.config, model.vocabulary)


def test_a_gate_with_nothing_to_see_is_refused(parts) -> None:
    with pytest.raises(RunError, match="nothing to see"):
        even_gate(GatedConfig(sees="counts"), [parts["dense"], parts["dense"]])
    with pytest.raises(RunError, match="nothing to see"):
        even_gate(GatedConfig(sees="state"), [parts["kn"], parts["cached"]])
    for settings in ({"parts": 1}, {"hidden": 0}):
        with pytest.raises(TslmError):
            GatedConfig(**settings)
