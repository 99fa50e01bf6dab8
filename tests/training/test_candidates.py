"""Rare words that escape the candidates of a step are noticed; what is noticed is what the formula says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tslm.corpus.streams import Columns
from tslm.corpus.vocabulary import Vocabulary
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.heads.mixture import MixtureConfig
from tslm.models.recurrent.heads.softmax import SoftmaxConfig
from tslm.models.recurrent.model import RecurrentModel
from tslm.runs.run import open_run
from tslm.runs.train import train
from tslm.training import candidates
from tslm.training.candidates import ESCAPED, measure_escape, warn_of_escape
from tslm.training.config import ObjectiveConfig
from tslm.training.metrics import read_metrics
from tslm.training.objective import Objective

WORDS = 60
CONFIG = ObjectiveConfig(frequent=5, sampled=6)


def make(head=None) -> RecurrentModel:
    torch.manual_seed(3)
    config = RecurrentConfig(rank=6, embedding=6, dropout_output=0.5, head=head or SoftmaxConfig())
    vocabulary = Vocabulary(("<eos>", "<unk>", *(f"w{number}" for number in range(WORDS - 2))))
    return RecurrentModel(config, vocabulary).train()


def columns(tokens: int = 101, batch: int = 4) -> Columns:
    ids = np.random.default_rng(1).integers(0, WORDS, tokens).astype(np.int32)
    return Columns(ids, batch=batch, window=5, eos_id=0)


def objective(seed: int = 7) -> Objective:
    return Objective(CONFIG, WORDS, torch.Generator().manual_seed(seed))


def escape_slowly(model: RecurrentModel, draws: Objective, text: Columns, carry: bool) -> float:
    """ln Z minus ln of its estimate, word by word, from the definition of both."""
    model.eval()
    gaps, carried = [], model.begin(text.batch)
    for inputs_BT, targets_BT in list(text.windows())[: candidates.WINDOWS]:
        words_C = draws.draw().words_C
        assert words_C is not None
        outputs_TBR, after = model.read(inputs_BT.t().contiguous(), carried)
        carried = after if carry else model.begin(text.batch)
        latents_NKM, log_prior_NK = model.head(outputs_TBR.flatten(0, 1))
        for n, target in enumerate(targets_BT.t().flatten().tolist()):
            if target < 0:
                continue
            p_full, p_sampled = 0.0, 0.0
            for k in range(latents_NKM.shape[1]):
                exp_V = (model.output_VM @ latents_NKM[n, k] + model.bias).exp()
                others = [int(word) for word in words_C if word != target]
                weight = (WORDS - CONFIG.frequent) / CONFIG.sampled
                Z = exp_V[target] + sum(
                    exp_V[word] * (1 if word < CONFIG.frequent else weight) for word in others
                )
                prior = 1.0 if log_prior_NK is None else float(log_prior_NK[n, k].exp())
                p_full += prior * float(exp_V[target] / exp_V.sum())
                p_sampled += prior * float(exp_V[target] / Z)
            gaps.append(np.log(p_sampled) - np.log(p_full))
    model.train()
    return float(np.mean(gaps))


@pytest.mark.parametrize("head", [SoftmaxConfig(), MixtureConfig(experts=3)], ids=["softmax", "mixture"])
@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("tokens", [101, 10, 3])
def test_the_gap_is_that_of_the_partition_functions(head, carry, tokens) -> None:
    model = make(head)
    with torch.no_grad():
        slow = escape_slowly(model, objective(), columns(tokens), carry)
    assert measure_escape(model, objective(), columns(tokens), carry=carry) == pytest.approx(slow, abs=1e-5)


def test_words_that_are_hardly_drawn_and_likely_show_as_a_gap() -> None:
    model = make()
    assert abs(measure_escape(model, objective(), columns())) < ESCAPED
    with torch.no_grad():
        model.bias[-1] += 12
    assert measure_escape(model, objective(), columns()) > 10 * ESCAPED


def test_measuring_leaves_the_model_and_every_generator_of_training_alone() -> None:
    model, own = make(), objective()
    before = torch.get_rng_state(), own.generator.get_state()
    measure_escape(model, own.begun_anew(1), columns())
    assert model.training
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(own.generator.get_state(), before[1])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_one_begun_anew_draws_by_the_same_frequencies() -> None:
    counts_V = torch.arange(WORDS, 0, -1) ** 2
    config = ObjectiveConfig(frequent=5, sampled=6, power=0.75)
    first = Objective(config, WORDS, torch.Generator().manual_seed(1), counts_V)
    again = first.begun_anew(1)
    for _ in range(5):
        drawn, redrawn = first.draw(), again.draw()
        assert drawn.words_C is not None
        assert redrawn.words_C is not None
        assert torch.equal(drawn.words_C, redrawn.words_C)
        assert torch.equal(drawn.log_weight_S, redrawn.log_weight_S)  # pyright: ignore[reportArgumentType]


def escapes(folder) -> list[float]:
    return [line["escape"] for line in read_metrics(folder) if "escape" in line]


def test_a_run_with_too_few_candidates_says_so_after_each_epoch(recipe_path, tmp_path, told) -> None:
    train(
        recipe_path, tmp_path / "run", overrides=["objective.frequent=1", "objective.sampled=1"], watcher=told
    )
    assert len(escapes(tmp_path / "run")) == 2
    assert min(escapes(tmp_path / "run")) > ESCAPED
    warnings = [line for line in told.lines if line.startswith("warning")]
    assert len(warnings) == 2
    assert "1 + 1 candidates" in warnings[0]
    assert "Raise objective.sampled" in warnings[0]


@pytest.mark.parametrize(
    ("settings", "measured"),
    [([], 2), (["objective.frequent=0", "objective.sampled=0"], 0), (["train.state=reset"], 2)],
    ids=["enough candidates", "all words", "reset"],
)
def test_a_run_that_is_well_says_nothing(recipe_path, tmp_path, settings, measured, told) -> None:
    train(recipe_path, tmp_path / "run", overrides=settings, watcher=told)
    assert len(escapes(tmp_path / "run")) == measured
    assert not [line for line in told.lines if line.startswith("warning")]


@pytest.mark.parametrize(
    ("settings", "carry"),
    [(["train.average=0.9"], True), (["train.state=reset"], False)],
    ids=["averaged", "reset"],
)
def test_what_a_run_logs_is_measured_on_the_model_it_would_keep(
    recipe_path, tmp_path, settings, carry
) -> None:
    train(recipe_path, tmp_path / "run", overrides=settings)
    run = open_run(tmp_path / "run")
    assert run.summary.training.best_epoch == run.summary.training.epochs
    corpus, config = run.open_corpus(), run.recipe.train
    counts_V = torch.from_numpy(np.bincount(corpus.splits["train"], minlength=len(corpus.vocabulary)))
    draws = Objective(run.recipe.objective, len(corpus.vocabulary), torch.Generator(), counts_V)
    ids = corpus.splits["valid"]
    text = Columns(ids, batch=config.batch, window=config.window, eos_id=corpus.vocabulary.eos_id)
    expected = measure_escape(run.model, draws.begun_anew(config.seed), text, carry=carry)
    assert escapes(tmp_path / "run")[-1] == pytest.approx(expected, abs=1e-6)
    if not carry:
        assert expected != pytest.approx(
            measure_escape(run.model, draws.begun_anew(config.seed), text), abs=1e-6
        )


def test_the_warning_states_how_wrong_the_perplexity_is() -> None:
    assert "a perplexity 50% below the true one" in warn_of_escape(np.log(2), CONFIG)
