"""The automaton: its entropy rate is exact, and its text is what it says."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tslm.corpus.sources import Corpus, CorpusConfig, open_corpus
from tslm.corpus.synthetic import Automaton, AutomatonConfig, make_corpus, write_corpus
from tslm.errors import CorpusError, RecipeError


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_log_probability_of_a_long_sample_converges_to_the_entropy_rate(seed: int):
    automaton = Automaton(AutomatonConfig(seed=seed))
    values = automaton.log_probabilities(automaton.sample(tokens=200_000, seed=0))
    assert len(values) >= 200_000
    # Six standard errors; the tokens depend on each other only within short lines.
    assert -values.mean() == pytest.approx(automaton.entropy, abs=6 * values.std() / math.sqrt(len(values)))
    assert automaton.perplexity == pytest.approx(math.exp(automaton.entropy))


def test_one_state_with_equal_choices_has_the_entropy_one_can_write_down():
    automaton = Automaton(AutomatonConfig(states=1, words=1, choices=1, line_length=4.0, seed=0))
    # A line is one certain word, then before each further word the line ends with probability 1/4: 1 + 4 tokens.
    end = 1 / 4
    entropy_in_line = -(end * math.log(end) + (1 - end) * math.log(1 - end))
    visits_in_line = 4.0  # of the only state, a geometric number
    assert automaton.entropy == pytest.approx(
        visits_in_line * entropy_in_line / (1 + visits_in_line), rel=1e-12
    )
    assert automaton.stationary == pytest.approx([1 / 5, 4 / 5])


def test_the_stationary_distribution_is_the_share_of_time_found_by_power_iteration():
    automaton = Automaton(AutomatonConfig(states=5, seed=4))
    states = len(automaton.stationary)
    transition_SS = np.zeros((states, states))
    for state in range(states):
        for next_state, probability in zip(
            automaton._next_SC[state], automaton._probability_SC[state], strict=True
        ):
            transition_SS[state, next_state] += probability
    assert transition_SS.sum(1) == pytest.approx(np.ones(states))
    share = np.full(states, 1 / states)
    for _ in range(2000):
        share = share @ (transition_SS + np.eye(states)) / 2
    assert automaton.stationary == pytest.approx(share, abs=1e-12)


def test_lines_have_words_and_the_length_asked_for():
    lines = Automaton(AutomatonConfig(line_length=10.0, seed=5)).sample(tokens=50_000, seed=0)
    lengths = np.array([len(line) for line in lines])
    assert lengths.min() >= 1
    assert lengths.mean() == pytest.approx(10, abs=6 * lengths.std() / math.sqrt(len(lines)))


def test_a_longer_text_begins_with_the_shorter_one_and_no_more_is_drawn_than_needed():
    automaton = Automaton(AutomatonConfig(line_length=400.0))
    told: list[int] = []
    short, long = automaton.sample(2000, seed=0), automaton.sample(9000, seed=0, tick=told.append)
    assert long[: len(short)] == short
    sizes = [len(line) + 1 for line in long]
    assert sum(sizes) >= 9000 > sum(sizes[:-1])
    assert sum(told) == sum(sizes)


def test_an_impossible_line_has_no_probability():
    automaton = Automaton(AutomatonConfig(words=20, choices=2))
    assert automaton.log_probabilities([["no-such-word", "w00"]]).tolist() == [-math.inf] * 3
    assert automaton.log_probabilities([[]]).tolist() == [-math.inf]  # no empty line


def test_the_same_seed_gives_the_same_text_and_another_seed_another():
    first, again = (Automaton(AutomatonConfig(seed=3)).sample(1000, seed=0) for _ in range(2))
    assert first == again
    assert first != Automaton(AutomatonConfig(seed=3)).sample(1000, seed=1)
    assert first != Automaton(AutomatonConfig(seed=4)).sample(1000, seed=0)


def test_a_bigram_model_comes_no_lower_than_the_best_possible(synthetic: Corpus, automaton: Automaton):
    train, test = (synthetic.splits[split].tolist() for split in ("train", "test"))
    pairs, ones = Counter(pairwise(train)), Counter(train)
    size = len(synthetic.vocabulary)
    nats = [-math.log((pairs[a, b] + 0.01) / (ones[a] + 0.01 * size)) for a, b in pairwise(test)]
    assert math.exp(np.mean(nats)) > 0.98 * automaton.perplexity
    assert math.exp(np.mean(nats)) < size


def test_written_files_are_the_corpus_in_memory(tmp_path: Path):
    config = AutomatonConfig(seed=9)
    description = write_corpus(config, 5000, tmp_path / "made")
    opened = open_corpus(CorpusConfig(path=(str(tmp_path / "made"),), min_count=1))
    assert opened.fingerprint == make_corpus(config, 5000).fingerprint
    stored = json.loads((tmp_path / "made" / "automaton.json").read_text())
    assert stored == description
    assert stored["perplexity"] == pytest.approx(Automaton(config).perplexity, rel=1e-15)
    assert {split: entry["tokens"] for split, entry in stored["splits"].items()} == {
        split: len(ids) for split, ids in opened.splits.items()
    }
    assert stored["splits"]["train"]["perplexity"] == pytest.approx(stored["perplexity"], rel=0.1)


def test_a_number_of_tokens_that_no_one_can_wait_for_is_refused(tmp_path: Path):
    with pytest.raises(RecipeError, match="tokens = 1000000000000 must be from 100 to 100,000,000"):
        write_corpus(AutomatonConfig(), 10**12, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_files_that_are_there_are_not_overwritten(tmp_path: Path):
    (tmp_path / "valid.txt").write_text("mine\n")
    with pytest.raises(CorpusError, match=r"already holds valid\.txt"):
        write_corpus(AutomatonConfig(), 1000, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["valid.txt"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"states": 0}, "states = 0"),
        ({"words": 0}, "words = 0"),
        ({"choices": 51}, "choices = 51"),
        ({"states": 100_000_000}, "states = 100000000 must be from 1 to 2,000"),
        ({"words": 10**9}, "words = 1000000000 must be"),
        ({"words": 5000, "choices": 5000}, "at most 1,000"),
        ({"line_length": 1.0}, "line_length"),
        ({"line_length": math.inf}, "line_length = inf must be above 1 and at most 10,000"),
        ({"line_length": math.nan}, "line_length = nan"),
        ({"line_length": 1e9}, "line_length"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_an_automaton_that_cannot_be_is_refused(options: dict[str, int], words: str):
    with pytest.raises(RecipeError, match=words):
        AutomatonConfig(**options)
