"""A model assembled from shards is the one that they were written from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.ngram.test_packing import check_equal
from tests.models.ngram.test_smoothed import small_corpus

import tslm
from tslm.errors import RunError
from tslm.models.ngram import shards
from tslm.models.ngram.shards import DESCRIPTION, FORMAT, VOCABULARY, shard_folder
from tslm.models.ngram.smoothed import NgramConfig, NgramModel
from tslm.runs.assembled import assemble_run

arrow: Any = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'tslm[spark]'")
ORDER = 4


def write_shards(model: NgramModel, folder: Path) -> None:
    """Write the shards of a model, two files for each order."""
    from pyarrow import parquet

    trie, table = model.table.trie, model.table
    for level in range(1, ORDER + 1):
        nodes = np.arange(trie.levels[level], trie.levels[level + 1])
        words = trie.spell(nodes, level)
        columns = {f"w{place + 1}": words[:, place].astype(np.int32) for place in range(level)}
        columns["probability"] = np.exp(table.log_probability[nodes])
        columns["weight"] = np.exp(table.log_weight[trie.parents[nodes]])
        shard_folder(folder, level).mkdir(parents=True)
        whole, half = arrow.table(columns), len(nodes) // 2
        for number, part in enumerate((whole.slice(0, half), whole.slice(half))):
            parquet.write_table(part, shard_folder(folder, level) / f"part-{number:05}.parquet")
    model.vocabulary.save(folder / VOCABULARY)
    model.rule.save(folder / "text.json")
    description = {"format": FORMAT, "order": ORDER, "tokens": 7, "seconds": 1.0}
    (folder / DESCRIPTION).write_text(json.dumps(description))


@pytest.fixture
def model() -> NgramModel:
    return NgramModel.fit(NgramConfig(order=ORDER), small_corpus())


@pytest.mark.parametrize("batch", [7, 1 << 20])
def test_the_model_of_shards_is_the_model(model, batch, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shards, "BATCH", batch)
    write_shards(model, tmp_path / "counts")
    summary = assemble_run(tmp_path / "counts", tmp_path / "run")
    assert summary.corpus.train_tokens == 7
    found: Any = tslm.load(tmp_path / "run")
    for name in ("log_probability", "log_weight"):
        np.testing.assert_allclose(getattr(found.table, name), getattr(model.table, name), atol=1e-14)
        getattr(model.table, name)[:] = getattr(found.table, name)
    check_equal(found.table, model.table)
    assert found.vocabulary == model.vocabulary
    with pytest.raises(RunError, match="holds a run already"):
        assemble_run(tmp_path / "counts", tmp_path / "run")


@pytest.mark.parametrize("damage", ["order", "missing", "unfinished", "words", "cut"])
def test_shards_that_are_damaged_are_refused(model, damage, tmp_path) -> None:
    counts = tmp_path / "counts"
    write_shards(model, counts)
    first, second = sorted(shard_folder(counts, 3).iterdir())
    if damage == "order":
        second.rename(shard_folder(counts, 3) / "part-.parquet")
    elif damage == "missing":
        second.unlink()
    elif damage == "unfinished":
        (counts / DESCRIPTION).unlink()
    elif damage == "cut":
        first.write_bytes(first.read_bytes()[:-9])
    else:
        (counts / VOCABULARY).write_text("<eos>\na\n")
    with pytest.raises(RunError, match=r"damaged|no finished folder"):
        assemble_run(counts, tmp_path / "run")
    assert not (tmp_path / "run" / "summary.json").exists()
