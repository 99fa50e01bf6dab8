"""Text with a known answer: a seeded probabilistic automaton whose entropy rate is computed exactly."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tslm.config import check
from tslm.corpus.encoding import SPLITS, fingerprint
from tslm.corpus.sources import Corpus
from tslm.corpus.vocabulary import EOS, Vocabulary
from tslm.errors import CorpusError
from tslm.files import check_folder, write_text
from tslm.progress import track_count

_START = 0
_BLOCK_LINES = 4096
_MOST_STATES = 2_000  # the entropy rate solves as many equations
_MOST_WORDS = 1_000_000
_MOST_CHOICES = 1_000
_LONGEST_LINE = 10_000
_MOST_TOKENS = 100_000_000
_SHARE_OF_TRAIN = {"train": 1.0, "valid": 0.1, "test": 0.1}


@dataclass(frozen=True, kw_only=True)
class AutomatonConfig:
    """The size and the seed of an automaton."""

    states: int = 8
    """How many states it has, the start of a line not counted."""

    words: int = 50
    """How many words it knows, ``<eos>`` not counted."""

    choices: int = 5
    """How many different words may come next in a state, ``<eos>`` not counted."""

    line_length: float = 12.0
    """The mean number of words of a line."""

    seed: int = 1
    """Chooses the automaton and, with it, the text."""

    def __post_init__(self) -> None:
        for name, value, most in (("states", self.states, _MOST_STATES), ("words", self.words, _MOST_WORDS)):
            check(1 <= value <= most, f"{name} = {value} must be from 1 to {most:,}")
        check(
            1 <= self.choices <= min(self.words, _MOST_CHOICES),
            f"choices = {self.choices} must be from 1 to words = {self.words}, and at most {_MOST_CHOICES:,}",
        )
        check(
            1 < self.line_length <= _LONGEST_LINE,
            f"line_length = {self.line_length} must be above 1 and at most {_LONGEST_LINE:,}",
        )
        check(self.seed >= 0, f"seed = {self.seed} must be 0 or more")


class Automaton:
    """A unifilar hidden Markov chain: the state and the word together decide the next state.

    From each state a few words may follow, each with its own probability; ``<eos>`` leads back to the start of a
    line, from which no empty line comes. The words before give the state away, so the probability of each next
    word is known exactly, and no model can have a lower perplexity in the long run than ``perplexity``.

    Example:
        >>> automaton = Automaton(AutomatonConfig(seed=7))
        >>> lines = automaton.sample(tokens=1000, seed=0)
        >>> bool(abs(-automaton.log_probabilities(lines).mean() - automaton.entropy) < 0.1)
        True
    """

    def __init__(self, config: AutomatonConfig) -> None:
        self.config = config
        random = np.random.default_rng(config.seed)
        states, choices = config.states + 1, config.choices
        self.words = tuple(f"w{number:0{len(str(config.words - 1))}d}" for number in range(config.words))
        """The words; the number of ``<eos>`` is one above the last of theirs."""
        self.eos_number = config.words
        # Choice number `choices` of every state is <eos>, impossible at the start of a line.
        self._word_SC = np.full((states, choices + 1), self.eos_number)
        self._next_SC = np.full((states, choices + 1), _START)
        self._probability_SC = np.zeros((states, choices + 1))
        for state in range(states):
            self._word_SC[state, :choices] = random.choice(config.words, choices, replace=False)
            self._next_SC[state, :choices] = random.integers(1, states, choices)
            end = 0.0 if state == _START else 1 / config.line_length
            self._probability_SC[state, :choices] = random.dirichlet(np.ones(choices)) * (1 - end)
            self._probability_SC[state, choices] = end
        self._place = {
            (state, int(word)): choice
            for state in range(states)
            for choice, word in enumerate(self._word_SC[state])
        }

    @cached_property
    def stationary(self) -> NDArray[np.float64]:
        """The share of time spent in each state in the long run."""
        states = len(self._next_SC)
        transition_SS = np.zeros((states, states))
        np.add.at(transition_SS, (np.arange(states)[:, None], self._next_SC), self._probability_SC)
        # π (P - 1) = 0 has one equation too many, since every state leads back to the start: Σ π = 1 takes its place.
        system = transition_SS.T - np.eye(states)
        system[_START] = 1.0
        return np.linalg.solve(system, np.eye(states)[_START])

    @cached_property
    def entropy(self) -> float:
        """The exact entropy rate in nats per token, ``<eos>`` included."""
        probability_SC = self._probability_SC
        safe_SC = np.where(probability_SC > 0, probability_SC, 1.0)
        return float(-self.stationary @ (probability_SC * np.log(safe_SC)).sum(1))

    @property
    def perplexity(self) -> float:
        """The best perplexity that any model can have in the long run."""
        return math.exp(self.entropy)

    def sample(self, tokens: int, seed: int, tick: Callable[[int], None] | None = None) -> list[list[str]]:
        """Return lines of words (without ``<eos>``) until they make up ``tokens`` tokens (with it) or more.

        Args:
            tokens: how many at least.
            seed: chooses the lines.
            tick: told how many more tokens are drawn.
        """
        random = np.random.default_rng([self.config.seed, seed])
        cumulative_SC = np.cumsum(self._probability_SC, axis=1)
        cumulative_SC[:, -1] = 1.0
        names = np.array([*self.words, EOS], dtype=object)
        lines: list[list[str]] = []
        count = 0
        while count < tokens:
            block = self._draw_lines(tokens - count, random, cumulative_SC)
            drawn = sum(len(line) for line in block)
            lines += [names[line[:-1]].tolist() for line in block]
            count += drawn
            if tick is not None:
                tick(drawn)
        return lines

    def _draw_lines(
        self, tokens: int, random: np.random.Generator, cumulative_SC: NDArray[np.float64]
    ) -> list[NDArray[np.int64]]:
        """Draw the next block of lines, but of its last lines only those that ``tokens`` more tokens need.

        Lines are independent: word by word, all lines of the block are drawn at once. A line that is not needed
        has its random numbers all the same, so that a longer text begins with the shorter one.
        """
        drawn: list[NDArray[np.int64]] = []
        state_L = np.full(_BLOCK_LINES, _START)
        running_L = np.ones(_BLOCK_LINES, dtype=bool)
        length_L = np.zeros(_BLOCK_LINES, np.int64)
        while running_L.any():
            choice_L = (random.random(_BLOCK_LINES)[: len(state_L), None] >= cumulative_SC[state_L]).sum(1)
            drawn.append(self._word_SC[state_L, choice_L])
            length_L += running_L
            running_L &= drawn[-1] != self.eos_number
            # The lines before `needed` have, as far as they have come, all the tokens that are asked for.
            needed = int(np.searchsorted(np.cumsum(length_L), tokens)) + 1
            state_L = np.where(running_L, self._next_SC[state_L, choice_L], _START)[:needed]
            running_L, length_L = running_L[:needed], length_L[:needed]
        return [
            np.array([word_L[line] for word_L in drawn[: length_L[line]]]) for line in range(len(length_L))
        ]

    def log_probabilities(self, lines: Sequence[Sequence[str]]) -> NDArray[np.float64]:
        """Return the true ln p of every token of the lines, ``<eos>`` included; -inf for an impossible one."""
        number_of = {word: number for number, word in enumerate(self.words)} | {EOS: self.eos_number}
        values: list[float] = []
        for line in lines:
            state: int | None = _START
            for word in (*line, EOS):
                choice = None if state is None else self._place.get((state, number_of.get(word, -1)))
                probability = 0.0 if state is None or choice is None else self._probability_SC[state, choice]
                values.append(math.log(probability) if probability > 0 else -math.inf)
                state = None if state is None or choice is None else int(self._next_SC[state, choice])
        return np.array(values)


def make_corpus(config: AutomatonConfig, tokens: int) -> Corpus:
    """Return a corpus in memory: about ``tokens`` tokens of train, a tenth of that of valid and of test."""
    lines = _sample_splits(Automaton(config), tokens)
    words = {split: [word for line in given for word in (*line, EOS)] for split, given in lines.items()}
    vocabulary = Vocabulary.from_counts(Counter(words["train"]))
    splits = {split: vocabulary.encode(given) for split, given in words.items()}
    name = f"automaton-{config.seed}"
    return Corpus(name, vocabulary, MappingProxyType(splits), fingerprint(vocabulary, splits))


def write_corpus(config: AutomatonConfig, tokens: int, folder: Path) -> dict[str, object]:
    """Write train, valid and test files and ``automaton.json`` with the exact entropy rate; return the latter.

    Raises:
        CorpusError: the folder already holds one of the files.
        TslmError: it is no folder.
    """
    check_folder(folder)
    taken = [
        name for name in (*(f"{split}.txt" for split in SPLITS), "automaton.json") if (folder / name).exists()
    ]
    if taken:
        raise CorpusError(f"{folder} already holds {taken[0]}; choose another folder or remove it")
    automaton = Automaton(config)
    splits: dict[str, dict[str, float]] = {}
    for split, lines in _sample_splits(automaton, tokens).items():
        log_probabilities = automaton.log_probabilities(lines)
        splits[split] = {
            "tokens": len(log_probabilities),
            "perplexity": math.exp(-log_probabilities.mean()),
        }
        write_text(folder / f"{split}.txt", "".join(" ".join(line) + "\n" for line in lines))
    description: dict[str, object] = {
        "automaton": asdict(config),
        "entropy_nats": automaton.entropy,
        "entropy_bits": automaton.entropy / math.log(2),
        "perplexity": automaton.perplexity,
        "splits": splits,
    }
    write_text(folder / "automaton.json", json.dumps(description, indent=2) + "\n")
    return description


def _sample_splits(automaton: Automaton, tokens: int) -> dict[str, list[list[str]]]:
    check(100 <= tokens <= _MOST_TOKENS, f"tokens = {tokens} must be from 100 to {_MOST_TOKENS:,}")
    sizes = {split: round(tokens * _SHARE_OF_TRAIN[split]) for split in SPLITS}
    with track_count("drawing text", sum(sizes.values()), "tokens") as tick:
        return {split: automaton.sample(size, seed, tick) for seed, (split, size) in enumerate(sizes.items())}
