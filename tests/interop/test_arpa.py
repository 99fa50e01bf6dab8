"""ARPA files: ours in KenLM, others' in ours, and what is wrong with malformed ones."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import kenlm
import numpy as np
import pytest

from tslm.cli import main
from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError, RunError
from tslm.interop.arpa import export_arpa, import_arpa, import_run
from tslm.interop.arpa_checks import _sum_everywhere, _sum_some
from tslm.models.ngram.backoff import BackoffModel
from tslm.models.ngram.counting import count_ngrams
from tslm.models.ngram.smoothed import NgramConfig, NgramModel, smooth
from tslm.models.ngram.smoothing import BackoffTable
from tslm.runs.run import load

FOREIGN = """
made by another tool

\\data\\
ngram 1=6
ngram 2=4
ngram 3=3

\\1-grams:
-0.9 </s>
-99 <s> -0.3
-0.7\ta\t-0.25
-0.8 b   0.1
-0.6\tc
-1.2\t<UNK>

\\2-grams:
-0.2 <s> a -0.15
-0.4 a b
-0.5\tb c\t-0.2
-0.3 c </s>

\\3-grams:
-0.1 <s> a b
-0.15 c a b
-0.05 b c c

\\end\\
"""
"""Tabs and spaces, missing back-offs, a positive back-off, ``<UNK>``, and 3-grams whose histories are missing."""


def score_line(model: BackoffModel, text: str) -> float:
    """Log10 p of a sentence."""
    ids = model.vocabulary.encode_line(text)
    log_probability, _ = model.score(ids[None], model.start(1))
    return float(log_probability.sum()) / math.log(10)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_another_tool(tmp_path: Path) -> None:
    model = import_arpa(write(tmp_path / "foreign.arpa", FOREIGN))
    assert model.order == 3
    assert model.vocabulary.words == ("<eos>", "a", "b", "c", "<unk>")
    log = lambda *logs: pytest.approx(sum(logs), abs=1e-12)  # noqa: E731
    assert score_line(model, "a b c") == log(-0.2, -0.1, -0.5, -0.2 - 0.3)
    # c a is not in the file, so it has the probability and the weight of backing off.
    assert score_line(model, "c a b") == log(-0.3 - 0.6, 0.0 - 0.7, -0.15, 0.1 - 0.9)
    assert score_line(model, "zebra") == log(-0.3 - 1.2, -0.9)
    assert score_line(model, "b c c") == log(-0.3 - 0.8, -0.5, -0.05, -0.3)


STRICT = """\\data\\
ngram 1=6
ngram 2=4
ngram 3=3

\\1-grams:
-0.9\t</s>
-99\t<s>\t-0.3
-0.7\ta\t-0.25
-0.8\tb\t-0.1
-0.6\tc
-1.2\t<unk>

\\2-grams:
-0.2\t<s> a\t-0.15
-0.4\ta b
-0.5\tb c\t-0.2
-0.3\tc </s>

\\3-grams:
-0.1\t<s> a b
-0.05\tb c </s>
-0.6\ta b c

