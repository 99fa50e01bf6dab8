from __future__ import annotations

import pytest

from tslm.corpus.reading import encode_file
from tslm.corpus.sources import CorpusConfig
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError

VOCABULARY = Vocabulary(("the", "<eos>", "cat", "<unk>"))


def test_a_file_is_encoded_with_one_eos_per_line(tmp_path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("the cat\n\nThe dog")
    ids, fingerprint = encode_file(path, VOCABULARY)
    assert VOCABULARY.decode(ids) == ["the", "cat", "<eos>", "<eos>", "<unk>", "<unk>", "<eos>"]
    lowered, other = encode_file(path, VOCABULARY, lower=True)
    assert VOCABULARY.decode(lowered)[4] == "the"
    assert fingerprint != other


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(CorpusError, match=r"none.txt"):
        encode_file(tmp_path / "none.txt", VOCABULARY)


def test_which_corpora_are_in_lower_case() -> None:
    assert CorpusConfig().is_lower
    assert CorpusConfig(path=("a",), lower=True).is_lower
    assert not CorpusConfig(name="ptb").is_lower
    assert not CorpusConfig(name="mine", path=("a",)).is_lower
