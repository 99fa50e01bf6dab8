from __future__ import annotations

from pathlib import Path

import pytest

from tslm.errors import RecipeError
from tslm.runs.recipe import make_recipe, read_recipe, recipe_tables, write_recipe
from tslm.training.config import TrainConfig

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*/*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_recipe_loads_and_survives_writing(path, tmp_path) -> None:
    recipe = read_recipe(path)
    assert recipe.corpus.name == path.parent.name
    write_recipe(tmp_path / "recipe.toml", recipe)
    assert read_recipe(tmp_path / "recipe.toml") == recipe


def write(tmp_path, text) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_overrides_are_read_as_toml_or_as_words(tmp_path) -> None:
    path = write(tmp_path, '[model]\nkind = "recurrent"\n[train]\nseed = 1\n')
    changes = [
        "train.seed=2",
        "model.cell.kind=lstm",
        "model.tied=false",
        "train.learning_rate=1e-2",
        'corpus.path=["a"]',
    ]
    recipe = read_recipe(path, changes)
    assert recipe.train is not None
    assert (recipe.train.seed, recipe.train.learning_rate) == (2, 0.01)
    assert (recipe.model.cell.kind, recipe.model.tied) == ("lstm", False)
    assert recipe.corpus.path == ("a",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\n", "missing key 'model.kind'"),
        ('[model]\nkind = "kneser"\n', "unknown model.kind 'kneser'"),
        ('[model]\nkind = "recurrent"\n[trian]\n', r"unknown table \[trian\]: did you mean 'train'"),
        (
            '[model]\nkind = "recurrent"\n[train]\nepoch = 1\n',
            "unknown key 'train.epoch': did you mean 'epochs'",
        ),
        ('[model]\nkind = "unigram"\n[train]\n', "is not trained by gradients"),
        ('train = 3\n[model]\nkind = "recurrent"\n', "is not a table"),
        ('[model\nkind = "recurrent"\n', "cannot read the recipe"),
    ],
)
def test_wrong_recipes_are_named(tmp_path, text, message) -> None:
    with pytest.raises(RecipeError, match=message):
        read_recipe(write(tmp_path, text))


@pytest.mark.parametrize("name", ["", ".", "x" * 300, "ptb", "recipes"])
def test_what_is_no_recipe_is_told_in_one_line(name) -> None:
    with pytest.raises(RecipeError, match="cannot read the recipe"):
        read_recipe(Path(name))


def test_the_projects_own_recipes_go_by_name() -> None:
    assert read_recipe(Path("ptb/kn5")).kind == "ngram"
    assert read_recipe("ptb/kn5") == read_recipe(Path("ptb/kn5"))
    with pytest.raises(RecipeError, match=r"ptb/kn55.* did you mean 'ptb/kn5'"):
        read_recipe("ptb/kn55")


def test_recipes_of_older_versions_still_open() -> None:
    old = {"model": {"kind": "kneser-ney", "order": 3, "smoothing": "plain"}}
    recipe = make_recipe(old)
    assert recipe == make_recipe({"model": {"kind": "ngram", "order": 3, "smoothing": "kneser-ney-single"}})
    assert recipe_tables(recipe)["model"]["kind"] == "ngram"
    assert make_recipe({"model": {"kind": "kneser-ney"}}).model.smoothing == "kneser-ney"
    with pytest.raises(RecipeError, match=r"model\.smoothing"):
        make_recipe({"model": {"kind": "ngram", "smoothing": [1]}})
    for path in (RECIPES[0].parents[2] / "results").rglob("recipe.toml"):
        read_recipe(path)


def test_overrides_reach_into_nested_tables(tmp_path) -> None:
    path = write(tmp_path, '[model]\nkind = "unigram"\n')
    with pytest.raises(RecipeError, match=r"unknown key 'model\.inner'"):
        read_recipe(path, ["model.inner.key=1"])
    with pytest.raises(RecipeError, match=r"model.kind = 'unigram' is not a table"):
        read_recipe(path, ["model.kind.key=1"])


@pytest.mark.parametrize("override", ["seed=2", "train.seed", "=", "train.=1"])
def test_wrong_overrides_are_named(tmp_path, override) -> None:
    with pytest.raises(RecipeError, match="is not of the form"):
        read_recipe(write(tmp_path, '[model]\nkind = "recurrent"\n'), [override])


def test_a_missing_recipe_is_named(tmp_path) -> None:
    with pytest.raises(RecipeError, match=r"cannot read the recipe .*No such file"):
        read_recipe(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs"),
        ({"clip": 0.0}, "clip"),
        ({"warm_up": 1.0}, "warm_up"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
    ],
)
def test_training_settings_are_checked(settings, message) -> None:
    with pytest.raises(RecipeError, match=f"train.{message}"):
        TrainConfig(**settings)


def test_every_default_is_written_out() -> None:
    tables = recipe_tables(make_recipe({"model": {"kind": "recurrent"}}))
    assert tables["train"]["epochs"] == TrainConfig().epochs
    assert tables["model"]["kind"] == "recurrent"
