from __future__ import annotations

import json

from tslm.cli import main


def test_streams_one_sample_and_repeats_it(runs, capsys) -> None:
    command = [
        "generate",
        str(runs["tslm"]),
        "--prompt",
        "the cat sat on",
        "--length",
        "6",
        "--seed",
        "3",
        "--top-k",
        "5",
    ]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert out.startswith("the cat sat on ")
    assert main([*command, "--json"]) == 0
    [sample] = json.loads(capsys.readouterr().out)["samples"]
    assert sample["text"] == out.rstrip("\n")
    assert sample["reason"] in ("stop", "length")
    assert sample["log_probability"] < 0


def test_several_samples_on_lines_of_their_own(runs, capsys) -> None:
    command = ["generate", str(runs["kn"]), "--number", "3", "--length", "4", "--no-unk", "--top-p", "0.9"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert "<unk>" not in " ".join(lines)


def test_goes_on_over_sentences(runs, capsys) -> None:
    assert main(["generate", str(runs["kn"]), "--go-on", "--length", "40"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert "<eos>" not in " ".join(lines)
    assert all(line == line.strip() for line in lines)


def test_stops_before_a_word(runs, capsys) -> None:
    assert main(["generate", str(runs["kn"]), "--number", "8", "--stop", "the", "--json"]) == 0
    for sample in json.loads(capsys.readouterr().out)["samples"]:
        assert "the" not in sample["text"].split()


def test_wrong_numbers_are_one_line(runs, capsys) -> None:
    assert main(["generate", str(runs["kn"]), "--temperature", "-1"]) == 2
    assert main(["generate", str(runs["kn"]), "--number", "0"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_unknown_words_of_a_prompt_are_told(runs, capsys) -> None:
    command = ["generate", str(runs["kn"]), "--prompt", "the Zebra saw, the", "--length", "3"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("the Zebra saw, the ")
    assert (
        printed.err == "tslm: the prompt has words that the model does not know, read as <unk>: Zebra, saw,\n"
    )
    assert main([*command[:2], "--prompt", "the cat", "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_what_is_streamed_is_what_is_returned(runs, capsys) -> None:
    command = ["generate", str(runs["kn"]), "--prompt", "the cat ", "--go-on", "--length", "30"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    [sample] = json.loads(capsys.readouterr().out)["samples"]
    assert shown == sample["text"] + "\n"
    assert "\n" in sample["text"]
