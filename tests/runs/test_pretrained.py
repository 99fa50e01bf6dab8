from __future__ import annotations

import pytest

import tslm
from tslm.cache import cache_dir
from tslm.errors import CorpusError, RunError
from tslm.models.arrays import WEIGHTS
from tslm.runs.pretrained import PACKED, PRETRAINED, find_pretrained, name_run, pretrained_names

LARGEST = 10_000_000
"""Bytes that all of them may have together: the package is fetched by everybody."""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_they_are_small_and_open_by_the_name_of_their_recipe(cache, capsys) -> None:
    assert pretrained_names() == ["asv/gated", "asv/kn5"]
    assert sum(path.stat().st_size for path in PRETRAINED.rglob("*")) < LARGEST
    for name in pretrained_names():
        run = tslm.open_run(name)
        assert run.folder.is_relative_to(cache)
        assert run.recipe.corpus.name == "asv"
        true, shuffled = tslm.score(name, ["The king said unto him.", "Him unto said king the."])
        assert true.perplexity < shuffled.perplexity / 10
    assert {entry.name for entry in tslm.list_recipes() if entry.pretrained} == {*pretrained_names()}


def test_their_summaries_are_true() -> None:
    """The first words of valid, measured now, are about as perplexing as the whole was."""
    corpus = tslm.open_corpus("asv")
    for name in pretrained_names():
        run = tslm.open_run(name)
        assert run.summary.corpus.fingerprint == corpus.fingerprint
        measured = tslm.evaluate(run, corpus.splits["valid"][:4000], reset=False).perplexity
        assert measured == pytest.approx(run.summary.valid.perplexity, rel=0.3)


def test_a_folder_of_that_name_comes_first(cache, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asv" / "kn5").mkdir(parents=True)
    with pytest.raises(RunError, match="is no run folder"):
        tslm.load("asv/kn5")
    with pytest.raises(RunError, match="comes with tslm: asv/gated, asv/kn5"):
        tslm.load("asv/kn4")
    for name in ("../pretrained/asv/kn5", "asv", ".", "asv/kn5/.."):
        assert find_pretrained(name) is None


def test_what_is_unpacked_is_unpacked_once_and_its_damage_is_found(cache) -> None:
    folder = find_pretrained("asv/gated")
    assert folder is not None
    before = (folder / WEIGHTS).stat().st_mtime_ns
    assert find_pretrained("asv/gated") == folder
    assert (folder / WEIGHTS).stat().st_mtime_ns == before
    with (folder / WEIGHTS).open("r+b") as file:
        file.seek(5000)
        file.write(b"x")
    with pytest.raises(RunError, match=WEIGHTS):
        tslm.load("asv/gated")
    (folder / WEIGHTS).unlink()  # as when the process was killed while it unpacked
    assert tslm.load("asv/gated").kind == "recurrent"


def test_a_cache_that_cannot_be_written_is_told_in_one_line(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "file"))
    with pytest.raises(CorpusError, match="TSLM_CACHE"):
        tslm.load("asv/kn5")
    assert not (cache_dir() / "models").exists()
    assert (PRETRAINED / "asv" / "kn5" / PACKED).is_file()


def test_a_run_is_called_by_the_name_it_comes_under(runs) -> None:
    assert name_run(tslm.open_run("asv/kn5").folder) == "asv/kn5"
    assert name_run(runs["kn"]) == str(runs["kn"])
