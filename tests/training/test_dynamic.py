from __future__ import annotations

import numpy as np
import pytest
import torch

import tslm
from tslm.errors import TslmError
from tslm.training.dynamic import FLOOR, Dynamic, DynamicConfig


@pytest.fixture
def model(runs):
    return tslm.load(runs["gated"])


@pytest.fixture
def corpus(runs):
    return tslm.open_run(runs["gated"]).open_corpus()


def test_without_steps_it_is_plain_evaluation(model, corpus) -> None:
    ids = corpus.splits["valid"]
    for segment in (1, 7, 10_000):
        reader = Dynamic(model, corpus.splits["train"][:200], segment)
        found = reader.nats(ids, DynamicConfig(rate=0.0, decay=0.0, segment=segment))
        assert found == pytest.approx(tslm.evaluate(model, ids, reset=False).nats, rel=1e-5)


def test_a_step_is_the_formula(model, corpus) -> None:
    """−η g / (RMS + ε) + λ (trained − now) RMS / ε, from autograd's own gradients of ln p."""
    known, ids, segment = corpus.splits["train"][:12], corpus.splits["valid"][:8], 4

    def gradients(ids, begin):
        text = np.concatenate([[model.vocabulary.eos_id], ids]).astype(np.int64)
        part = torch.from_numpy(text)
        with torch.no_grad():
            carried = model.begin(1)
            if begin:
                _, carried = model.read(part[:begin, None], carried)
        outputs, _ = model.read(part[begin : begin + segment, None], carried)
        logits = model.head.predict(outputs[:, 0], model.output_VM, model.bias)
        loss = -logits.gather(1, part[begin + 1 : begin + segment + 1, None]).mean()
        return torch.autograd.grad(loss, list(model.parameters()))

    model.eval()
    trained = [parameter.detach().clone() for parameter in model.parameters()]
    found = [gradients(known, begin) for begin in (0, 4, 8)]
    rms = [torch.stack(parts).pow(2).mean(0).sqrt() for parts in zip(*found, strict=True)]
    reader = Dynamic(model, known, segment)
    config = DynamicConfig(rate=0.01, decay=0.1, segment=segment)
    first = gradients(ids, 0)
    after = [
        start - config.rate * gradient / (size + FLOOR * size.mean())
        for start, gradient, size in zip(trained, first, rms, strict=True)
    ]
    with reader.restored():
        reader.nats(ids[:segment], config)
        for parameter, expected in zip(model.parameters(), after, strict=True):
            torch.testing.assert_close(parameter.detach(), expected, rtol=1e-3, atol=1e-5)
        # A second step is also drawn back, the more the larger the gradients are that a weight is used to.
        second = [torch.zeros_like(part) for part in trained]
        reader._step(
            second, [(part / part.mean() * config.decay).clamp(max=1.0) for part in rms], config.rate
        )
        for parameter, start, moved, size in zip(model.parameters(), trained, after, rms, strict=True):
            back = (size / size.mean() * config.decay).clamp(max=1.0) * (start - moved)
            torch.testing.assert_close(parameter.detach(), moved + back, rtol=1e-3, atol=1e-5)
    for parameter, start in zip(model.parameters(), trained, strict=True):
        assert torch.equal(parameter.detach(), start), "the trained weights are back"


def test_a_text_that_repeats_itself_is_learnt(model, corpus) -> None:
    ids = np.tile(np.random.default_rng(0).integers(0, len(model.vocabulary), 40).astype(np.int32), 20)
    reader = Dynamic(model, corpus.splits["train"][:400], 8)
    with reader.restored():
        learnt = reader.nats(ids, DynamicConfig(rate=0.002, decay=0.0, segment=8))
    assert learnt < 0.9 * tslm.evaluate(model, ids, reset=False).nats


def test_the_verb_reports_both(runs, monkeypatch) -> None:
    monkeypatch.setattr("tslm.inference.dynamic.RATES", (3e-4,))
    monkeypatch.setattr("tslm.inference.dynamic.DECAYS", (0.0, 0.003))
    report = tslm.evaluate_dynamic(runs["gated"])
    assert [(row.model, row.split) for row in report.rows] == [
        ("plain", "valid"),
        ("dynamic", "valid"),
        ("plain", "test"),
        ("dynamic", "test"),
    ]
    assert report.rows[2].perplexity == pytest.approx(tslm.evaluate(runs["gated"], reset=False).perplexity)
    assert "rate 0.0003" in repr(report)


def test_wrong_settings_are_refused(model) -> None:
    with pytest.raises(TslmError):
        DynamicConfig(rate=-1.0)
    with pytest.raises(TslmError, match="few hundred words"):
        Dynamic(model, np.zeros(0, np.int32), 8)
