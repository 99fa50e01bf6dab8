"""Text from a model, word by word, many samples side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tslm.corpus.rule import Writer
from tslm.corpus.vocabulary import EOS
from tslm.errors import InputError, NumberError
from tslm.models.base import DrawsWords, LanguageModel
from tslm.shapes import Float, Int

BLOCK = 64
"""How many random numbers a sample takes at a time; they are the same ones as when it takes one at a time."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next word is drawn from its distribution."""

    temperature: float = 1.0
    """Log-probabilities are divided by it: below 1 likelier words, above 1 more surprising ones, 0 the best word."""

    top_k: int = 0
    """Draw from this many best words only; 0 draws from all."""

    top_p: float = 1.0
    """Draw from the fewest best words that have this much probability together (after the temperature)."""

    seed: int = 1
    """The same seed gives the same text. Each sample has its own numbers, however many are drawn beside it."""

    exclude: tuple[str, ...] = ()
    """Words that are never drawn, such as ``<unk>``."""

    def __post_init__(self) -> None:
        for key in ("temperature", "top_k", "top_p", "seed"):
            value, whole = getattr(self, key), key in ("top_k", "seed")
            if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
                raise InputError(f"{key} = {value!r} is not a {'whole ' if whole else ''}number")
        if not 0 <= self.temperature <= 100:
            raise NumberError(f"temperature {self.temperature} must lie between 0 and 100")
        if self.top_k < 0:
            raise NumberError(f"top-k {self.top_k} must be 1 or more, or 0 for all words")
        if not 0 < self.top_p <= 1:
            raise NumberError(f"top-p {self.top_p} must lie above 0 and at most at 1")
        if self.seed < 0:
            raise NumberError(f"seed {self.seed} must not be negative")

    @property
    def plain(self) -> bool:
        """Whether words are drawn from the model's own distribution, some excluded or none."""
        return self.temperature == 1 and self.top_k == 0 and self.top_p == 1


class Draw(NamedTuple):
    """A word that a sample has gained."""

    sample: int
    """Which of the samples."""
    word: str
    log_probability: float
    """Ln p of the word under the model itself, whatever the temperature."""


@dataclass
class _Sample:
    """One text in the making. Words that may yet turn out to begin a stop are held back."""

    numbers: np.random.Generator
    stops: tuple[tuple[str, ...], ...]
    held: list[Draw] = field(default_factory=list[Draw])
    stopped: bool = False

    def __post_init__(self) -> None:
        self.beginnings = frozenset(stop[0] for stop in self.stops)

    def add(self, draw: Draw) -> list[Draw]:
        """Take a word; return the words that are now sure to belong to the text."""
        if not self.held and draw.word not in self.beginnings:
            return [draw]
        self.held.append(draw)
        tail = tuple(entry.word for entry in self.held)
        for length in range(len(tail), 0, -1):
            beginning = [stop for stop in self.stops if stop[:length] == tail[len(tail) - length :]]
            if any(len(stop) == length for stop in beginning):
                self.stopped = True
                sure, self.held = self.held[: len(tail) - length], []
                return sure
            if beginning:
                break
        else:
            length = 0
        cut = len(self.held) - length
        sure, self.held = self.held[:cut], self.held[cut:]
        return sure


