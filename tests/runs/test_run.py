from __future__ import annotations

import subprocess
import sys

import pytest

import tslm
from tslm.cli import main
from tslm.errors import RecipeError, RunError
from tslm.runs.run import open_run
from tslm.runs.summary import read_summary
from tslm.runs.train import train


def test_a_run_has_recipe_vocabulary_model_and_summary(runs) -> None:
    run = open_run(str(runs["kn"]))
    assert run.recipe.kind == "ngram"
    assert run.model is run.model
    assert run.model.vocabulary == run.vocabulary
    assert run.summary == read_summary(runs["kn"])
    assert run.open_corpus().vocabulary == run.vocabulary
    assert tslm.load(runs["kn"]).parameter_count == run.summary.parameters


@pytest.fixture(scope="module")
def made(runs, tmp_path_factory):
    """A mix, and a model from an ARPA file."""
    folder = tmp_path_factory.mktemp("made")
    mix = ["compare", str(runs["kn"]), str(runs["tslm"]), "--mix", "linear", "--out", str(folder / "mix")]
    assert main([*mix, "--resamples", "10"]) == 0
    assert main(["arpa", "export", str(runs["kn"]), str(folder / "kn.arpa")]) == 0
    assert main(["arpa", "import", str(folder / "kn.arpa"), "--out", str(folder / "imported")]) == 0
    return folder


def test_mixed_and_imported_models_have_a_summary_too(made) -> None:
    mix, imported = read_summary(made / "mix"), read_summary(made / "imported")
    assert (mix.parts, mix.seconds, mix.training) == (("ngram", "recurrent"), None, None)
    assert mix.test.perplexity > 1
    assert mix.versions.keys() == imported.versions.keys() == {"tslm", "torch", "numpy", "python"}
    assert (imported.kind, imported.corpus.name, imported.splits) == ("backoff", "kn.arpa", {})
    assert imported.parameters == tslm.load(made / "imported").parameter_count


@pytest.mark.parametrize(("name", "command"), [("mix", "tslm compare"), ("imported", "tslm arpa import")])
def test_what_is_made_of_something_else_is_shown_and_not_trained(made, name, command, capsys) -> None:
    recipe = made / name / "recipe.toml"
    assert main(["train", str(recipe), "--out", str(made / name)]) == 0
    assert "parameters" in capsys.readouterr().out
    assert main(["train", str(recipe), "--out", str(made / "elsewhere")]) == 2
    error = capsys.readouterr().err
    assert f"make one with: {command}" in error
    assert error.count("\n") == 1
    assert not (made / "elsewhere").exists()


def test_a_made_model_of_other_settings_is_refused(made) -> None:
    recipe = made / "mix" / "recipe.toml"
    with pytest.raises(RunError, match=r"another recipe \(different: model.weights\)"):
        train(recipe, made / "mix", overrides=["model.weights=[0.5, 0.5]"])


def test_a_mix_of_ngram_models_without_unk_finds_its_corpus_again(tmp_path) -> None:
    (tmp_path / "text.txt").write_text("a b c a c\nb c a b a\n" * 40)
    recipe = f'[corpus]\nname = "own"\npath = ["{tmp_path / "text.txt"}"]\nmin_count = 1\n[model]\nkind = "ngram"\n'
    (tmp_path / "recipe.toml").write_text(recipe + "discount_fallback = [0.5]\n")
    for order in (1, 2):
        train(tmp_path / "recipe.toml", tmp_path / str(order), overrides=[f"model.order={order}"])
    command = ["compare", str(tmp_path / "1"), str(tmp_path / "2"), "--mix", "linear", "--resamples", "10"]
    assert main([*command, "--out", str(tmp_path / "mix")]) == 0
    assert main(["eval", str(tmp_path / "mix")]) == 0


def test_counting_does_not_go_with_torchrun(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match="without torchrun"):
        train("asv/kn3", tmp_path / "run")


def test_everything_is_imported_without_what_windows_lacks() -> None:
    code = """
import pkgutil, signal, sys
sys.modules["resource"] = None
del signal.SIGHUP
import tslm
for module in pkgutil.walk_packages(tslm.__path__, "tslm."):
    # transformers itself asks the system for more here than it does on Windows; the harness is not installed for tests.
    hugging_face = ("tslm.interop.huggingface", "tslm.interop.hf_folder", "tslm.interop.hf_model")
    left = ("tslm.__main__", *hugging_face, "tslm.interop.lm_eval")
    if module.name not in left:
        __import__(module.name)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
