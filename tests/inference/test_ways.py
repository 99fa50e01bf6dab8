from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import torch

import tslm
from tslm.cli import main
from tslm.errors import RunError, UnsupportedError
from tslm.inference import dynamic, readers, ways
from tslm.inference.caching import SHARPNESS
from tslm.training.dynamic import FLOOR, Dynamic, DynamicConfig

SIZE, SEGMENT = 40, 8


@pytest.fixture(autouse=True)
def _small(monkeypatch) -> None:
    monkeypatch.setattr(dynamic, "RATES", (1e-3, 3e-3))
    monkeypatch.setattr(dynamic, "DECAYS", (0.02,))
    monkeypatch.setattr(ways, "TUNED_ON", 80)
    monkeypatch.setattr(ways, "KNOWN", 160)
    # Shorter than the splits, and than the cache: what is remembered goes over the edges.
    monkeypatch.setattr(readers, "WINDOW", 32)
    monkeypatch.setattr("tslm.training.gate.EPOCHS", 4)


def read_slowly(model, known, ids, config):
    """Krause et al. 2018, word for word in double precision: ln p of all words before each word, and its latent."""
    model = model.double().eval()
    parameters = list(model.parameters())
    trained = [parameter.detach().clone() for parameter in parameters]

    def segments(ids):
        text = torch.from_numpy(np.concatenate([[model.vocabulary.eos_id], ids]).astype(np.int64))
        carried = model.begin(1)
        for begin in range(0, len(ids), config.segment):
            part = text[begin : begin + config.segment + 1]
            outputs, carried = model.read(part[:-1, None], carried)
            log_TV = model.head.predict(outputs[:, 0], model.output_VM, model.bias)
            loss = -log_TV.gather(1, part[1:, None]).mean()
            gradients = [
                gradient.to_dense()
                for gradient in torch.autograd.grad(loss, parameters, materialize_grads=True)
            ]
            carried = tuple(tuple(tensor.detach() for tensor in cell) for cell in carried)
            yield log_TV.detach().numpy(), model.head.direction(outputs[:, 0]).detach().numpy(), gradients

    found = [gradients for _, _, gradients in segments(known)]
    rms = [torch.stack(parts).pow(2).mean(0).sqrt() for parts in zip(*found, strict=True)]
    log, latents = [], []
    for log_TV, latents_TM, gradients in segments(ids):
        log.append(log_TV)
        latents.append(latents_TM)
        with torch.no_grad():
            for now, start, gradient, size in zip(parameters, trained, gradients, rms, strict=True):
                back = (size / size.mean() * config.decay).clamp(max=1.0) * (start - now)
                now += back - config.rate * gradient / (size + FLOOR * size.mean())
    return np.concatenate(log), np.concatenate(latents)


def recall_slowly(ids, latents, weight, theta, log_NV):
    """Grave et al. 2017, word for word: ln p of each word with the cache, and ln of the mean weight in it."""
    mixed, known = [], []
    for now in range(len(ids)):
        before = range(max(0, now - SIZE), now)
        weights = [np.exp(theta * latents[now] @ latents[past]) for past in before]
        plain = np.exp(log_NV[now, ids[now]])
        if not weights:
            mixed.append(np.log(plain))
            known.append(0.0)
            continue
        same = sum(one for one, past in zip(weights, before, strict=True) if ids[past] == ids[now])
        mixed.append(np.log((1 - weight) * plain + weight * same / sum(weights)))
        known.append(np.log(np.mean(weights)))
    return np.array(mixed), np.array(known)


