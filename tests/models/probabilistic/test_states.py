from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tslm
from tslm.corpus.sources import open_corpus
from tslm.errors import RecipeError
from tslm.models.probabilistic.model import ProbabilisticConfig, ProbabilisticModel
from tslm.models.probabilistic.states import start_from
from tslm.models.registry import read_model
from tslm.runs.recipe import read_recipe
from tslm.runs.train import train

CONFIGS = {
    "clusters": {"rank": 24, "clusters": 6, "alone": 2},
    "free": {"rank": 24, "clusters": 6, "alone": 2, "parameters": "free"},
    "dense": {"rank": 12, "clusters": 1},
    "features": {"rank": 12, "clusters": 1, "features": 4},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_groups_of_recurrent_states_are_a_better_start(runs, name) -> None:
    corpus = open_corpus(read_recipe(runs["gated"] / "recipe.toml").corpus)
    torch.manual_seed(0)
    model = ProbabilisticModel(ProbabilisticConfig(embedding=8, **CONFIGS[name]), corpus.vocabulary)
    model.prepare(corpus)
    valid = np.array(corpus.splits["valid"], np.int64)[None]

    def perplexity() -> float:
        model.eval()
        return math.exp(-float(model.score(valid, model.start(1))[0].mean()))

    before = perplexity()
    start_from(model, tslm.load(runs["gated"]), corpus.splits["train"])
    assert perplexity() < 0.7 * before


def test_a_recipe_names_the_run(runs, tmp_path) -> None:
    recipe = runs["probabilistic"] / "recipe.toml"
    overrides = ["model.start=states", f"model.start_run={runs['gated']}", "train.epochs=1"]
    made = [train(recipe, tmp_path / str(number), overrides=overrides) for number in range(2)]
    assert made[0].valid is not None
    assert made[1].valid is not None
    assert made[0].valid.perplexity == made[1].valid.perplexity
    with pytest.raises(RecipeError, match="of kind 'ngram'; give a recurrent one"):
        train(recipe, tmp_path / "kn", overrides=["model.start=states", f"model.start_run={runs['kn']}"])
    with pytest.raises(RecipeError, match="knows other words"):
        train(recipe, tmp_path / "asv", overrides=["model.start=states", "model.start_run=asv/gated"])
    for table in ({"start": "states"}, {"start_run": "asv/gated"}):
        with pytest.raises(RecipeError, match="go together"):
            read_model({"kind": "probabilistic", **table})
