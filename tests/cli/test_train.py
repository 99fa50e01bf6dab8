from __future__ import annotations

import json
import shutil

import pytest

import tslm
from tslm.cli import main
from tslm.corpus.synthetic import AutomatonConfig, write_corpus

KEYS = {
    "perplexity",
    "perplexity_reset",
    "bits_per_word",
    "tokens",
    "split",
    "protocol",
    "fingerprint",
    "vocabulary",
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    write_corpus(AutomatonConfig(states=3, words=6, choices=2, line_length=5.0, seed=1), 2000, folder)
    path = folder / "unigram.toml"
    path.write_text(
        f'[corpus]\nname = "own"\npath = ["{folder}"]\nmin_count = 1\n[model]\nkind = "unigram"\nadd = 0.1\n'
    )
    return path


@pytest.fixture(scope="module")
def run(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "unigram"
    assert main(["train", str(recipe), "--out", str(folder)]) == 0
    return folder


def test_train_prints_a_table_and_writes_a_page(recipe, tmp_path, capsys) -> None:
    assert main(["train", str(recipe), "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "perplexity" in printed
    assert (tmp_path / "run" / "report.html").exists()


def test_train_prints_its_summary_as_json(recipe, tmp_path, capsys) -> None:
    arguments = ["train", str(recipe), "--out", str(tmp_path / "run"), "--set", "model.add=2", "--json"]
    assert main(arguments) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["recipe"]["model"] == {"kind": "unigram", "add": 2.0}
    assert summary["test"]["tokens"] > 0


def test_eval_of_a_split_equals_the_summary(run, capsys) -> None:
    assert main(["eval", str(run), "--split", "valid", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report.keys() >= KEYS
    summary = json.loads((run / "summary.json").read_text())
    assert report["perplexity"] == summary["valid"]["perplexity"]
    assert report["fingerprint"] == summary["corpus"]["fingerprint"]
    assert main(["eval", str(run)]) == 0
    assert "protocol" in capsys.readouterr().out


def test_eval_of_a_text_of_ones_own(run, tmp_path, capsys) -> None:
    text = tmp_path / "text.txt"
    word = tslm.load(run).vocabulary.words[0]
    text.write_text(f"{word} {word}\n")
    assert main(["eval", str(run), "--text", str(text), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["tokens"], report["split"]) == (3, "text")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "none.toml"], "cannot read the recipe none.toml"),
        (["eval", "none"], "no run folder at none"),
        (["eval", "x" * 300], "no run folder at xxx"),
    ],
)
def test_what_is_missing_is_told_in_one_line(arguments, message, capsys) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ('kind = "interpolation"\nweights = [0.5, 0.5]', "tslm compare"),
        ('kind = "backoff"\norder = 2', "tslm arpa import"),
    ],
)
def test_what_is_not_estimated_from_a_text_is_refused(recipe, tmp_path, model, message, capsys) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(recipe.read_text().split("[model]")[0] + f"[model]\n{model}\n")
    assert main(["train", str(path), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize("file", ["recipe.toml", "vocabulary.txt", "model.safetensors"])
def test_a_damaged_folder_is_told_in_one_line(run, tmp_path, file, capsys) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: len(content) // 2])
    assert main(["eval", str(folder), "--json"]) == 2
    error = capsys.readouterr().err
    assert str(folder) in error
    assert error.count("\n") == 1


def test_a_folder_that_is_no_run_is_told(tmp_path, capsys) -> None:
    assert main(["eval", str(tmp_path)]) == 2
    assert "no run folder: it has no recipe.toml" in capsys.readouterr().err


def test_the_command_starts_without_pytorch() -> None:
    import subprocess
    import sys

    code = "import sys, tslm.cli; tslm.cli.parser(); print('torch' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"
