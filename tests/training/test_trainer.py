"""Training learns what can be learnt, and a run that is broken off ends with the very numbers of an unbroken one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tslm.corpus.sources import open_corpus
from tslm.corpus.synthetic import AutomatonConfig, write_corpus
from tslm.errors import RunError, Stopped
from tslm.evaluation.perplexity import evaluate, evaluate_windows
from tslm.reports.page import write_run_page
from tslm.reports.tables import print_summary
from tslm.runs.folder import locked_run
from tslm.runs.recipe import read_recipe
from tslm.runs.run import load
from tslm.runs.summary import read_summary
from tslm.runs.train import train
from tslm.training import trainer as trainer_module
from tslm.training.metrics import read_metrics

TIMES = {"seconds", "tokens_per_second", "peak_memory_mb"}


def metrics(folder: Path) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in lines]


def outcome(folder: Path) -> tuple:
    summary = read_summary(folder)
    assert summary is not None
    kept = {key: value for key, value in summary.as_json().items() if key not in TIMES}
    return kept, metrics(folder), (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="session")
def unbroken(recipe_path, tmp_path_factory) -> tuple:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    train(recipe_path, folder)
    return outcome(folder)


def test_memory_is_kept_while_it_trains_and_changes_no_number(
    unbroken, recipe_path, tmp_path, monkeypatch
) -> None:
    entered = []

    @contextmanager
    def given_back_at_once():
        entered.append(True)
        yield

    monkeypatch.setattr(trainer_module, "kept_memory", given_back_at_once)
    train(recipe_path, tmp_path / "run")
    assert entered == [True]
    assert outcome(tmp_path / "run") == unbroken


def test_the_same_recipe_gives_the_same_numbers(recipe_path, unbroken, tmp_path) -> None:
    train(recipe_path, tmp_path / "run")
    assert outcome(tmp_path / "run") == unbroken


def stop_at(step: int, monkeypatch) -> None:
    original = trainer_module.Trainer._step

    def stepping(self, *arguments):
        self.stop_requested = self.position.step + 1 == step
        return original(self, *arguments)

    monkeypatch.setattr(trainer_module.Trainer, "_step", stepping)


@pytest.mark.parametrize("step", [1, 7, 37, 50])
def test_a_stopped_run_goes_on_to_the_same_numbers(
    recipe_path, unbroken, tmp_path, monkeypatch, step
) -> None:
    stop_at(step, monkeypatch)
    with pytest.raises(Stopped, match=f"stopped at step {step} of .* the same command goes on"):
        train(recipe_path, tmp_path / "run")
    monkeypatch.undo()
    train(recipe_path, tmp_path / "run")
    assert outcome(tmp_path / "run") == unbroken


def test_ctrl_c_while_the_last_epoch_is_validated_stops_too(
    recipe_path, unbroken, tmp_path, monkeypatch
) -> None:
    original = trainer_module.Trainer._end_epoch

    def ending(self) -> None:
        original(self)
        self.stop_requested = self.position.epoch == self.config.epochs

    monkeypatch.setattr(trainer_module.Trainer, "_end_epoch", ending)
    with pytest.raises(Stopped, match="the same command goes on"):
        train(recipe_path, tmp_path / "run")
    monkeypatch.undo()
    train(recipe_path, tmp_path / "run")
    assert outcome(tmp_path / "run") == unbroken


def test_moments_of_words_are_resumed_too(recipe_path, tmp_path, monkeypatch, road) -> None:
    overrides = ["train.moments=words", "train.spelling=1.0", "train.epochs=2"]
    train(recipe_path, tmp_path / "unbroken", overrides=overrides)
    stop_at(7, monkeypatch)
    with pytest.raises(Stopped):
        train(recipe_path, tmp_path / "run", overrides=overrides)
    monkeypatch.undo()
    train(recipe_path, tmp_path / "run", overrides=overrides)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "unbroken")


def test_a_kind_without_word_vectors_has_no_moments_of_words(tmp_path) -> None:
    with pytest.raises(RunError, match=r"has no vectors of words; leave train.moments out"):
        train("asv/probabilistic", tmp_path / "run", overrides=["train.moments=words"])


KILLER = """
import os, signal, sys
from tslm.runs import train as run
from tslm.training import trainer
recipe, folder, place = sys.argv[1], sys.argv[2], int(sys.argv[3])
name = sys.argv[4] if len(sys.argv) > 4 else "Trainer._step"
owner = {"Trainer._step": trainer.Trainer, "Trainer._checkpoint": trainer.Trainer, "write_summary": run}[name]
name = name.split(".")[-1]
calls = 0
original = getattr(owner, name)
def step(*arguments):
    global calls
    calls += 1
    if calls == place:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments)