@pytest.mark.parametrize("name", ["gated", "lstm"])
def test_all_together_is_what_the_equations_say(runs, name, monkeypatch) -> None:
    gates = []
    monkeypatch.setattr(
        ways, "_learn_mix", lambda *given, learn=ways._learn_mix: gates.append(learn(*given)) or gates[-1]
    )
    run = tslm.open_run(runs[name])
    run.model.double()
    report = tslm.evaluate_reading(run, cache=SIZE, dynamic=True, counts=runs["kn"], segment=SEGMENT)
    settings = report.settings
    found = {(row.model, row.split): row for row in report.rows}
    corpus, counted = run.open_corpus(), tslm.load(runs["kn"])
    known = corpus.splits["train"][:160]
    alone, beside = (
        DynamicConfig(rate=settings[f"{with_}rate"], decay=settings[f"{with_}decay"], segment=SEGMENT)
        for with_ in ("", "cached ")
    )
    for split in ("valid", "test"):
        ids = corpus.splits[split]

        def check(way: str, log_N, split=split) -> None:
            expected = np.exp(-np.mean(log_N))
            assert found[way, split].perplexity == pytest.approx(expected, rel=1e-6), (way, split)

        log_NV, _ = read_slowly(tslm.load(runs[name]), known, ids, alone)
        log_N = log_NV[np.arange(len(ids)), ids]
        check("dynamic", log_N)
        log_NV, latents = read_slowly(tslm.load(runs[name]), known, ids, beside)
        cached_N, likeness_N = recall_slowly(
            ids, latents, settings["dynamic weight"], settings["dynamic sharpness"], log_NV
        )
        check("dynamic and cache", cached_N)
        counts_1N, known_1NF, _ = counted.score_knowing(ids[None], counted.start(1))
        # The ways in their order: plain, cache, dynamic, dynamic and cache.
        for way, mix, own_N, seen in (
            ("dynamic and ", gates[2], log_N, known_1NF[0]),
            ("dynamic, cache and ", gates[3], cached_N, np.column_stack([known_1NF[0], likeness_N])),
        ):
            log_NK = np.column_stack([counts_1N[0], own_N])
            check(f"{way}one weight", np.log(np.exp(log_NK) @ mix.weights))
            check(f"{way}gate, sees counts", np.log((np.exp(log_NK) * np.exp(mix.gate(seen))).sum(1)))


def test_without_learning_it_is_what_the_other_verbs_say(runs) -> None:
    run = tslm.open_run(runs["gated"])
    report = tslm.evaluate_reading(run, cache=SIZE, counts=runs["kn"])
    found = {(row.model, row.split): row for row in report.rows}
    for row in tslm.evaluate_cache(run, size=SIZE).rows:
        assert found[row.model, row.split].perplexity == pytest.approx(row.perplexity, rel=1e-6)
    gating = tslm.gate([runs["kn"], runs["gated"]])
    assert found["one weight", "valid"].perplexity == pytest.approx(gating.fixed, rel=1e-6)
    assert found["gate, sees counts", "valid"].perplexity == pytest.approx(gating.fitted, rel=1e-5)
    assert found["gate, sees counts", "valid"].halves == pytest.approx(gating.halves, rel=1e-5)
    test = tslm.evaluate(gating.model, run.open_corpus().splits["test"], reset=False)
    assert found["gate, sees counts", "test"].perplexity == pytest.approx(test.perplexity, rel=1e-5)
    tried = {key for key in report.settings if "sharpness" in key}
    assert all(report.settings[key] in SHARPNESS for key in tried)
    # Only what is scored as tuned has a time, and more work takes longer.
    assert all((row.seconds is not None) == (row.split == "test") for row in report.rows)
    assert all((row.wall is not None) == (row.split == "test") for row in report.rows)


@pytest.mark.parametrize("best", range(7))
def test_tuning_goes_on_where_the_best_is_at_the_edge_of_what_was_tried(best) -> None:
    values, tried = [10.0**place for place in range(7)], list[float]()
    found = dynamic.climb(values, lambda value: tried.append(value) or abs(values.index(value) - best))
    assert found == values[best]
    assert len(set(tried)) == min(7, 3 + abs(best - 3)) - (best in (0, 6))


def test_the_rate_of_learning_is_tuned_with_the_cache_at_work(runs, monkeypatch) -> None:
    """Each of the two is the best of what was tried, by what it is then used for."""
    monkeypatch.setattr(ways, "TUNED_ON", 10_000)
    found = {}
    for rate in (1e-3, 3e-3):
        monkeypatch.setattr(dynamic, "RATES", (rate,))
        report = tslm.evaluate_reading(runs["gated"], cache=SIZE, dynamic=True, segment=SEGMENT)
        found |= {(rate, row.model): row.perplexity for row in report.rows if row.split == "valid"}
    monkeypatch.setattr(dynamic, "RATES", (1e-3, 3e-3))
    report = tslm.evaluate_reading(runs["gated"], cache=SIZE, dynamic=True, segment=SEGMENT)
    for key, model in (("rate", "dynamic"), ("cached rate", "dynamic and cache")):
        best = min((1e-3, 3e-3), key=lambda rate, model=model: found[rate, model])
        assert report.settings[key] == best
        (row,) = (row for row in report.rows if (row.model, row.split) == (model, "valid"))
        assert row.perplexity == pytest.approx(found[best, model])


