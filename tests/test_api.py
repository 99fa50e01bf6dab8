"""The verbs of the package: what they take, what they return, and what they do not import."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import tslm
from tslm.errors import InputError, NumberError, TslmError
from tslm.inference.inputs import lines_of

TEXT = "the cat sat on the mat\na zebra saw the river\n"
LINES = TEXT.splitlines()


class Column:
    """What a table's column is to somebody who knows no tables: values in their order, and a name."""

    name = "text"

    def __init__(self, values) -> None:
        self.values = values

    def __iter__(self):
        return iter(self.values)


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path / "text.txt"


def test_every_public_name_is_there_and_listed() -> None:
    for name in tslm.__all__:
        assert getattr(tslm, name).__doc__, name
    assert set(tslm.__all__) <= set(dir(tslm))
    assert "import_module" not in dir(tslm)
    assert sorted(tslm.__all__) == tslm.__all__
    with pytest.raises(AttributeError, match="no attribute 'scare'"):
        tslm.scare  # noqa: B018


def test_a_text_may_come_in_every_form(runs, file) -> None:
    texts = [TEXT, LINES, tuple(LINES), iter(LINES), Column(LINES), np.array(LINES), file]
    for model in (str(runs["kn"]), runs["kn"], tslm.load(runs["kn"]), tslm.open_run(runs["kn"])):
        expected = tslm.score(model, LINES)
        for text in texts if isinstance(model, str) else [TEXT, file]:
            scores = tslm.score(model, text)
            assert scores.log_probabilities.tolist() == expected.log_probabilities.tolist()
    assert [sentence.text for sentence in expected] == LINES


def test_score_and_evaluate_and_compare_agree(runs, file) -> None:
    total = tslm.score(runs["kn"], file).total
    evaluation = tslm.evaluate(runs["kn"], file)
    comparison = tslm.compare([runs["kn"], runs["tslm"]], file, resamples=10)
    assert evaluation.nats == pytest.approx(total.nats, rel=1e-12)
    assert comparison.models[0].nats == pytest.approx(total.nats, rel=1e-12)
    assert evaluation.perplexity == pytest.approx(total.perplexity, rel=1e-12)
    assert (evaluation.run, evaluation.split, evaluation.tokens) == (str(runs["kn"]), "text", 13)
    for text in (TEXT, LINES):
        assert tslm.evaluate(runs["kn"], text).bits_per_byte == evaluation.bits_per_byte
    model = tslm.load(runs["kn"])
    ids = np.concatenate([model.vocabulary.encode_line(line) for line in LINES])
    assert tslm.evaluate(model, ids).nats == pytest.approx(total.nats, rel=1e-12)


def test_evaluate_takes_a_split_of_the_runs_own_corpus(runs) -> None:
    summary = tslm.open_run(runs["kn"]).summary
    evaluation = tslm.evaluate(runs["kn"])
    assert evaluation.perplexity == summary.test.perplexity
    corpus = tslm.open_run(runs["kn"]).open_corpus()
    assert tslm.evaluate(tslm.load(runs["kn"]), corpus, split="valid").nats == summary.valid.nats
    assert evaluation.bits_per_byte == summary.test.bits_per_byte is not None
    with pytest.raises(InputError, match="a model alone does not know its settings and its corpus"):
        tslm.evaluate(tslm.load(runs["kn"]))
    with pytest.raises(TslmError, match="no split 'tset'"):
        tslm.evaluate(runs["kn"], split="tset")


def test_a_string_that_is_the_name_of_a_file_is_not_taken_for_a_text(runs, file, monkeypatch) -> None:
    with pytest.raises(InputError, match=r"give pathlib.Path\('.*text.txt'\) for the file"):
        tslm.score(runs["kn"], str(file))
    assert len(tslm.score(runs["kn"], [str(file)])) == 1
    monkeypatch.chdir(file.parent)
    (file.parent / "cat").mkdir()
    assert len(tslm.score(runs["kn"], "cat")) == 1, "a folder is no text"


def test_empty_texts_are_refused(runs) -> None:
    for verb in (tslm.score, tslm.evaluate):
        with pytest.raises(TslmError, match=r"no line|no word"):
            verb(runs["kn"], [])
    with pytest.raises(TslmError, match="no word"):
        tslm.explain(runs["kn"], " ")


