from __future__ import annotations

import json
from itertools import islice

import pytest

from tslm.cli import main
from tslm.corpus.embedded import Verses, read_embedded
from tslm.corpus.encoding import SPLITS
from tslm.corpus.reading import encode_file
from tslm.corpus.rule import TextRule
from tslm.corpus.sources import CorpusConfig, open_corpus
from tslm.corpus.text import TextSize
from tslm.corpus.vocabulary import Vocabulary
from tslm.corpus.words import Words
from tslm.errors import CorpusError

VOCABULARY = Vocabulary(("the", "<eos>", "cat", "<unk>"))


def test_a_file_is_encoded_with_one_eos_per_line(tmp_path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("the cat\r\n\nThe  dög".encode())
    read = encode_file(path, VOCABULARY, TextRule())
    assert VOCABULARY.decode(read.ids) == ["the", "cat", "<eos>", "<eos>", "<unk>", "<unk>", "<eos>"]
    assert read.size == TextSize(bytes=9 + 1 + 10, words=4, lines=3)
    lowered = encode_file(path, VOCABULARY, TextRule(lower=True))
    assert VOCABULARY.decode(lowered.ids)[4] == "the"
    assert read.fingerprint != lowered.fingerprint
    assert read.size == lowered.size


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(CorpusError, match=r"none.txt"):
        encode_file(tmp_path / "none.txt", VOCABULARY, TextRule())


def test_a_model_saved_without_its_rule_has_that_of_its_corpus() -> None:
    assert CorpusConfig().fixed_rule() == open_corpus("asv").rule == Verses()
    assert CorpusConfig(name="ptb").fixed_rule() == TextRule()
    assert CorpusConfig(path=("a",), lower=True).fixed_rule() == TextRule(lower=True)
    assert CorpusConfig(name="asv", path=("a",)).fixed_rule() == TextRule()
    assert CorpusConfig(path=("a",), tokeniser="words").fixed_rule() == Words.make()
    with pytest.raises(CorpusError, match=r"the model needs the text\.json of its run"):
        CorpusConfig(path=("a",), tokeniser="bpe").fixed_rule()


def test_a_file_is_read_as_the_embedded_corpus_was(tmp_path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("And God said, Let there be light.\n" * 20_000)  # several pieces
    corpus = open_corpus("asv")
    read = encode_file(path, corpus.vocabulary, corpus.rule)
    words = ["and", "god", "said", ",", "let", "there", "be", "light", ".", "<eos>"]
    assert corpus.vocabulary.decode(read.ids) == words * 20_000
    assert read.size == TextSize(bytes=path.stat().st_size, words=7 * 20_000, lines=20_000)


@pytest.mark.parametrize("tokeniser", ["spaces", "words", "bpe"])
def test_a_split_of_own_text_read_again_is_itself(tokeniser, tmp_path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    for split in SPLITS:
        (folder / f"{split}.txt").write_text("".join(islice(read_embedded(split), 300)))
    corpus = open_corpus(CorpusConfig(path=(str(folder),), tokeniser=tokeniser, max_vocabulary=1000))
    assert (corpus.vocabulary.unk_id is None) == (tokeniser == "bpe")
    for split in SPLITS:
        read = encode_file(folder / f"{split}.txt", corpus.vocabulary, corpus.rule)
        assert read.ids.tolist() == corpus.splits[split].tolist()
        assert read.size == corpus.sizes[split]


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
    # Bits per byte and perplexity per word between spaces are about the text as it stands, and it differs.
    own = {"bits_per_byte", "perplexity_per_word"}
    assert {key: value for key, value in found[0].items() if key not in own} == {
        key: value for key, value in found[1].items() if key not in own
    }
