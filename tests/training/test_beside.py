from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tslm.corpus.sources import open_corpus
from tslm.corpus.streams import Columns
from tslm.errors import RunError, Stopped
from tslm.models.ngram.folds import cross_fit
from tslm.runs.recipe import read_recipe
from tslm.runs.train import train
from tslm.training import trainer as trainer_module
from tslm.training.beside import COUNTED, FOLDS, Beside
from tslm.training.config import TrainConfig
from tslm.training.distributed import Group

COUNTS = ["objective.counts=0.5"]


@pytest.fixture(scope="module")
def corpus(recipe_path):
    return open_corpus(read_recipe(recipe_path).corpus)


def test_each_target_has_the_counts_of_its_own_place(corpus) -> None:
    config = TrainConfig(batch=6, window=5)
    _, scores_N = cross_fit(COUNTED, corpus, FOLDS)
    ids = corpus.splits["train"]
    columns = Columns(ids, batch=6, window=5, eos_id=corpus.vocabulary.eos_id)
    beside = Beside(corpus, config, Group(0, 1))
    halves = [Beside(corpus, config, Group(rank, 2)) for rank in range(2)]
    for window in (0, 3, len(columns) - 1):
        _, targets_BT = columns[window]
        counted_TB2 = beside(window).unflatten(0, targets_BT.t().shape)
        # The gate begins at one half, so what is left of ln λ p is ln p.
        for column in range(6):
            place = int(columns.starts_B[column]) + 5 * window
            for time in range(targets_BT.shape[1]):
                if targets_BT[column, time] >= 0:
                    assert ids[place + time] == targets_BT[column, time]
                    expected = scores_N[place + time] + np.log(0.5)
                    assert float(counted_TB2.detach()[time, column, 0]) == pytest.approx(expected, rel=1e-5)
        torch.testing.assert_close(
            counted_TB2[..., 1], torch.full(counted_TB2.shape[:2], np.log(0.5)).float()
        )
        parts = [half(window).unflatten(0, (targets_BT.shape[1], 3)) for half in halves]
        torch.testing.assert_close(torch.cat(parts, 1), counted_TB2)


def test_a_stopped_run_beside_counts_goes_on_to_the_same_numbers(recipe_path, tmp_path, monkeypatch) -> None:
    whole = train(recipe_path, tmp_path / "whole", overrides=COUNTS)
    original = trainer_module.Trainer._step

    def stop_at(self, *arguments):
        self.stop_requested = self.position.step + 1 == 37
        return original(self, *arguments)

    monkeypatch.setattr(trainer_module.Trainer, "_step", stop_at)
    with pytest.raises(Stopped):
        train(recipe_path, tmp_path / "run", overrides=COUNTS)
    monkeypatch.undo()
    state = load_file(tmp_path / "run" / "training_state.safetensors")
    # The gate has learnt, and is no part of the model.
    assert bool(state["beside/gate.weight"].abs().sum() > 0)
    assert train(recipe_path, tmp_path / "run", overrides=COUNTS).valid == whole.valid
    names = set(load_file(tmp_path / "run" / "model.safetensors"))
    train(recipe_path, tmp_path / "alone")
    assert names == set(load_file(tmp_path / "alone" / "model.safetensors"))


def test_other_kinds_do_not_learn_beside_counts(recipe_path, tmp_path) -> None:
    text = recipe_path.read_text()
    head, tail = text.split("[model]\n")[0], text[text.index("[train]") :]
    (tmp_path / "hidden.toml").write_text(
        f'{head}[model]\nkind = "probabilistic"\nrank = 8\nclusters = 2\nalone = 1\n\n{tail}'.replace(
            "average = 0.9\n", ""
        )
    )
    with pytest.raises(RunError, match="'probabilistic' does not learn beside counts"):
        train(tmp_path / "hidden.toml", tmp_path / "run", overrides=COUNTS)