def test_results_show_themselves(runs, file) -> None:
    shown = {
        "score": tslm.score(runs["kn"], LINES * 8),
        "sentence": tslm.score(runs["kn"], LINES)[1],
        "evaluate": tslm.evaluate(runs["kn"], file),
        "generate": tslm.generate(runs["kn"], "the cat", number=2, length=4),
        "fill": tslm.fill(runs["kn"], "the ? sat on the ?"),
        "explain": tslm.explain(runs["tslm"], "the <b>cat</b> sat"),
        "compare": tslm.compare([runs["kn"], runs["tslm"]], file, resamples=10),
        "report": tslm.reproduce("table2", results=Path(__file__).parents[1] / "results")[0],
    }
    for name, result in shown.items():
        page = f"<html><body>{result._repr_html_().replace('&nbsp;', ' ')}</body></html>"
        ElementTree.fromstring(page)  # noqa: S314
        assert "<b>cat" not in page
        text = repr(result)
        assert "object at 0x" not in text, name
        assert len(text.splitlines()) < 40, name
    assert "6 more" in repr(shown["score"])
    assert repr(shown["sentence"]).startswith("ScoredSentence('a zebra saw the river', ln p = ")
    assert repr(shown["generate"]).splitlines()[0].startswith("the cat ")


def test_samples_are_texts_with_their_probability(runs) -> None:
    samples = tslm.generate(runs["kn"], "the cat", number=3, length=6, seed=4)
    assert len(samples) == 3
    for sample in samples:
        assert sample.text.startswith("the cat ")
        assert sample.reason in ("stop", "length")
        words = [*sample.words, *(["<eos>"] if sample.reason == "stop" else [])]
        model = tslm.load(runs["kn"])
        _, state = model.score(model.vocabulary.encode(["the", "cat"])[None], model.start(1))
        scores, _ = model.score(model.vocabulary.encode(words)[None], state)
        assert sample.log_probability == pytest.approx(scores[0, : len(sample.words)].sum())
    assert json.loads(json.dumps(samples.as_json()))["prompt"] == "the cat"
    assert "<unk>" not in repr(tslm.generate(runs["kn"], number=20, unk=False))


def test_fillings_are_typed(runs) -> None:
    found = tslm.fill(runs["kn"], "the ? sat on the ?", top=3)
    assert [blank.place for blank in found.blanks] == [1, 5]
    assert found.fillings[0].text == "the {} sat on the {}".format(*found.fillings[0].words)
    assert found.log_probability < 0
    impossible = tslm.fill(runs["kn"], "the cat")
    assert impossible.blanks == ()


def test_a_mix_is_a_model(runs, tmp_path) -> None:
    mixed = tslm.mix([runs["kn"], str(runs["tslm"])], tmp_path / "mix")
    assert sum(mixed.config.weights) == pytest.approx(1)
    summary = tslm.open_run(tmp_path / "mix").summary
    assert tslm.evaluate(tmp_path / "mix").perplexity == pytest.approx(summary.test.perplexity)
    tuned = tslm.mix([runs["kn"], runs["tslm"]], tune=LINES)
    assert tuned.config.weights != mixed.config.weights
    with pytest.raises(InputError, match="a model alone"):
        tslm.mix([tslm.load(runs["kn"]), runs["tslm"]])
    with pytest.raises(InputError, match="two or more"):
        tslm.mix([runs["kn"]])


WRONG = """
import sys
import numpy as np
import tslm
run, file = sys.argv[1:]
table = type("DataFrame", (), {"columns": ["text"], "__iter__": lambda self: iter(["text"])})()
model = tslm.load(run)
for verb, *arguments in [
    (tslm.evaluate, model, 3), (tslm.evaluate, 3, "the cat"), (tslm.evaluate, model, b"the cat"),
    (tslm.evaluate, model, np.zeros((2, 2), int)), (tslm.score, model, {"text": "the cat"}), (tslm.score, model, table),
    (tslm.score, model, ["the cat", None]), (tslm.score, None, "the cat"), (tslm.explain, model, ["the", "cat"]),
    (tslm.fill, model, 3), (tslm.generate, model, 3), (tslm.compare, model), (tslm.compare, [model, 3], "the cat"),
    (tslm.mix, run), (tslm.load, 3), (tslm.train, 3), (tslm.open_corpus, 3), (tslm.read_recipe, 3),
    (tslm.train, "asv/kn5", 5), (lambda value: tslm.generate(model, temperature=value), "1"),
    (lambda value: tslm.generate(model, top_k=value), 2.5), (lambda value: tslm.generate(model, seed=value), True),
]:
    try:
        verb(*arguments)
    except tslm.TslmError as error:
        print(verb.__name__, error)
    else:
        raise AssertionError((verb, arguments))
"""


