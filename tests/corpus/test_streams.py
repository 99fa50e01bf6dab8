"""Columns: every token is predicted exactly once, in order, whatever the batch, window and processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tslm.corpus.streams import PADDING, Columns
from tslm.errors import ShapeError

EOS_ID = 7
shapes = {"count": st.integers(1, 200), "batch": st.integers(1, 20), "window": st.integers(1, 30)}


def join(columns: Columns) -> tuple[torch.Tensor, torch.Tensor]:
    windows = list(columns.windows())
    assert len(windows) == len(columns)
    inputs_BT = torch.cat([inputs for inputs, _ in windows], dim=1)
    targets_BT = torch.cat([targets for _, targets in windows], dim=1)
    return inputs_BT, targets_BT


@given(**shapes)
def test_every_token_is_a_target_exactly_once_in_order(count: int, batch: int, window: int):
    ids = np.arange(100, 100 + count, dtype=np.int32)
    columns = Columns(ids, batch=batch, window=window, eos_id=EOS_ID)
    _, targets_BT = join(columns)
    real_BT = targets_BT != PADDING
    assert targets_BT[real_BT].tolist() == ids.tolist()
    assert columns.target_count == count
    # Padding is at most one place per column, the last one, and never a hole.
    assert bool((real_BT.sum(1) >= targets_BT.shape[1] - 1).all())
    assert bool(real_BT[:, : targets_BT.shape[1] - 1].all())


@given(**shapes)
def test_each_input_is_the_token_before_its_target_and_columns_start_with_eos(
    count: int, batch: int, window: int
):
    ids = np.arange(100, 100 + count, dtype=np.int32)
    inputs_BT, targets_BT = join(Columns(ids, batch=batch, window=window, eos_id=EOS_ID))
    assert bool((inputs_BT[:, 0] == EOS_ID).all())
    follows_BT = targets_BT[:, 1:] != PADDING
    assert torch.equal(inputs_BT[:, 1:][follows_BT], targets_BT[:, :-1][follows_BT])


@given(**shapes, world=st.integers(1, 5))
def test_shards_partition_the_columns(count: int, batch: int, window: int, world: int):
    batch = max(batch, world)
    ids = np.arange(100, 100 + count, dtype=np.int32)
    whole = Columns(ids, batch=batch, window=window, eos_id=EOS_ID)
    shards = [
        Columns(ids, batch=batch, window=window, eos_id=EOS_ID, rank=rank, world=world)
        for rank in range(world)
    ]
    assert {len(shard) for shard in shards} == {len(whole)}
    assert sum(shard.batch for shard in shards) == batch
    assert sum(shard.target_count for shard in shards) == count
    for index in range(len(whole)):
        parts = [shard[index] for shard in shards]
        for place in (0, 1):
            assert torch.equal(torch.cat([part[place] for part in parts]), whole[index][place])


@given(**shapes)
def test_windows_are_full_but_the_last(count: int, batch: int, window: int):
    columns = Columns(np.arange(count, dtype=np.int32), batch=batch, window=window, eos_id=EOS_ID)
    widths = [inputs.shape[1] for inputs, _ in columns.windows()]
    assert widths[:-1] == [window] * (len(columns) - 1)
    assert sum(widths) == -(-count // batch)
    for _, targets_BT in list(columns.windows())[:-1]:
        assert bool((targets_BT != PADDING).all())


def test_resuming_at_a_window_gives_the_same_windows():
    columns = Columns(np.arange(103, dtype=np.int32), batch=4, window=5, eos_id=EOS_ID)
    rest = list(columns.windows(start=3))
    assert len(rest) == len(columns) - 3
    for (inputs_BT, targets_BT), index in zip(rest, range(3, len(columns)), strict=True):
        assert torch.equal(inputs_BT, columns[index][0])
        assert torch.equal(targets_BT, columns[index][1])


def test_windows_are_int64_and_do_not_alias_the_text():
    ids = np.arange(10, dtype=np.int32)
    inputs_BT, targets_BT = Columns(ids, batch=1, window=10, eos_id=EOS_ID)[0]
    assert inputs_BT.dtype == targets_BT.dtype == torch.int64
    targets_BT.zero_()
    assert ids.tolist() == list(range(10))


def test_a_window_outside_the_epoch_is_an_index_error():
    columns = Columns(np.arange(10, dtype=np.int32), batch=2, window=3, eos_id=EOS_ID)
    with pytest.raises(IndexError):
        columns[2]
    assert torch.equal(columns[-1][1], columns[1][1])


@pytest.mark.parametrize(
    ("ids", "options", "words"),
    [
        (np.zeros(0, np.int32), {}, "at least one"),
        (np.zeros((2, 2), np.int32), {}, "flat"),
        (np.zeros(9, np.int32), {"batch": 0}, "batch 0"),
        (np.zeros(9, np.int32), {"window": 0}, "window 0"),
        (np.zeros(9, np.int32), {"rank": 2, "world": 2}, "rank 2"),
        (np.zeros(9, np.int32), {"world": 5}, "too small for 5"),
    ],
)
def test_shapes_that_cannot_be_are_refused(ids: np.ndarray, options: dict[str, int], words: str):
    with pytest.raises(ShapeError, match=words):
        Columns(ids, **({"batch": 2, "window": 3, "eos_id": EOS_ID} | options))
