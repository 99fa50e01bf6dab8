from __future__ import annotations

import json
import tomllib

from tslm.cli import main
from tslm.runs.recipe import read_recipe


def test_lists_every_recipe_with_corpus_kind_and_size(capsys) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["recipe", "corpus", "kind", "size"]
    rows = {line.split()[0]: line for line in lines[1:]}
    assert list(rows) == sorted(rows)
    assert rows["ptb/kn5"].split(maxsplit=3) == ["ptb/kn5", "ptb", "ngram", "order 5, kneser-ney"]
    assert rows["ptb/tslm-mos"].endswith("TSLM 256, 3 softmaxes")
    assert all(len(line) <= 80 for line in lines)
    assert main(["recipes", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in entries] == list(rows)
    for entry in entries:
        assert read_recipe(entry["name"]).corpus.name == entry["corpus"]


def test_shows_one_recipe(capsys, tmp_path) -> None:
    assert main(["recipes", "ptb/kn5"]) == 0
    text = capsys.readouterr().out
    (tmp_path / "my.toml").write_text(text)
    assert read_recipe(tmp_path / "my.toml") == read_recipe("ptb/kn5")
    assert tomllib.loads(text)["model"]["order"] == 5
    assert main(["recipes", str(tmp_path / "my.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["prune"] == []
    assert main(["recipes", "ptb/kn55"]) == 2
    assert "did you mean 'ptb/kn5'" in capsys.readouterr().err