def test_the_command_measures_every_combination(runs, capsys) -> None:
    command = ["eval", str(runs["gated"]), "--dynamic", "--cache", str(SIZE), "--counts", str(runs["kn"])]
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    names = [row["model"] for row in report["results"] if row["split"] == "test"]
    assert len(names) == len(set(names)) == 12
    assert names == [row["model"] for row in report["results"] if row["split"] == "valid"]
    assert report["counts"] == str(runs["kn"])
    assert main(["eval", str(runs["gated"]), "--dynamic", "--cache", str(SIZE)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("dynamic and cache") == 2
    assert "dynamic weight" in shown


def test_whatever_happens_the_trained_weights_are_back(runs, monkeypatch) -> None:
    run = tslm.open_run(runs["gated"])
    before = [parameter.detach().clone() for parameter in run.model.parameters()]

    def stop(*_: object) -> None:
        moved = [not torch.equal(*pair) for pair in zip(run.model.parameters(), before, strict=True)]
        if all(moved):
            raise KeyboardInterrupt
        return remember(*_)

    remember = readers.remember
    monkeypatch.setattr(readers, "remember", stop)
    with pytest.raises(KeyboardInterrupt):
        tslm.evaluate_reading(run, cache=SIZE, dynamic=True, segment=SEGMENT)
    assert all(torch.equal(*pair) for pair in zip(run.model.parameters(), before, strict=True))


def test_each_part_of_the_work_is_counted_to_its_end(runs) -> None:
    told: list[tuple[str, int, list[int]]] = []

    class Count:
        def __init__(self, what: str, total: int) -> None:
            told.append((what, total, []))

        def __enter__(self):
            return told[-1][2].append

        def __exit__(self, *_: object) -> None:
            pass

    tslm.evaluate_reading(
        runs["gated"], cache=SIZE, dynamic=True, counts=runs["kn"], segment=SEGMENT, track=Count
    )
    assert [what.split(":")[0] for what, _, _ in told] == [f"{place} of 10" for place in range(1, 11)]
    assert all(sum(ticks) == total for _, total, ticks in told), told


def test_what_does_not_go_together_is_told(runs, tmp_path, capsys) -> None:
    for kind in ("kn", "probabilistic"):
        with pytest.raises(UnsupportedError, match="cannot learn while it reads"):
            tslm.evaluate_reading(runs[kind], dynamic=True)
    with pytest.raises(UnsupportedError, match="n-gram model"):
        tslm.evaluate_reading(runs["gated"], counts=runs["lstm"])
    with pytest.raises(RunError, match="in different ways"):
        tslm.evaluate_reading(runs["gated"], counts="asv/kn5")
    (tmp_path / "text.txt").write_text("a text of a few other words\n" * 40)
    recipe = (
        (runs["kn"] / "recipe.toml")
        .read_text()
        .replace(str(runs["kn"].parent / "text.txt"), str(tmp_path / "text.txt"))
    )
    (tmp_path / "other.toml").write_text(recipe)
    tslm.train(tmp_path / "other.toml", tmp_path / "other")
    with pytest.raises(RunError, match="different words"):
        tslm.evaluate_reading(runs["gated"], counts=tmp_path / "other")
    with pytest.raises(tslm.TslmError, match="size"):
        tslm.evaluate_reading(runs["gated"], cache=0)
    out = ["--out", str(tmp_path / "x")]
    assert main(["eval", str(runs["gated"]), "--cache", "auto", "--counts", str(runs["kn"]), *out]) == 2
    assert "compare --mix gated" in capsys.readouterr().err
    assert main(["eval", str(runs["gated"]), "--cache", "auto", "--dynamic", *out]) == 2
    assert main(["eval", str(runs["gated"]), "--counts", str(tmp_path)]) == 2


def test_a_segment_gives_what_was_said_before_the_step(runs) -> None:
    """ln p and directions are those of the model as it was; with every step it has changed."""
    model = tslm.load(runs["gated"])
    corpus = tslm.open_run(runs["gated"]).open_corpus()
    learner, ids = Dynamic(model, corpus.splits["train"][:160], 4), corpus.splits["valid"][:12]
    with learner.restored():
        state, pieces = model.start(1), []
        for begin, piece in zip(range(0, 12, 4), learner.read(ids, DynamicConfig(segment=4)), strict=True):
            pieces.append([part.copy() for part in piece])
            if begin == 0:
                scores_1T, vectors_1TM, _ = model.score_vectors(ids[None, :4], state)
                np.testing.assert_allclose(piece[0], scores_1T[0], atol=1e-5)
                np.testing.assert_allclose(piece[1], vectors_1TM[0], atol=1e-5)
    assert all(not np.allclose(one[1], other[1]) for one, other in pairwise(pieces))