def test_what_is_of_the_wrong_type_is_told(runs, file) -> None:
    # In a process of its own: in this one, the type checker of the tests would speak first.
    done = subprocess.run(
        [sys.executable, "-c", WRONG, runs["kn"], file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "evaluate something of type int is no text; give a string, a list or column of strings, or a pathlib.Path"
    )
    assert "line 2 of the text is None, not a string" in done.stdout
    assert "temperature = '1' is not a number" in done.stdout
    assert "top_k = 2.5 is not a whole number" in done.stdout
    assert "something of type DataFrame is no text; give one of its columns" in done.stdout


def test_scores_are_an_array_of_numbers_for_whoever_asks(runs) -> None:
    scores = tslm.score(runs["kn"], LINES)
    np.testing.assert_array_equal(np.asarray(scores), scores.log_probabilities)
    assert np.array(scores, dtype=np.float32).dtype == np.float32
    assert scores.log_probabilities.shape == scores.perplexities.shape == (len(LINES),)


def test_columns_of_pandas(runs) -> None:
    expected = tslm.score(runs["kn"], LINES).log_probabilities.tolist()
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": LINES}, index=range(len(LINES), 0, -1))
    frame["ln p"] = tslm.score(runs["kn"], frame["text"])
    assert frame["ln p"].dtype == np.float64
    assert frame["ln p"].tolist() == expected
    for kind in ("object", "string", "category"):
        assert tslm.score(runs["kn"], frame["text"].astype(kind)).log_probabilities.tolist() == expected
    with pytest.raises(InputError, match="one of its columns"):
        list(lines_of(frame))
    with pytest.raises(InputError, match="line 2 of the text is nan"):
        list(lines_of(pandas.Series(["a", float("nan")], dtype=object)))


def test_columns_of_polars(runs) -> None:
    expected = tslm.score(runs["kn"], LINES).log_probabilities.tolist()
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"text": LINES})
    scores = tslm.score(runs["kn"], frame["text"])
    column = frame.with_columns(polars.Series("ln p", scores.log_probabilities))["ln p"]
    assert (column.dtype, column.to_list()) == (polars.Float64, expected)
    for table in (frame, frame.lazy()):
        with pytest.raises(InputError, match="one of its columns"):
            list(lines_of(table))
    with pytest.raises(InputError, match="line 2 of the text is None"):
        list(lines_of(polars.Series(["a", None])))


NGRAM = """
import os, sys
from pathlib import Path
import tslm
from tslm.cli import main
recipe, folder = Path(sys.argv[1]), Path(sys.argv[2])
model = tslm.train(recipe, folder / "run")
run = str(folder / "run")
for arguments in (
    ["score", run, str(folder / "f.txt")], ["eval", run], ["eval", run, "--text", str(folder / "f.txt")],
    ["fill", run, "the ? sat"], ["generate", run, "--prompt", "the"], ["generate", run, "--number", "2"],
    ["explain", run, "the cat sat"], ["arpa", "export", run, str(folder / "x.arpa")],
    ["arpa", "import", str(folder / "x.arpa"), "--out", str(folder / "arpa")],
    ["compare", run, str(folder / "arpa"), str(folder / "f.txt"), "--resamples", "9"],
    ["train", str(recipe), "--out", str(folder / "again"), "--json"], ["recipes", str(recipe)],
):
    assert main(arguments) == 0, arguments
    for module in ("torch", "matplotlib", "scipy", "pandas", "opt_einsum", "fastapi"):
        assert module not in sys.modules, (arguments, module)
"""