class Generation:
    """Samples that grow as it is iterated over; each step yields the words gained by all of them.

    Example:
        >>> generation = Generation(model, "the king", number=2, length=2)
        >>> for draws in generation:
        ...     print([(draw.sample, draw.word) for draw in draws])
        [(0, 'of'), (1, 'of')]
        [(0, 'eternal'), (1, 'the')]
        >>> generation.reasons
        ['length', 'length']
    """

    def __init__(
        self,
        model: LanguageModel[Any],
        prompt: str = "",
        *,
        number: int = 1,
        length: int = 50,
        stop: Sequence[str] = (EOS,),
        sampling: Sampling | None = None,
    ) -> None:
        """Set up samples.

        Args:
            model: any language model.
            prompt: what comes before, as people write it, a newline ending a line; the samples do not repeat it.
            number: how many samples, all drawn in one batch.
            length: the largest number of words of each.
            stop: a sample ends before any of these; each is one word or several, as people write them.
            sampling: how words are drawn.

        Raises:
            NumberError: a number is out of range.
            CorpusError: a word of the prompt has neither id nor ``<unk>``.
        """
        if number < 1 or length < 1:
            raise NumberError(f"number {number} and length {length} must be 1 or more")
        self.model = model
        self.length = length
        self.sampling = sampling or Sampling()
        stops = tuple(words for entry in stop for words in model.rule.forms(entry))
        self._samples = [
            _Sample(np.random.default_rng([self.sampling.seed, place]), stops) for place in range(number)
        ]
        banned = [word for word in self.sampling.exclude if word in model.vocabulary]
        self._banned = model.vocabulary.encode(banned)
        self._before = model.rule.split_lines(prompt)
        # The ids of the words that come before.
        self.prompt = model.vocabulary.encode(self._before)

    @property
    def reasons(self) -> list[str]:
        """Why each sample ended: ``stop`` or ``length``."""
        return ["stop" if sample.stopped else "length" for sample in self._samples]

    def writer(self) -> Writer:
        """Return what writes a sample's words behind the prompt as people do."""
        return self.model.rule.writer(self._before)

    def write(self, words: Iterable[str]) -> str:
        """Return the words of a sample as they go on behind the prompt."""
        writer = self.writer()
        return "".join(map(writer.add, words)) + writer.end()

    def __iter__(self) -> Iterator[list[Draw]]:
        """Draw step by step; whoever stops iterating stops the work."""
        state = self.model.start(len(self._samples))
        if len(self.prompt):
            _, state = self.model.score(np.tile(self.prompt, (len(self._samples), 1)), state)
        words = self.model.vocabulary.words
        uniform_BX = np.empty((len(self._samples), BLOCK))
        for step in range(self.length):
            if step % BLOCK == 0:
                uniform_BX = np.array([sample.numbers.random(BLOCK) for sample in self._samples])
            words_B, scores_B, state = self._draw(state, uniform_BX[:, step % BLOCK])
            draws: list[Draw] = []
            for place, (sample, word, score) in enumerate(
                zip(self._samples, words_B.tolist(), scores_B.tolist(), strict=True)
            ):
                if not sample.stopped:
                    draws += sample.add(Draw(place, words[word], score))
                    if step == self.length - 1 and not sample.stopped:
                        draws += sample.held
            if draws:
                yield draws
            if all(sample.stopped for sample in self._samples):
                return

    def _draw(
        self, state: Any, uniform_B: NDArray[np.float64]
    ) -> tuple[Int[np.ndarray, " B"], Float[np.ndarray, " B"], Any]:
        """Draw the next word of every sample; return the words, ln p of each, and the state after them."""
        if self.sampling.plain and isinstance(self.model, DrawsWords):
            return self.model.draw(state, uniform_B, self._banned.tolist())
        log_probability_BV = self.model.predict(state).astype(np.float64)
        words_B = draw_words(log_probability_BV, uniform_B, self.sampling, self._banned)
        _, after = self.model.score(words_B[:, None], state)
        return words_B, log_probability_BV[np.arange(len(words_B)), words_B], after


def draw_words(
    log_probability_BV: Float[np.ndarray, "B V"],
    uniform_B: NDArray[np.float64],
    sampling: Sampling,
    banned: Int[np.ndarray, "X"] | None = None,
) -> Int[np.ndarray, " B"]:
    """Return a word per row, drawn by inverting the distribution that ``sampling`` leaves at a uniform number.

    Raises:
        NumberError: no word is left with a probability above zero.
    """
    log_BV = log_probability_BV.copy()
    if banned is not None:
        log_BV[:, banned] = -np.inf
    best_B1 = log_BV.max(1, keepdims=True)
    if bool((best_B1 == -np.inf).any()):
        raise NumberError("no word is possible here; exclude fewer words, or use a smoothed model")
    if sampling.temperature == 0:
        return log_BV.argmax(1)
    # Shifted before it is divided: the largest becomes zero, so that no temperature overflows.
    with np.errstate(over="ignore"):
        probability_BV = np.exp((log_BV - best_B1) / sampling.temperature)
    order_BK = None
    if sampling.top_k or sampling.top_p < 1:
        order_BK = _best_words(log_BV, sampling.top_k or log_BV.shape[1])
        probability_BV = np.take_along_axis(probability_BV, order_BK, 1)
    if sampling.top_p < 1:
        before_BV = probability_BV.cumsum(1) - probability_BV
        # Words that have exactly this much are enough, whichever way their sum was rounded.
        enough_B1 = sampling.top_p * (1 - 1e-12) * probability_BV.sum(1, keepdims=True)
        probability_BV[before_BV >= enough_B1] = 0
    running_BV = probability_BV.cumsum(1)
    # A number that rounds up to the whole belongs to the last possible word.
    whole_B1 = running_BV[:, -1:]
    wanted_B1 = np.minimum(uniform_B[:, None] * whole_B1, np.nextafter(whole_B1, 0.0))
    place_B = (running_BV <= wanted_B1).sum(1)
    return place_B if order_BK is None else np.take_along_axis(order_BK, place_B[:, None], 1)[:, 0]


def _best_words(log_BV: Float[np.ndarray, "B V"], count: int) -> Int[np.ndarray, "B K"]:
    """Return the best words of each row, the best first; of equals the one of the lower id."""
    if count >= log_BV.shape[1]:
        return np.argsort(-log_BV, axis=1, kind="stable")
    rows: list[NDArray[np.int64]] = []
    for log_V in log_BV:
        bound = np.partition(log_V, -count)[-count]
        some = np.flatnonzero(log_V >= bound)
        rows.append(some[np.argsort(-log_V[some], kind="stable")[:count]])
    return np.stack(rows)
