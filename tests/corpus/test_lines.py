"""The raw lines of a split are those that its ids were made of, whatever the tokeniser."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path

import pytest

from tslm.corpus import lines as lines_module
from tslm.corpus.encoding import SPLITS
from tslm.corpus.lines import read_split
from tslm.corpus.sources import Corpus, CorpusConfig, open_corpus
from tslm.corpus.text import TextSize
from tslm.errors import CorpusError

TEXT = [f"Line {number}, of “{['one', 'ÜBER', 'the other'][number % 3]}” kind.  " for number in range(300)]


def check(config: CorpusConfig) -> None:
    corpus = open_corpus(config)
    for split in SPLITS:
        raw = list(read_split(config, split))
        words = corpus.rule.split_lines("".join(f"{line}\n" for line in raw))
        assert corpus.vocabulary.encode(words).tolist() == corpus.splits[split].tolist()
        size = corpus.sizes[split]
        assert (sum(len(line.encode()) + 1 for line in raw), len(raw)) == (size.bytes, size.lines)


@pytest.mark.parametrize("tokeniser", [None, "words", "bpe"])
def test_own_text_that_is_split_by_lines(
    tokeniser: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lines_module, "_BLOCK_LINES", 64)
    (tmp_path / "one.txt").write_text("\n".join(TEXT[:200]))
    (tmp_path / "two.txt.gz").write_bytes(gzip.compress(("\n".join(TEXT[200:]) + "\n").encode()))
    paths = (str(tmp_path / "one.txt"), str(tmp_path / "two.txt.gz"))
    check(CorpusConfig(path=paths, tokeniser=tokeniser, max_vocabulary=300, split_seed=3, valid_fraction=0.2))


def test_the_lines_of_a_split_are_the_same_for_every_tokeniser(tmp_path: Path):
    (tmp_path / "own.txt").write_text("\n".join(TEXT))
    found = [
        list(read_split(CorpusConfig(path=(str(tmp_path / "own.txt"),), tokeniser=tokeniser), "test"))
        for tokeniser in (None, "words", "bpe")
    ]
    assert len(found[0]) == 15
    assert found[0] == found[1] == found[2]


def test_a_folder_and_the_embedded_corpus(tmp_path: Path):
    for split in SPLITS:
        (tmp_path / f"{split}.txt").write_text("\n".join(TEXT))
    check(CorpusConfig(path=(str(tmp_path),), lower=True, tokeniser="words"))
    check(CorpusConfig())


@pytest.mark.ptb
def test_penn_treebank(ptb: Corpus):
    lines = list(islice(read_split(CorpusConfig(name="ptb"), "test"), 100))
    words = [word for line in lines for word in (*line.split(), "<eos>")]
    assert words == ptb.vocabulary.decode(ptb.splits["test"][: len(words)])


def test_a_marker_ends_a_line(tmp_path: Path):
    (tmp_path / "own.txt").write_text("one <eos> two\nthree <EOS> four\n" * 20)
    for lower in (False, True):
        config = CorpusConfig(path=(str(tmp_path / "own.txt"),), lower=lower, min_count=1, valid_fraction=0.3)
        raw = [line.split() for split in SPLITS for line in read_split(config, split)]
        assert len(raw) == 60 + 20 * lower
        corpus = open_corpus(config)
        assert corpus.sizes["valid"] == TextSize(
            corpus.sizes["valid"].bytes, corpus.sizes["valid"].words, 18 + 6 * lower
        )
        found = [word for line in read_split(config, "valid") for word in (*corpus.rule.split(line), "<eos>")]
        assert found == corpus.vocabulary.decode(corpus.splits["valid"])


def test_what_cannot_be_read_again_is_said(tmp_path: Path):
    with pytest.raises(CorpusError, match="came through a pipe"):
        list(read_split(CorpusConfig(path=("-",)), "test"))
    with pytest.raises(CorpusError, match=r"no split 'tests': did you mean 'test'"):
        list(read_split(CorpusConfig(), "tests"))
    with pytest.raises(CorpusError, match="no such file"):
        list(read_split(CorpusConfig(path=(str(tmp_path / "gone.txt"),)), "test"))