def test_an_ngram_model_needs_no_pytorch(runs, tmp_path) -> None:
    (tmp_path / "f.txt").write_text(TEXT)
    recipe = runs["kn"].parent / "kn.toml"
    done = subprocess.run(
        [sys.executable, "-c", NGRAM, recipe, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs a system that says how long a process computed")
def test_a_line_is_scored_in_well_under_a_second(runs, tmp_path) -> None:
    (tmp_path / "f.txt").write_text("the cat sat\n")
    command = [sys.executable, "-m", "tslm", "score", str(runs["kn"]), str(tmp_path / "f.txt")]
    best = math.inf
    for _ in range(3):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        best = min(best, used.ru_utime + used.ru_stime)
    assert best < 0.6


NO_CHOICE = """
import json, sys
import tslm
from tslm.inference import adapt, caching, compress, gating, interpolate

def work(*_, **__):
    raise AssertionError("it has begun")

interpolate.tune_mix = gating.fit_gate = caching.tune_cache = compress.compress_model = adapt.extend_model = work
kn, gated, new = sys.argv[1:]
lines = ["the cat sat"] * 40
said = []
for call in (
    lambda: tslm.mix([kn, gated], form="log-lineal"),
    lambda: tslm.gate([kn, gated], sees="all"),
    lambda: tslm.gate([kn, gated], hidden=2.5),
    lambda: tslm.with_cache(gated, size="9"),
    lambda: tslm.evaluate_cache(gated, size=0.5),
    lambda: tslm.compress(gated, new, rank=2.5),
    lambda: tslm.adapt(gated, lines, new, start="rarely"),
    lambda: tslm.adapt(gated, lines, new, epochs=1.5),
    lambda: tslm.generate(gated, number=2.5),
    lambda: tslm.generate(gated, length="5"),
    lambda: tslm.fill(kn, "the ?", top=0.5),
):
    try:
        said.append(repr(call()))
    except Exception as error:
        said.append(f"{type(error).__name__}: {error}")
print(json.dumps(said))
"""


def test_a_choice_or_a_number_that_is_none_is_refused_before_the_work(runs, tmp_path) -> None:
    # In a process of its own, where types are not checked for us.
    arguments = [str(runs["kn"]), str(runs["gated"]), str(tmp_path / "new")]
    done = subprocess.run([sys.executable, "-c", NO_CHOICE, *arguments], capture_output=True, check=True)
    assert json.loads(done.stdout) == [
        f"InputError: {message}"
        for message in (
            "form = 'log-lineal' is not one of linear, log-linear; did you mean 'log-linear'?",
            "sees = 'all' is not one of counts, state, both; known: both, counts, state",
            "hidden = 2.5 is not a whole number",
            "size = '9' is not a whole number",
            "size = 0.5 is not a whole number",
            "rank = 2.5 is not a whole number",
            "start = 'rarely' is not one of unknown, rare; did you mean 'rare'?",
            "epochs = 1.5 is not a whole number",
            "number = 2.5 is not a whole number",
            "length = '5' is not a whole number",
            "top = 0.5 is not a whole number",
        )
    ]
    assert not (tmp_path / "new").exists()
    with pytest.raises(NumberError, match="expected 1 or more"):
        tslm.fill(runs["kn"], "the ?", top=-1)
    assert list(lines_of(np.array(TEXT))) == LINES


def test_one_string_is_one_word_and_not_its_letters(runs) -> None:
    model = tslm.load(runs["probabilistic"])
    found, same = (tslm.match(model, contain=given, avoid="a") for given in ("the dog", ["the dog"]))
    assert found.probability == same.probability > 0
    free = tslm.generate(model, number=20, length=8, temperature=2.0)
    ended = tslm.generate(model, number=20, length=8, temperature=2.0, stop="the")
    assert any("the" in sample.words for sample in free)
    assert not any("the" in sample.words for sample in ended)
    assert all(best.word != "mat" for best in tslm.fill(model, "the ?", exclude="mat").blanks[0].best)


def test_a_model_made_of_others_leaves_another_run_in_its_place_alone(runs, tmp_path, monkeypatch) -> None:
    out = tmp_path / "both"
    tslm.gate([runs["kn"], runs["tslm"]], out)
    before = (out / "model.safetensors").read_bytes()
    for call in (
        lambda: tslm.gate([runs["kn"], runs["gated"]], out),  # of the same settings, but of other models
        lambda: tslm.mix([runs["kn"], runs["tslm"]], out),
        lambda: tslm.with_cache(runs["tslm"], out),
        lambda: tslm.evaluate_cache(runs["tslm"], out),
        lambda: tslm.evaluate_cache(runs["tslm"], runs["kn"]),
    ):
        with monkeypatch.context() as patch:
            for place in ("interpolate.tune_mix", "gating.fit_gate", "caching.tune_cache"):
                patch.setattr(f"tslm.inference.{place}", None)  # nothing has been tuned by then
            with pytest.raises(TslmError, match="holds another run"):
                call()
    with pytest.raises(TslmError, match="is a file"):
        tslm.gate([runs["kn"], runs["tslm"]], runs["kn"] / "recipe.toml")
    tslm.gate([runs["kn"], runs["tslm"]], out)
    assert (out / "model.safetensors").read_bytes() == before


def test_a_file_is_no_run_folder(file) -> None:
    with pytest.raises(TslmError, match="is a file, not a run folder"):
        tslm.load(file)