setattr(owner, name, step)
run.train(recipe, folder)
"""


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (3, "Trainer._step"),  # before the first checkpoint
        (64, "Trainer._step"),  # in the second epoch
        (8, "Trainer._checkpoint"),  # at the end of an epoch: the model is saved, the training state is not
        (1, "write_summary"),  # when all is done but told
    ],
)
def test_a_killed_run_goes_on_to_the_same_numbers(recipe_path, unbroken, tmp_path, place, name) -> None:
    folder = tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, "-c", KILLER, recipe_path, folder, str(place), name], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert read_summary(folder) is None
    train(recipe_path, folder)
    assert outcome(folder) == unbroken


def test_ctrl_c_finishes_the_step_and_says_how_to_go_on(recipe_path, unbroken, tmp_path) -> None:
    folder = tmp_path / "run"
    script = KILLER.replace("signal.SIGKILL", "signal.SIGINT").replace("run.train(recipe, folder)", "")
    script += "from tslm.cli import main\nsys.exit(main(['train', recipe, '--out', folder]))\n"
    result = subprocess.run(
        [sys.executable, "-c", script, recipe_path, folder, "12"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 130
    assert "stopped at step 12 of" in result.stderr
    assert "Traceback" not in result.stderr
    train(recipe_path, folder)
    assert outcome(folder) == unbroken


def test_a_finished_run_is_read_not_repeated(recipe_path, tmp_path) -> None:
    first = train(recipe_path, tmp_path / "run")
    before = (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns
    assert train(recipe_path, tmp_path / "run") == first
    assert (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns == before


def test_a_folder_of_another_recipe_is_refused(recipe_path, tmp_path) -> None:
    train(recipe_path, tmp_path / "run", overrides=["train.epochs=1"])
    with pytest.raises(RunError, match=r"another recipe \(different: train.epochs, train.seed\)"):
        train(recipe_path, tmp_path / "run", overrides=["train.seed=2"])


def test_a_folder_in_use_is_refused(recipe_path, tmp_path) -> None:
    with locked_run(tmp_path / "run"), pytest.raises(RunError, match="in use by another process"):
        train(recipe_path, tmp_path / "run")


def test_a_run_does_not_go_on_with_another_text(recipe_path, tmp_path) -> None:
    text = tmp_path / "text"
    shutil.copytree(recipe_path.parent, text)
    folder, overrides = tmp_path / "run", [f"corpus.path={text}"]
    train(recipe_path, folder, overrides=overrides)
    lines = (text / "train.txt").read_text().splitlines()
    (text / "train.txt").write_text("\n".join(reversed(lines)) + "\n")
    with pytest.raises(RunError, match="another text"):
        train(recipe_path, folder, overrides=overrides)
    (folder / "summary.json").unlink()
    with pytest.raises(RunError, match="another text"):
        train(recipe_path, folder, overrides=overrides)


def test_a_run_that_failed_before_it_learnt_leaves_its_folder_free(
    recipe_path, tmp_path, monkeypatch
) -> None:
    def fail(self) -> None:
        raise RunError("no memory for the first step")

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(trainer_module.Trainer, "run", fail)
        with pytest.raises(RunError, match="no memory"):
            train(recipe_path, folder, overrides=["train.seed=7"])
    assert (folder / "recipe.toml").exists()
    assert train(recipe_path, folder, overrides=["train.epochs=1"]).training.epochs == 1


def test_a_lost_metrics_file_is_begun_anew(recipe_path, unbroken, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(trainer_module.Trainer, "stop_requested", True, raising=False)
        patch.setattr(trainer_module.Trainer, "__setattr__", _keep_stopping)
        with pytest.raises(Stopped):
            train(recipe_path, folder)
    (folder / "metrics.jsonl").unlink()
    train(recipe_path, folder)
    assert outcome(folder)[2] == unbroken[2]
    assert metrics(folder)


def _keep_stopping(self, name, value) -> None:
    object.__setattr__(self, name, True if name == "stop_requested" else value)


def test_a_damaged_training_state_is_named(recipe_path, tmp_path) -> None:
    folder = tmp_path / "run"
    train(recipe_path, folder)
    (folder / "summary.json").unlink()
    state = folder / "training_state.safetensors"
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(
        RunError, match=r"training_state.safetensors is damaged .* delete it to start the run anew"
    ):
        train(recipe_path, folder)


def test_a_loss_that_is_not_finite_stops_with_advice_and_keeps_the_last_good_state(
    recipe_path, tmp_path
) -> None:
    overrides = [
        "model.cell.variant=pure",
        "train.learning_rate=1e30",
        "train.clip=1e30",
        "train.warm_up=0.0",
    ]
    with pytest.raises(RunError, match=r"not finite at step \d+: .*Lower train.learning_rate") as error:
        train(recipe_path, tmp_path / "run", overrides=[*overrides, "train.checkpoint_steps=1"])
    assert "the last good state is of step" in str(error.value)
    assert (tmp_path / "run" / "training_state.safetensors").exists()


def test_models_approach_the_best_possible_perplexity(recipe_path, tmp_path) -> None:
    text = tmp_path / "text"
    best = write_corpus(AutomatonConfig(states=4, words=12, choices=3, line_length=8.0, seed=1), 20_000, text)
    overrides = [
        f"corpus.path={text}",
        "train.epochs=6",
        "train.batch=16",
        "model.dropout_input=0.0",
        "model.dropout_words=0.0",
        "model.dropout_output=0.0",
        "model.cell.weight_drop=0.0",
    ]
    reached = train(recipe_path, tmp_path / "run", overrides=overrides).test.perplexity
    assert best["perplexity"] * 0.98 < reached < best["perplexity"] * 1.1
    assert load(tmp_path / "run").parameter_count > 0


@pytest.mark.parametrize("cell", ["rnn", "lstm", "mi", "gated", "cascade"])
@pytest.mark.parametrize("head", ["softmax", "mixture"])
def test_every_cell_and_head_trains(recipe_path, tmp_path, cell, head) -> None:
    kind = "gated" if cell == "cascade" else cell
    overrides = [f'model.cell={{kind="{kind}"}}', "train.epochs=1"]
    if cell == "cascade":
        overrides += ["model.layers=2", "model.cascade=true", 'model.output_gate="product"']
    if head == "mixture":
        overrides += [
            'model.head={kind="mixture", experts=2, dropout=0.1}',
            "model.layers=2",
            "model.dropout_layers=0.1",
            "model.output_gate=tanh",
        ]
    summary = train(recipe_path, tmp_path / "run", overrides=overrides)
    assert summary.valid.perplexity < 13  # the vocabulary has 13 words


def test_plateaus_divide_the_rate_and_patience_ends_the_run(recipe_path, tmp_path) -> None:
    overrides = [
        "train.optimiser=sgd",
        "train.schedule=plateau",
        "train.learning_rate=1e-9",
        "train.patience=2",
        "train.epochs=9",
        "train.average=0.0",
        "train.activation_penalty=1.0",
        "train.change_penalty=1.0",
        "train.state=reset",
    ]
    summary = train(recipe_path, tmp_path / "run", overrides=overrides)
    rates = [entry["learning_rate"] for entry in metrics(tmp_path / "run") if "learning_rate" in entry]
    assert rates[-1] == pytest.approx(1e-9 / 4)
    assert summary.training.epochs < 9
    assert summary.training.epochs - summary.training.best_epoch == 2


DISTRIBUTED = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def test_two_processes_give_the_losses_of_one(recipe_path, tmp_path) -> None:
    # Dropout differs between processes by design; without it the two must agree.
    overrides = [
        "train.epochs=2",
        "train.average=0.0",
        *(
            f"model.{key}=0.0"
            for key in ("dropout_input", "dropout_words", "dropout_output", "cell.weight_drop")
        ),
    ]
    single = train(recipe_path, tmp_path / "one", overrides=overrides)
    arguments = [part for override in overrides for part in ("--set", override)]
    command = ["-m", "tslm", "train", str(recipe_path), "--out", str(tmp_path / "two"), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}

    def run_both() -> None:
        done = subprocess.run(
            [*DISTRIBUTED, *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    run_both()
    run_both()  # a finished run is read, by both
    double = read_summary(tmp_path / "two")
    assert double is not None
    assert double.valid.perplexity == pytest.approx(single.valid.perplexity, rel=1e-5)
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert len(one) == len(two)
    for left, right in zip(one, two, strict=True):
        for key in left:
            assert right[key] == pytest.approx(left[key], rel=1e-4 if "norm" in key else 1e-5), key


def test_a_trial_leaves_the_test_split_unread(recipe_path, tmp_path, monkeypatch) -> None:
    read: list[int] = []

    def measure(model, ids, **settings):
        read.append(len(ids))
        return evaluate(model, ids, **settings)

    monkeypatch.setattr("tslm.runs.train.evaluate", measure)
    summary = train(recipe_path, tmp_path / "run", overrides=["train.epochs=1", "train.test=false"])
    assert summary.test is None
    assert "test" not in summary.as_json()
    assert read == [summary.valid.tokens]
    # What is finished can be shown and read again without a test figure.
    assert train(recipe_path, tmp_path / "run", overrides=["train.epochs=1", "train.test=false"]) == summary
    assert "valid" in write_run_page(tmp_path / "run").read_text()
    print_summary(summary)


def test_a_model_trained_with_a_reset_state_is_measured_with_one(recipe_path, tmp_path) -> None:
    overrides = ["train.epochs=1", 'train.state="reset"', "train.window=4"]
    summary = train(recipe_path, tmp_path / "run", overrides=overrides)
    corpus = open_corpus(read_recipe(recipe_path).corpus)
    expected = evaluate_windows(load(tmp_path / "run"), corpus.splits["valid"], 4)
    assert summary.training.valid_windows == expected
    assert summary.training.valid_windows != summary.valid.perplexity
    # The epoch was chosen by the same measure.
    (epoch,) = [entry for entry in read_metrics(tmp_path / "run") if "epoch" in entry]
    assert epoch["valid_perplexity"] == pytest.approx(expected, rel=1e-6)


def test_products_in_bfloat16_end_beside_those_in_single_precision(recipe_path, unbroken, tmp_path) -> None:
    train(recipe_path, tmp_path / "run", overrides=['train.precision="bfloat16"'])
    low, single = outcome(tmp_path / "run"), unbroken
    assert low[2] != single[2]
    ours, theirs = (
        [entry["valid_perplexity"] for entry in made[1] if "epoch" in entry] for made in (low, single)
    )
    assert ours == pytest.approx(theirs, rel=0.01)


def test_a_kind_without_bfloat16_says_so(recipe_path, tmp_path) -> None:
    overrides = ['train.precision="bfloat16"', "train.epochs=1"]
    recipe = tmp_path / "probabilistic.toml"
    text = recipe_path.read_text()
    head, tail = text.split("[model]\n")[0], text[text.index("[train]") : text.index("[objective]")]
    recipe.write_text(
        f'{head}[model]\nkind = "probabilistic"\nrank = 8\nclusters = 2\nalone = 1\n\n{tail}'.replace(
            "average = 0.9\n", ""
        )
    )
    with pytest.raises(RunError, match="'probabilistic' is trained in single precision"):
        train(recipe, tmp_path / "run", overrides=overrides)


@pytest.mark.parametrize(
    ("speed", "precision", "warned"), [(0.25, "bfloat16", 1), (1.9, "bfloat16", 0), (0.25, "single", 0)]
)
def test_a_run_says_where_bfloat16_does_not_pay(
    recipe_path, tmp_path, monkeypatch, speed, precision, warned, told
) -> None:
    monkeypatch.setattr("tslm.training.trainer.bfloat16_speed", lambda: speed)
    overrides = [f"train.precision={precision}", "train.epochs=1"]
    train(recipe_path, tmp_path / "run", overrides=overrides, watcher=told)
    found = [line for line in told.lines if "bfloat16" in line]
    assert len(found) == warned
    assert all("0.25 of its speed" in line and "--set train.precision=single" in line for line in found)
