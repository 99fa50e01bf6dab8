"""``tslm data``: what it prints, and one clear line with exit code 2 for what it cannot do."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from tslm.cli import main
from tslm.corpus.sources import Corpus, open_corpus
from tslm.corpus.synthetic import Automaton, AutomatonConfig


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.txt"
    path.write_text("".join(f"The line {number % 7} is a line\n" for number in range(40)))
    return path


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str):
    assert main(["data", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.ptb
@pytest.mark.wikitext
def test_stats_of_the_real_corpora_as_json(ptb: Corpus, wikitext: Corpus, capsys: pytest.CaptureFixture[str]):
    found = run_json(capsys, "stats", "ptb", "wikitext-2")
    assert list(found) == ["ptb", "wikitext-2"]
    assert found["ptb"]["vocabulary"] == 10_000
    assert found["wikitext-2"]["vocabulary"] == 33_278
    tokens = {name: [entry["tokens"] for entry in of["splits"].values()] for name, of in found.items()}
    assert tokens == {"ptb": [929_589, 73_760, 82_430], "wikitext-2": [2_088_628, 217_646, 245_569]}
    assert round(100 * found["ptb"]["splits"]["train"]["oov_rate"], 1) == 4.8  # as in the paper's Table 1
    assert round(100 * found["wikitext-2"]["splits"]["train"]["oov_rate"], 1) == 2.6


@pytest.mark.ptb
def test_stats_as_a_table(ptb: Corpus, capsys: pytest.CaptureFixture[str]):
    assert main(["data", "stats", "ptb"]) == 0
    output = capsys.readouterr().out
    assert "929,589" in output
    assert "4.8 %" in output
    assert "10,000" in output


def test_stats_without_a_name_are_those_of_the_embedded_corpus(capsys: pytest.CaptureFixture[str]):
    assert list(run_json(capsys, "stats")) == ["asv"]


def test_stats_of_own_text_with_options(own: Path, capsys: pytest.CaptureFixture[str]):
    found = run_json(capsys, "stats", str(own), "--lower", "--max-vocabulary", "5", "--test-fraction", "0.5")
    assert found[str(own)]["vocabulary"] == 5
    assert found[str(own)]["splits"]["test"]["lines"] == 20
    both = run_json(capsys, "stats", "--files", str(own), str(own))
    assert sum(entry["lines"] for entry in both["files"]["splits"].values()) == 80


def test_stats_and_show_take_a_tokeniser(own: Path, capsys: pytest.CaptureFixture[str]):
    own.write_text("".join(f"The line {number % 7}, isn't it?\n" for number in range(40)))
    words = run_json(
        capsys, "stats", str(own), "--tokeniser", "words", "--min-count", "1", "--max-vocabulary", "99"
    )
    assert (
        words[str(own)]["vocabulary"] == len({"the", "line", ",", "isn't", "it", "?", "<eos>", "<unk>"}) + 7
    )
    bpe = run_json(capsys, "stats", str(own), "--tokeniser", "bpe", "--max-vocabulary", "265")
    assert bpe[str(own)]["vocabulary"] == 265
    assert all(entry["oov_rate"] == 0 for entry in bpe[str(own)]["splits"].values())
    for key in ("bytes", "words", "lines"):
        counts = [[entry[key] for entry in of[str(own)]["splits"].values()] for of in (words, bpe)]
        assert counts[0] == counts[1]
    assert main(["data", "show", str(own), "--tokeniser", "words", "--head", "1"]) == 0
    assert capsys.readouterr().out == "The line 0 , isn't it ?\n"


def test_stats_of_standard_input(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cache_folder: Path
):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(own.read_bytes())))
    from_input = run_json(capsys, "stats", "-")["-"]
    assert from_input == run_json(capsys, "stats", str(own))[str(own)]
    assert list(cache_folder.glob(".stdin*")) == []


def test_stats_of_pipes(own: Path, capfd: pytest.CaptureFixture[str], cache_folder: Path):
    read, write = os.pipe()
    other, more = os.pipe()
    for end in (write, more):
        os.write(end, own.read_bytes())
        os.close(end)
    names = [f"/dev/fd/{read}", f"/dev/fd/{other}"]  # what the shell gives for <(cat own.txt)
    assert main(["data", "stats", "--files", *names, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)["files"]
    assert main(["data", "stats", "--files", str(own), str(own), "--json"]) == 0
    assert found == json.loads(capfd.readouterr().out)["files"]
    assert list(cache_folder.glob(".stdin*")) == []


def test_a_corpus_from_a_pipe_is_not_called_by_the_number_of_the_pipe(own: Path):
    read, write = os.pipe()
    os.write(write, own.read_bytes())
    os.close(write)
    assert open_corpus(f"/dev/fd/{read}").name == "pipe"


@pytest.mark.parametrize("action", ["list", "stats", "show", "download", "path", "make"])
def test_every_action_has_examples_in_its_help(action: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["data", action, "--help"])
    assert f"examples:\n  tslm data {action}" in capsys.readouterr().out


@pytest.mark.parametrize("head", ["-3", "0", "many"])
def test_a_number_of_lines_that_cannot_be_shown_is_refused(
    head: str, own: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as stopped:
        main(["data", "show", str(own), "--head", head])
    assert stopped.value.code == 2
    assert f"argument --head: '{head}' is not a whole number of 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["list"], ["stats", "ptb"], ["stats", "asv"], ["show", "ptb"], ["path", "ptb"]]
)
@pytest.mark.parametrize("name", ["nowhere", "a" * 300])
def test_a_data_folder_that_is_not_there_is_refused(
    arguments: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["data", *arguments, "--data-dir", str(tmp_path / name)]) == 2
    errors = capsys.readouterr().err
    assert f"no folder at {tmp_path / name} to look for corpora in" in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("place", ["five.txt", "five.txt/below", "a" * 300])
def test_making_text_in_no_folder_is_refused_before_any_work(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tslm.corpus.synthetic.Automaton", None)
    (tmp_path / "five.txt").write_text("5\n")
    assert main(["data", "make", "--out", str(tmp_path / place)]) == 2
    errors = capsys.readouterr().err
    expected = "five.txt is a file, not a folder" if place.startswith("five") else "File name too long"
    assert expected in errors
    assert errors.count("\n") == 1


def test_list_names_every_corpus(capsys: pytest.CaptureFixture[str]):
    assert list(run_json(capsys, "list")) == ["asv", "ptb", "wikitext-2"]
    assert main(["data", "list"]) == 0
    assert "built in" in capsys.readouterr().out


def test_list_says_where_files_are_and_when_they_are_unusable(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("TSLM_DATA", raising=False)
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "cache"))
    assert run_json(capsys, "list")["ptb"]["where"] == "downloaded when first used"
    (tmp_path / "ptb").mkdir()
    (tmp_path / "ptb" / "ptb.train.txt").write_text("not the treebank\n")
    where = run_json(capsys, "list", "--data-dir", str(tmp_path))["ptb"]["where"]
    assert "lacks ptb.valid.txt and ptb.test.txt" in where


def test_show_prints_lines_as_a_model_sees_them(own: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["data", "show", str(own), "--head", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("The line ") and line.endswith(" is a line") for line in lines)
    found = run_json(capsys, "show", str(own), "--split", "test", "--head", "99")
    assert len(found["lines"]) == 2


@pytest.mark.ptb
def test_path_prints_the_files(ptb: Corpus, capsys: pytest.CaptureFixture[str]):
    assert main(["data", "path", "ptb"]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in paths] == ["ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"]
    assert all(path.is_file() for path in paths)


def test_path_without_a_name_is_the_cache(capsys: pytest.CaptureFixture[str], cache_folder: Path):
    assert run_json(capsys, "path") == {"cache": str(cache_folder)}


def test_make_writes_text_with_the_exact_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "made"
    options = ["--tokens", "3000", "--seed", "5", "--states", "3", "--words", "9", "--choices", "4"]
    found = run_json(capsys, "make", "--out", str(folder), *options)
    expected = Automaton(AutomatonConfig(states=3, words=9, choices=4, seed=5))
    assert found["perplexity"] == pytest.approx(expected.perplexity, rel=1e-12)
    assert json.loads((folder / "automaton.json").read_text()) == found
    stats = run_json(capsys, "stats", str(folder), "--min-count", "1")[str(folder)]
    assert {split: entry["tokens"] for split, entry in stats["splits"].items()} == {
        split: entry["tokens"] for split, entry in found["splits"].items()
    }
    assert main(["data", "make", "--out", str(tmp_path / "other")]) == 0
    assert "best possible perplexity" in capsys.readouterr().out


def write(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


BAD = {
    "a name too long for a file": (
        lambda folder: "a" * 300,
        f"unknown corpus '{'a' * 300}', and no such file",
    ),
    "a path too long": (lambda folder: f"./{'a' * 300}.txt", "a.txt: File name too long; check the path"),
    "a home of nobody": (
        lambda folder: "~nobody-of-this-name/a.txt",
        "cannot read ~nobody-of-this-name/a.txt",
    ),
    "a missing file": (lambda folder: str(folder / "none.txt"), "no such file or folder: "),
    "an empty file": (lambda folder: write(folder, "a.txt", b""), "a.txt is empty"),
    "a folder without train": (lambda folder: str(folder), "has no train split; add a file train.txt"),
    "invalid UTF-8": (
        lambda folder: write(folder, "a.txt", b"ab\ncd \xe9\n"),
        "a.txt, line 2, byte 6: byte 0xe9 is not valid UTF-8",
    ),
    "UTF-16": (
        lambda folder: write(folder, "a.txt", "ab\ncd\n".encode("utf-16")),
        "save the file as UTF-8 (for example: iconv -f utf-16 -t utf-8)",
    ),
    "NUL bytes": (lambda folder: write(folder, "a.txt", b"ab\nc\0d\n"), "a.txt, line 2, byte 4: a NUL byte"),
    "a word of 10 MB": (
        lambda folder: write(folder, "a.txt", b"ab\n" + b"x" * 10_000_000),
        "a.txt, line 2, byte 3: a word of more than 1,048,576 bytes",
    ),
    "an unknown name": (lambda folder: "pbt", "unknown corpus 'pbt', and no such file: did you mean 'ptb'?"),
    "too few lines": (lambda folder: write(folder, "a.txt", b"ab\ncd\n"), "a text of 2 lines"),
    "a damaged archive": (
        lambda folder: write(folder, "a.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\x03abc"),
        "a.gz is damaged or cut short",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    make, expected = BAD[case]
    assert main(["data", "stats", make(tmp_path / "data")]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("tslm: ")
    assert errors.count("\n") == 1
    assert expected in errors
    # Nothing half-written: the cache holds no corpus.
    assert [path for path in tmp_path.glob("cache/corpora/*") if path.suffix != ".lock"] == []


@pytest.mark.parametrize(
    "data",
    [b"one two\r\nthree\r\nfour\r\n" * 3, b"\xef\xbb\xbf" + b"one two\nthree\nfour\n" * 3],
    ids=["CRLF", "byte-order mark"],
)
def test_crlf_and_a_byte_order_mark_make_no_difference(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    given, plain = (
        write(tmp_path, "given.txt", data),
        write(tmp_path, "plain.txt", b"one two\nthree\nfour\n" * 3),
    )
    found, expected = (run_json(capsys, "stats", path)[path] for path in (given, plain))
    sizes = [sum(entry.pop("bytes") for entry in row["splits"].values()) for row in (found, expected)]
    assert found == expected
    assert sizes == [len(data.removeprefix(b"\xef\xbb\xbf")), 57]  # as they stand in the file


def test_a_line_of_10_megabytes_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write(tmp_path, "long.txt", b"a b\n" * 20 + b"word " * 2_000_000 + b"\n")
    splits = run_json(capsys, "stats", path)[path]["splits"]
    assert sum(entry["tokens"] for entry in splits.values()) == 20 * 3 + 2_000_001
    assert sum(entry["lines"] for entry in splits.values()) == 21


def test_a_word_outside_a_vocabulary_without_unk_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for split, text in (("train", "a b\n"), ("valid", "a strange b\n"), ("test", "a\n")):
        (tmp_path / f"{split}.txt").write_text(text)
    assert main(["data", "stats", str(tmp_path), "--min-count", "1"]) == 2
    errors = capsys.readouterr().err
    assert "valid: the word 'strange' is not in the vocabulary, and there is no <unk>" in errors
    assert errors.count("\n") == 1


def test_a_corpus_that_cannot_be_had_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tslm.corpus.download.FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.delenv("TSLM_DATA", raising=False)
    monkeypatch.setenv("TSLM_CACHE", str(tmp_path / "cache"))
    for command in (["stats", "wikitext-2"], ["download", "wikitext-2"]):
        assert main(["data", *command]) == 2
        errors = capsys.readouterr().err
        assert errors.count("\n") == 1
        assert "put wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens into" in errors
    assert main(["data", "path", "wikitext-2"]) == 2
    assert "tslm data download wikitext-2" in capsys.readouterr().err
    assert main(["data", "download", "wikitext"]) == 2
    assert "did you mean 'wikitext-2'?" in capsys.readouterr().err
