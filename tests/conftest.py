"""What all tests share: a cache of their own, the real corpora where they are at hand, and a small synthetic one."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tslm.corpus.sources import Corpus, open_corpus
from tslm.corpus.synthetic import Automaton, AutomatonConfig, make_corpus
from tslm.models.recurrent import kernel

# The machine may be busy: a slow example is no failure. The same examples every time: a failure can be repeated.
settings.register_profile("tslm", deadline=None, derandomize=True)
settings.load_profile("tslm")

BESIDE = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder for all tests, not the user's; also lets sub-processes find the real corpora."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TSLM_CACHE", str(folder))
        if "TSLM_DATA" not in os.environ and BESIDE.is_dir():
            patch.setenv("TSLM_DATA", str(BESIDE))
        # Nothing in the tests goes out to the network: port 9 of the loopback answers nobody.
        patch.setenv("TSLM_MIRROR", "http://127.0.0.1:9")
        yield folder


@pytest.fixture(params=["loop", "kernel"])
def road(request: pytest.FixtureRequest, cache_folder: Path) -> Iterator[str]:
    """What the accelerator does, by PyTorch operations and by what it has compiled."""
    if request.param == "kernel" and shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("no C++ compiler here")
    before = kernel.active()
    kernel.accelerate(request.param == "kernel")
    assert (kernel.active() is not None) == (request.param == "kernel")
    yield request.param
    kernel.accelerate(before is not None)


def open_real(name: str) -> Corpus:
    folder = os.environ.get("TSLM_DATA")
    if folder is None or not (Path(folder) / name).is_dir():
        pytest.skip(f"needs {name}: set TSLM_DATA to a folder with {name}/, or put it into {BESIDE}")
    return open_corpus(name)


@pytest.fixture(scope="session")
def ptb(cache_folder: Path) -> Corpus:
    """Penn Treebank."""
    return open_real("ptb")


@pytest.fixture(scope="session")
def wikitext(cache_folder: Path) -> Corpus:
    """WikiText-2."""
    return open_real("wikitext-2")


@pytest.fixture(scope="session")
def automaton() -> Automaton:
    """The automaton that the synthetic corpus comes from; its entropy rate is the answer."""
    return Automaton(AutomatonConfig(states=4, words=12, choices=3, line_length=8.0, seed=1))


@pytest.fixture(scope="session")
def synthetic(automaton: Automaton) -> Corpus:
    """A small corpus with a known answer: 20,000 tokens of train."""
    return make_corpus(automaton.config, tokens=20_000)


SMALL_RECURRENT = """\
[corpus]
name = "small"
path = ["{text}"]

[model]
kind = "recurrent"
rank = 12
embedding = 10

[model.cell]
{cell}

[train]
epochs = 2
batch = 8
window = 12
learning_rate = 0.01
threads = 1

[objective]
frequent = 4
sampled = 4
"""

SMALL_COUNTED = """\
[corpus]
name = "small"
path = ["{text}"]

[model]
kind = "ngram"
order = 3
discount_fallback = [0.5, 1.0, 1.5]
"""


SMALL_PROBABILISTIC = """\
[corpus]
name = "small"
path = ["{text}"]

[model]
kind = "probabilistic"
rank = 24
clusters = 6
alone = 2
embedding = 8
dropout_states = 0.25

[train]
epochs = 3
batch = 8
window = 12
learning_rate = 0.005
threads = 1
"""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, cache_folder: Path) -> dict[str, Path]:
    """Run folders of real, small models of a few English words: ``kn``, ``tslm`` and ``gated`` (exact), and more."""
    from tslm.runs.train import train

    folder = tmp_path_factory.mktemp("runs")
    choose = random.Random(1).choice
    subjects = ("the cat", "the dog", "a man", "the old man", "a woman", "the woman")
    verbs = ("sat on", "saw", "liked", "ran to", "slept near")
    objects = ("the mat", "a house", "the tree", "the river", "a dog", "the cat")
    lines = [f"{choose(subjects)} {choose(verbs)} {choose(objects)}" for _ in range(900)]
    # Words that are seen once, so that <unk> has a probability.
    lines += [f"the rare{number} sat on the mat" for number in range(20)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    found: dict[str, Path] = {}
    for name, cell in (
        ("kn", ""),
        ("probabilistic", ""),
        ("tslm", 'kind = "tslm"\nvariant = "bounded"'),
        ("normalised", 'kind = "tslm"\nvariant = "normalised"'),
        ("gated", 'kind = "gated"'),
        ("lstm", 'kind = "lstm"'),
    ):
        recipe = {"kn": SMALL_COUNTED, "probabilistic": SMALL_PROBABILISTIC}.get(name, SMALL_RECURRENT)
        (folder / f"{name}.toml").write_text(recipe.format(text=folder / "text.txt", cell=cell))
        found[name] = folder / name
        train(folder / f"{name}.toml", found[name])
    return found
