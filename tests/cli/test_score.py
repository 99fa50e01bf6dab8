from __future__ import annotations

import gzip
import io
import json
from types import SimpleNamespace

import pytest

from tslm.cli import main
from tslm.inference import inputs


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat\na zebra saw the river\n")
    return str(path)


def test_json_lines_and_total(runs, text, capsys) -> None:
    assert main(["score", str(runs["tslm"]), text, "--json", "--tokens"]) == 0
    first, second, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["line"] == 1
    assert first["log_probability"] == pytest.approx(sum(word["log_probability"] for word in first["words"]))
    assert second["unknown"] == ["zebra"]
    assert last["total"]["tokens"] == 13
    assert last["total"]["nats"] == pytest.approx(-first["log_probability"] - second["log_probability"])


def test_one_line_is_one_line(runs, tmp_path, capsys) -> None:
    (tmp_path / "one.txt").write_text("zebra\n")
    assert main(["score", str(runs["tslm"]), str(tmp_path / "one.txt")]) == 0
    assert "2 tokens in 1 line, 1 unknown word\n" in capsys.readouterr().out


def test_tsv_has_the_same_numbers(runs, text, capsys) -> None:
    assert main(["score", str(runs["tslm"]), text, "--json"]) == 0
    expected = json.loads(capsys.readouterr().out.splitlines()[0])
    assert main(["score", str(runs["tslm"]), text, "--tsv"]) == 0
    printed = capsys.readouterr()
    names, first, second = (line.split("\t") for line in printed.out.splitlines())
    entry = dict(zip(names, first, strict=True))
    assert float(entry["log_probability"]) == expected["log_probability"]
    assert dict(zip(names, second, strict=True))["unknown"] == "1"
    assert "perplexity" in printed.err
    assert main(["score", str(runs["tslm"]), text, "--tsv", "--tokens"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[3] for line in lines] == [
        "word",
        "the",
        "cat",
        "sat",
        "on",
        "the",
        "mat",
        "<eos>",
        "a",
        "zebra",
        "saw",
        "the",
        "river",
        "<eos>",
    ]
    assert lines[9][2] == "1"


def test_table_marks_unknown_words_and_ends_with_the_perplexity(runs, text, capsys) -> None:
    assert main(["score", str(runs["kn"]), text, "--tokens", "--carry"]) == 0
    out = capsys.readouterr().out
    assert "⟨zebra⟩" in out
    assert out.splitlines()[-1].startswith("perplexity ")
    assert out.count("<eos>") == 2


def test_reads_standard_input(runs, monkeypatch, capsys) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(b"the cat\n"), isatty=lambda: False)
    monkeypatch.setattr(inputs.sys, "stdin", stdin)
    assert main(["score", str(runs["kn"]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["text"] == "the cat"
    monkeypatch.setattr(inputs.sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b""), isatty=lambda: False))
    assert main(["score", str(runs["kn"])]) == 2
    assert "has no line" in capsys.readouterr().err
    packed = SimpleNamespace(buffer=io.BytesIO(gzip.compress(b"the cat\n")), isatty=lambda: False)
    monkeypatch.setattr(inputs.sys, "stdin", packed)
    assert main(["score", str(runs["kn"])]) == 2
    assert "for example: gunzip -c" in capsys.readouterr().err


def test_errors_are_one_line(runs, tmp_path, capsys) -> None:
    assert main(["score", str(tmp_path / "no run"), "x"]) == 2
    assert main(["score", str(runs["kn"]), str(tmp_path / "missing.txt")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
