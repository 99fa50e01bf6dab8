from __future__ import annotations

import pytest

from tslm.cli import main
from tslm.training.position import Position
from tslm.training.tensorboard import TensorBoard
from tslm.training.watcher import Watcher


def test_events_are_written_and_everything_is_passed_on(tmp_path) -> None:
    heard: list[str] = []

    class Listener(Watcher):
        def step(self, position, total, measured) -> None:
            heard.append("step")

        def epoch(self, position, epochs, train, valid) -> None:
            heard.append("epoch")

        def tell(self, line) -> None:
            heard.append(line)

        def close(self) -> None:
            heard.append("close")

    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    watcher = TensorBoard(tmp_path, Listener())
    watcher.step(Position(step=1), 2, {"loss": 1.5, "gradient_norm": 0.5})
    watcher.epoch(Position(epoch=1), 1, 10.0, 12.0)
    watcher.tell("measuring")
    watcher.close()
    assert heard == ["step", "epoch", "measuring", "close"]
    events = reader.EventAccumulator(str(tmp_path)).Reload()
    assert events.Scalars("gradient_norm")[0].value == 0.5
    assert events.Scalars("perplexity/valid")[0].value == 12.0


def test_a_place_that_is_no_folder_is_one_line(tmp_path, capsys) -> None:
    (tmp_path / "file").touch()
    command = ["train", "asv/kn5", "--out", str(tmp_path / "run"), "--tensorboard", str(tmp_path / "file")]
    assert main(command) == 2
    assert "file is a file, not a folder" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
