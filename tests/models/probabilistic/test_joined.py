from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import tslm
from tslm.corpus.sources import open_corpus
from tslm.errors import RecipeError, RunError, UnsupportedError
from tslm.models.ngram.folds import cross_fit
from tslm.models.ngram.smoothed import NgramConfig, NgramModel
from tslm.models.probabilistic.joined import JoinedConfig, JoinedModel
from tslm.models.registry import read_model
from tslm.runs.run import load
from tslm.runs.summary import read_summary
from tslm.runs.train import train
from tslm.training.watcher import Watcher

RECIPE = """
[corpus]
path = ["{text}"]

[model]
kind = "joined"
rank = 24
clusters = 6
alone = 2
embedding = 8
dropout_states = 0.25
order = 3
folds = 4

[train]
epochs = 3
batch = 8
window = 12
learning_rate = 0.02
threads = 1
"""


@pytest.fixture(scope="module")
def run(runs, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("joined")
    text = runs["kn"].parent / "text.txt"
    (folder / "joined.toml").write_text(RECIPE.format(text=text))
    train(folder / "joined.toml", folder / "joined")
    return folder / "joined"


@pytest.fixture(scope="module")
def model(run: Path) -> JoinedModel:
    found = load(run)
    assert isinstance(found, JoinedModel)
    return found.double()


def test_a_text_has_the_probability_of_all_hidden_paths_together(model: JoinedModel) -> None:
    """p(w, z' | z, last words) written out, state by state, with the counts' own probabilities."""
    text = np.array([[5, 3, 9, model.vocabulary.eos_id, 4]])
    factors, k = model.factors, model.config.states
    counts = model.counts
    counted_1T, known_1TF, _ = counts.score_knowing(text, counts.start(1))
    state = model.start(1).hidden
    cluster, belief_k = int(state.cluster_B[0]), state.belief_Bk[0]
    with torch.no_grad():
        trust_kG = model.trust(factors.vectors.leave_CkM)
        weight = dict(enumerate(belief_k.tolist()))
        for word, log_p, known_F in zip(text[0], counted_1T[0], known_1TF[0], strict=True):
            after = int(model.cluster_V[word])
            block_kk = factors.blocks(torch.tensor([cluster]), torch.tensor([after]))[0]
            emission_k = factors.emission_Vk[word]
            seen_F = (torch.from_numpy(known_F) - model.mean_F) / model.spread_F
            following = dict.fromkeys(range(k), 0.0)
            for z, y in itertools.product(range(k), range(k)):
                gate = float((trust_kG[cluster, z, :-1] @ seen_F + trust_kG[cluster, z, -1]).sigmoid())
                own = float(block_kk[z] @ emission_k)
                word_from_hidden = float(factors.onward_CkC[cluster, z, after]) * own
                share = (1 - gate) * word_from_hidden + gate * math.exp(log_p)
                following[y] += weight[z] * share * float(block_kk[z, y] * emission_k[y]) / own
            cluster, weight = after, following
    scores, _ = model.score(text, model.start(1))
    assert scores.sum() == pytest.approx(math.log(sum(weight.values())), rel=1e-10)


def test_every_next_word_distribution_sums_to_one_and_is_that_of_score(
    model: JoinedModel, monkeypatch
) -> None:
    text = np.array([[5, 3, 9, 2, 5], [4, 4, 1, 0, 0]])
    whole, _ = model.score(text, model.start(2))
    monkeypatch.setattr("tslm.models.probabilistic.hidden.AT_ONCE", 1)
    state = model.start(2)
    for t in range(text.shape[1]):
        predicted = model.predict(state)
        np.testing.assert_allclose(np.exp(predicted).sum(1), 1, rtol=1e-6)
        np.testing.assert_allclose(predicted[np.arange(2), text[:, t]], whole[:, t], rtol=1e-6)
        one, state = model.score(text[:, t : t + 1], state)
        np.testing.assert_allclose(one[:, 0], whole[:, t], rtol=1e-10)


def test_counts_of_other_folds_have_not_seen_the_fold(runs) -> None:
    corpus = open_corpus(runs["kn"].parent / "text.txt")
    ids, config = (
        corpus.splits["train"],
        NgramConfig(order=2, unknown=False, discount_fallback=(0.5, 1.0, 1.5)),
    )
    known_NF, scores_N = cross_fit(config, corpus, 5)
    assert len(known_NF) == len(scores_N) == len(ids)
    seen_1T, _ = (whole := NgramModel.fit(config, corpus)).score(ids[None].astype(np.int64), whole.start(1))
    assert scores_N.mean() < seen_1T.mean()
    # The first line by hand: counts of all that comes after the first fifth of the lines.
    lines = int((ids == corpus.vocabulary.eos_id).sum())
    ends = np.flatnonzero(ids == corpus.vocabulary.eos_id)
    own = ends[-(-lines // 5) - 1] + 1
    rest = NgramModel.fit(config, replace(corpus, splits={**corpus.splits, "train": ids[own:]}))
    expected, _ = rest.score(ids[None, :own].astype(np.int64), rest.start(1))
    np.testing.assert_allclose(scores_N[:own], expected[0])


class StopsAt(Watcher):
    def __init__(self, step: int) -> None:
        self.last = step

    def step(self, position, total, measured) -> None:
        if position.step == self.last:
            raise KeyboardInterrupt


def test_training_learns_and_resumes(run: Path, tmp_path) -> None:
    whole = read_summary(run)
    assert whole is not None and whole.valid is not None  # noqa: PT018
    with pytest.raises(KeyboardInterrupt):
        train(whole.recipe, tmp_path / "broken", watcher=StopsAt(30))
    again = train(whole.recipe, tmp_path / "broken")
    assert again.valid is not None
    assert again.valid.perplexity == whole.valid.perplexity
    assert whole.parameters == load(run).parameter_count


def test_windows_that_forget_where_they_are_are_refused(run: Path, tmp_path) -> None:
    with pytest.raises(RunError, match=r"train\.state = 'carried'"):
        train(run.parent / "joined.toml", tmp_path / "reset", overrides=["train.state=reset"])


def test_one_blank_is_exact_and_sums_over_sentences_are_refused(run: Path) -> None:
    words = load(run).vocabulary.words
    pattern = f"{words[5]} ? {words[7]}"
    assert tslm.fill(run, pattern).exact
    with pytest.raises(UnsupportedError, match="--proposal"):
        tslm.fill(run, f"? {words[5]} ?")
    with pytest.raises(UnsupportedError, match="from its beginning"):
        tslm.fill(run, pattern, span="fragment")
    with pytest.raises(UnsupportedError, match="probabilistic"):
        tslm.match(run, f"... {words[5]} ...")


def test_counts_beside_free_numbers_or_a_single_cluster_are_refused() -> None:
    for table in ({"parameters": "free"}, {"clusters": 1}, {"order": 1}, {"folds": 1}):
        with pytest.raises(RecipeError, match="model"):
            read_model({"kind": "joined", **table})
    JoinedConfig()


def test_a_model_whose_counts_are_of_another_order_is_damaged(run: Path) -> None:
    config = JoinedConfig(rank=24, clusters=6, alone=2, embedding=8, order=4)
    with pytest.raises(RunError):
        JoinedModel.load(run, config, load(run).vocabulary)