\\end\\
"""
"""A file that KenLM reads too: it wants tabs and all histories."""


def test_a_foreign_file_scores_as_in_kenlm(tmp_path: Path) -> None:
    path = write(tmp_path / "strict.arpa", STRICT)
    model, other = import_arpa(path), kenlm.Model(str(path))
    generator = np.random.default_rng(0)
    for _ in range(200):
        line = " ".join(generator.choice(["a", "b", "c", "zebra"], generator.integers(0, 7)))
        assert score_line(model, line) == pytest.approx(other.score(line), abs=1e-4)


@pytest.fixture(scope="module")
def small(synthetic: Corpus) -> NgramModel:
    return NgramModel.fit(NgramConfig(order=4, discount_fallback=(0.5, 1.0, 1.5)), synthetic)


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_round_trip(small: NgramModel, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    export_arpa(small, path)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    again = import_arpa(path)
    assert again.vocabulary == small.vocabulary
    assert np.array_equal(again.table.trie.keys, small.table.trie.keys)
    np.testing.assert_allclose(again.table.log_probability, small.table.log_probability, rtol=1e-8)
    np.testing.assert_allclose(again.table.log_weight, small.table.log_weight, rtol=1e-8, atol=1e-9)
    first = path.read_bytes()
    export_arpa(small, path)
    assert path.read_bytes() == first


def test_a_model_without_smoothing_survives(synthetic: Corpus, tmp_path: Path) -> None:
    model = NgramModel.fit(NgramConfig(order=2, smoothing="none"), synthetic)
    export_arpa(model, tmp_path / "model.arpa")
    again = import_arpa(tmp_path / "model.arpa")
    states = np.arange(model.table.trie.context_count)
    np.testing.assert_allclose(np.exp(again.predict(states)), np.exp(model.predict(states)), rtol=1e-8)


def test_import_into_a_run_folder(small: NgramModel, tmp_path: Path) -> None:
    export_arpa(small, tmp_path / "model.arpa")
    import_run(tmp_path / "model.arpa", tmp_path / "run")
    model = load(tmp_path / "run")
    assert isinstance(model, BackoffModel)
    words = " ".join(word for word in small.vocabulary.words[:6] if word != "<eos>")
    assert score_line(model, words) == pytest.approx(score_line(small, words), rel=1e-8)
    with pytest.raises(RunError, match="holds a run already"):
        import_run(tmp_path / "model.arpa", tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("\\data\\", "data"), r"line \d+: expected .data.*the end of the file"),
        (("ngram 1=6", "ngram 1=six"), r"line 5: expected 'ngram 1=' and a number; found 'ngram 1=six'"),
        (("ngram 2=4\n", ""), r"line 6: expected 'ngram 2=' and a number"),
        (("ngram 1=6", "ngram 1=5"), r"line 15: expected '.2-grams:' after 5 1-grams; found '-1.2"),
        (
            ("ngram 1=6", "ngram 1=7"),
            r"line 17: expected a logarithm, a word not yet named.*found '.2-grams:'",
        ),
        (("-0.4 a b", "-0.4 a"), r"line 19: expected a logarithm, 2 words and perhaps a back-off"),
        (("-0.4 a b", "-0.4 a b -1 -1"), r"line 19: expected a logarithm, 2 words"),
        (("-0.4 a b", "0.4 a b"), r"line 19: expected a logarithm of zero or less"),
        (("-0.4 a b", "x a b"), r"line 19: expected a number before the words"),
        (("-0.4 a b", "nan a b"), r"line 19: expected a logarithm of zero or less"),
        (("-0.4 a b", "-0.4 a zebra"), r"line 19: expected words of the 1-grams, which 'zebra' is not"),
        (
            ("-0.4 a b", "-0.4 b c"),
            r"bad.arpa, line 20: expected each 2-gram once; found 'b c', which stands in line 19 too",
        ),
        (("-0.8 b", "-0.8 <unk>"), r"line 15: expected a word not yet named: .*<UNK>.*; found '.*<UNK>"),
        (("-0.8 b", "-0.8 b\u00a0b"), r"line 13: expected a word without white space, which 'b.xa0b' has"),
        (("-0.8 b", "-0.8 a"), r"line 13: expected a logarithm, a word not yet named"),
        (("\\3-grams:", "\\4-grams:"), r"expected '.3-grams:' after 4 2-grams"),
        (
            ("ngram 1=6", "ngram 1=" + "9" * 5000),
            r"line 5: expected a number of n-grams of 15 digits or less",
        ),
        (("-0.8 b   0.1", "-0.8 b 1e307"), r"line 13: expected a logarithm.* and a back-off of 99 or less"),
        (("-0.8 b   0.1", "-0.8 b inf"), r"line 13: expected a logarithm.* and a back-off of 99 or less"),
        (("-0.8 b   0.1", "-0.8 b nan"), r"line 13: expected a logarithm.* and a back-off of 99 or less"),
        (("-0.8 b   0.1", "-0.8 " + "b" * (1 << 20)), r"expected lines of less than 1,048,576 bytes"),
        (("made by another tool", "x" * (1 << 21)), r"expected lines of less than 1,048,576 bytes"),
        (
            ("ngram 3=3", "\n".join(f"ngram {order}=0" for order in range(3, 70))),
            r"expected n-grams of order 64 or less",
        ),
        (("\\end\\", ""), r"expected .end.; found 'the end of the file'"),
        (("-0.05 b c c\n\n\\end\\\n", ""), r"expected 3 3-grams; found 'the end of the file'"),
    ],
    ids=str,
)
def test_malformed_files(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = FOREIGN.replace(*change, 1)
    assert text != FOREIGN
    with pytest.raises(CorpusError, match=message):
        import_arpa(write(tmp_path / "bad.arpa", text))


def test_files_that_cannot_be_read(tmp_path: Path, small: NgramModel) -> None:
    with pytest.raises(CorpusError, match="No such file"):
        import_arpa(tmp_path / "none.arpa")
    path = tmp_path / "cut.arpa.gz"
    path.write_bytes(gzip.compress(FOREIGN.encode())[:60])
    with pytest.raises(CorpusError, match="cannot read"):
        import_arpa(path)
    packed = bytearray(gzip.compress(FOREIGN.encode() * 50))
    for place in (12, 20, len(packed) // 2):
        damaged = bytearray(packed)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(CorpusError, match=r"cannot read|expected"):
            import_arpa(path)
    (tmp_path / "zero.arpa").symlink_to("/dev/zero")
    with pytest.raises(CorpusError, match="not a regular file"):
        import_arpa(tmp_path / "zero.arpa")
    words = Vocabulary((*small.vocabulary.words[:-1], "</s>"))
    with pytest.raises(CorpusError, match="'</s>' of the vocabulary is the line marker"):
        export_arpa(BackoffModel(small.table, words), tmp_path / "x.arpa")


@pytest.mark.ptb
def test_penn_treebank_in_kenlm(ptb: Corpus, tmp_path: Path) -> None:
    """Every sentence of the test split; benchmarks/ngram.py asserts the same for order 5."""
    model = NgramModel.fit(NgramConfig(order=3), ptb)
    export_arpa(model, tmp_path / "kn3.arpa")
    other = kenlm.Model(str(tmp_path / "kn3.arpa"))
    ids = ptb.splits["test"]
    log_probability, _ = model.score(ids[None], model.start(1))
    lines = np.split(np.arange(len(ids)), np.flatnonzero(ids == ptb.vocabulary.eos_id) + 1)[:-1]
    assert len(lines) == 3761
    ours = [float(log_probability[0, line].sum()) / math.log(10) for line in lines]
    theirs = [other.score(" ".join(ptb.vocabulary.decode(ids[line[:-1]]))) for line in lines]
    np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)


def test_a_file_in_another_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    text = FOREIGN.replace("-0.8 b", "-0.8 bé", 1)
    (tmp_path / "latin.arpa").write_bytes(text.encode("latin-1"))
    with pytest.raises(CorpusError, match=r"latin.arpa, line 13: expected UTF-8 .*iconv"):
        import_arpa(tmp_path / "latin.arpa")


def test_probabilities_that_do_not_sum_to_one_are_told(tmp_path: Path, small: NgramModel) -> None:
    export_arpa(small, tmp_path / "good.arpa")
    for everywhere in (False, True):
        _, sums = import_run(tmp_path / "good.arpa", tmp_path / f"good {everywhere}", check=everywhere)
        assert sums.off == 0
        assert sums.worst == pytest.approx(1, abs=1e-6)
    assert sums.histories == small.table.trie.context_count
    twice = BackoffTable(
        trie=small.table.trie,
        log_probability=np.minimum(small.table.log_probability + math.log(2), 0),
        log_weight=small.table.log_weight,
    )
    export_arpa(BackoffModel(twice, small.vocabulary), tmp_path / "twice.arpa")
    for everywhere in (False, True):
        _, sums = import_run(tmp_path / "twice.arpa", tmp_path / f"twice {everywhere}", check=everywhere)
        assert sums.off > 0
        assert sums.worst > 1.5
    assert (
        main(["arpa", "import", str(tmp_path / "twice.arpa"), "--out", str(tmp_path / "told"), "--check"])
        == 0
    )


def test_the_sums_of_a_sample_are_those_of_all(small: NgramModel) -> None:
    states = np.arange(small.table.trie.context_count)
    wild = BackoffTable(
        trie=small.table.trie,
        log_probability=small.table.log_probability
        - np.random.default_rng(1).exponential(1, len(small.table.log_probability)),
        log_weight=small.table.log_weight,
    )
    model = BackoffModel(wild, small.vocabulary)
    np.testing.assert_allclose(_sum_everywhere(model), _sum_some(model, states), rtol=1e-9)


def test_back_offs_that_multiply_to_infinity_are_refused(tmp_path: Path) -> None:
    """Each is allowed alone, four of them are 10³⁹⁶."""
    ids = np.array([0, 1, 2, 3, 1, 2, 0, 3, 1, 4, 0, 2, 1, 3, 2, 4], np.int32)
    counts = count_ngrams(ids, 5, 5, 4)
    table = smooth(counts, NgramConfig(order=5, discount_fallback=(0.5, 1.0, 1.5)))
    huge = BackoffTable(
        trie=table.trie,
        log_probability=table.log_probability,
        log_weight=np.full(len(table.log_weight), 99 * math.log(10)),
    )
    export_arpa(BackoffModel(huge, Vocabulary(("a", "b", "c", "d", "<eos>"))), tmp_path / "huge.arpa")
    with pytest.raises(CorpusError, match=r"is no language model: .* sum to one"):
        import_run(tmp_path / "huge.arpa", tmp_path / "run", check=True)
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_the_command_line_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "foreign.arpa", FOREIGN)
    assert main(["arpa", "import", str(path), "--out", str(tmp_path / "run"), "--json"]) == 0
    told = capsys.readouterr()
    assert "foreign.arpa is not normalised: after" in told.err
    assert json.loads(told.out)["off"] > 0


@pytest.mark.parametrize("gap", ["\t", "  ", " \t"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_all_lines_at_once_reads_what_line_by_line_does(
    small: NgramModel, tmp_path: Path, gap: str, shuffled: bool
) -> None:
    path = tmp_path / "model.arpa"
    export_arpa(small, path)
    expected = import_arpa(path).table
    head, *sections = path.read_text().split("-grams:\n")
    changed = [head]
    for section in sections:
        lines, *rest = section.split("\n\n", 1)
        # Two spaces are read line by line; the order of the lines must not matter.
        ngrams = [line.replace("\t", gap) for line in lines.split("\n")]
        changed.append("\n\n".join(["\n".join(ngrams[::-1] if shuffled else ngrams), *rest]))
    path.write_text("-grams:\n".join(changed))
    found = import_arpa(path)
    by_word = [found.vocabulary.ids[word] for word in small.vocabulary.words]
    if not shuffled:
        np.testing.assert_array_equal(found.table.trie.keys, expected.trie.keys)
        np.testing.assert_array_equal(found.table.log_probability, expected.log_probability)
        np.testing.assert_array_equal(found.table.log_weight, expected.log_weight)
    ids = np.random.default_rng(0).integers(0, len(by_word), (1, 500))
    ours, _ = small.score(ids, small.start(1))
    theirs, _ = found.score(np.array(by_word)[ids], found.start(1))
    np.testing.assert_allclose(theirs, ours, atol=1e-8)


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_progress_ends_at_the_end(small: NgramModel, tmp_path: Path, name: str) -> None:
    written: list[int] = []
    read: list[int] = []
    export_arpa(small, tmp_path / name, written.append)
    assert sum(written) == small.table.trie.node_count - 1
    import_arpa(tmp_path / name, read.append)
    size = (tmp_path / name).stat().st_size
    assert size * 0.5 < sum(read) <= size
