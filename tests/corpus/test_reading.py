from __future__ import annotations

import json
from itertools import islice

import pytest

from tslm.cli import main
from tslm.corpus.embedded import read_embedded
from tslm.corpus.reading import encode_file
from tslm.corpus.sources import CorpusConfig, open_corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError

VOCABULARY = Vocabulary(("the", "<eos>", "cat", "<unk>"))


def test_a_file_is_encoded_with_one_eos_per_line(tmp_path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("the cat\n\nThe dog")
    ids, fingerprint = encode_file(path, VOCABULARY)
    assert VOCABULARY.decode(ids) == ["the", "cat", "<eos>", "<eos>", "<unk>", "<unk>", "<eos>"]
    lowered, other = encode_file(path, VOCABULARY, prepare=str.lower)
    assert VOCABULARY.decode(lowered)[4] == "the"
    assert fingerprint != other


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(CorpusError, match=r"none.txt"):
        encode_file(tmp_path / "none.txt", VOCABULARY)


def test_other_text_is_prepared_as_the_corpus_was() -> None:
    text = "And God said,\nLet <unk> be light.\n"
    assert CorpusConfig().prepare_text(text) == "and god said ,\nlet <unk> be light .\n"
    assert CorpusConfig(path=("a",), lower=True).prepare_text(text) == text.lower()
    assert CorpusConfig(name="ptb").prepare_text(text) == text
    assert CorpusConfig(name="asv", path=("a",)).prepare_text(text) == text


def test_the_embedded_corpus_prepared_again_is_itself() -> None:
    lines = "".join(islice(read_embedded("test"), 500))
    assert CorpusConfig().prepare_text(lines) == lines


def test_a_file_is_read_as_the_embedded_corpus_was(tmp_path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("And God said, Let there be light.\n" * 20_000)  # several pieces
    vocabulary = open_corpus("asv").vocabulary
    ids, _ = encode_file(path, vocabulary, prepare=CorpusConfig().prepare_text)
    words = ["and", "god", "said", ",", "let", "there", "be", "light", ".", "<eos>"]
    assert vocabulary.decode(ids) == words * 20_000


def test_a_model_is_measured_on_a_text_read_as_its_corpus_was(tmp_path, capsys) -> None:
    (tmp_path / "recipe.toml").write_text('[corpus]\nname = "asv"\n[model]\nkind = "unigram"\n')
    assert main(["train", str(tmp_path / "recipe.toml"), "--out", str(tmp_path / "run")]) == 0
    found = []
    for text in ("And God said, Let there be light.\n", "and god said , let there be light .\n"):
        (tmp_path / "text.txt").write_text(text)
        capsys.readouterr()
        assert main(["eval", str(tmp_path / "run"), "--text", str(tmp_path / "text.txt"), "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["tokens"] == 10
    assert found[0] == found[1]
